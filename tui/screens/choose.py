"""A list to choose a way to draft from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specctl.tui.desk import Choice


class ChooseScreen(ModalScreen[Choice | None]):
    """Gives the chosen one, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f3,ctrl+c", "cancel", "leave it as it is")
    ]
    DEFAULT_CSS = """
    ChooseScreen { align: center middle; background: $background 60%; }
    ChooseScreen > Vertical {
        width: 76; max-width: 100%; height: auto; max-height: 100%;
        border: round $primary; background: $surface;
    }
    ChooseScreen OptionList { height: auto; max-height: 20; border: none; }
    """

    def __init__(self, choices: Sequence[Choice], current: tuple[str, ...]) -> None:
        super().__init__()
        self._choices = choices
        self._current = current

    def compose(self) -> ComposeResult:
        """One line for each."""
        options = [
            Option(
                Content.assemble(
                    ("> " if one.spec_types == self._current else "  "),
                    (f"{','.join(one.spec_types):16}", "bold"),
                    (one.summary, "dim"),
                )
            )
            for one in self._choices
        ]
        with Vertical() as box:
            box.border_title = "draft by"
            box.border_subtitle = "Enter takes it, Esc leaves"
            yield OptionList(*options)

    def on_mount(self) -> None:
        """Start at the one in force."""
        listed = [one.spec_types for one in self._choices]
        if self._current in listed:
            self.query_one(OptionList).highlighted = listed.index(self._current)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take it."""
        self.dismiss(self._choices[event.option_index])

    def action_cancel(self) -> None:
        """Leave everything as it is."""
        self.dismiss(None)
