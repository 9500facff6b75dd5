"""Two small questions of the home screen: what to do with a row, and whether to go ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from specctl.tui.home_state import Action
from specctl.tui.widgets.glyphs import ACCENT, clean, glyphs, said

BOX = """
    width: 76; max-width: 100%; height: auto; max-height: 100%;
    border: round $primary; background: $surface;
"""


class MenuScreen(ModalScreen[Action | None]):
    """Gives the chosen action, or None. Each is shown with the command that it is."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+c,q", "cancel", "leave it")]
    DEFAULT_CSS = f"""
    MenuScreen {{ align: center middle; background: $background 60%; }}
    MenuScreen > Vertical {{ {BOX} }}
    MenuScreen.-ascii > Vertical {{ border: ascii $primary; }}
    MenuScreen OptionList {{ height: auto; max-height: 20; border: none; }}
    MenuScreen OptionList:focus {{ border: none; }}
    """

    def __init__(self, title: str, actions: Sequence[Action], ascii_only: bool = False) -> None:
        super().__init__(classes="-ascii" if ascii_only else None)
        self._signs = glyphs(ascii_only)
        self._title = said(clean(title), self._signs)
        self._actions = actions

    def compose(self) -> ComposeResult:
        """What it does, and below it the command."""
        options = [
            Option(
                Content.assemble(
                    (said(one.words, self._signs), "bold"),
                    "\n",
                    (f"$ {said(clean(one.line), self._signs)}", ACCENT),
                )
            )
            for one in self._actions
        ]
        with Vertical() as box:
            box.border_title = Content(self._title)
            box.border_subtitle = Content("Enter does it, Esc leaves")
            yield OptionList(*options)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take it."""
        self.dismiss(self._actions[event.option_index])

    def action_cancel(self) -> None:
        """Nothing."""
        self.dismiss(None)


class ConfirmScreen(ModalScreen[bool]):
    """The lines of an action's question; Enter or y is a yes, everything else is none."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,y", "answer(True)", "yes"),
        Binding("escape,n,q,ctrl+c", "answer(False)", "no"),
    ]
    DEFAULT_CSS = f"""
    ConfirmScreen {{ align: center middle; background: $background 60%; }}
    ConfirmScreen > VerticalScroll {{ {BOX} padding: 0 1; }}
    ConfirmScreen.-ascii > VerticalScroll {{ border: ascii $primary; }}
    ConfirmScreen Static {{ height: auto; }}
    """

    def __init__(self, action: Action, ascii_only: bool = False) -> None:
        super().__init__(classes="-ascii" if ascii_only else None)
        self._signs = glyphs(ascii_only)
        self._action = action

    def compose(self) -> ComposeResult:
        """The question, and the command that it is about."""
        lines = [said(clean(text), self._signs) for text in self._action.ask]
        command = said(clean(self._action.line), self._signs)
        with VerticalScroll() as box:
            box.border_title = Content(said(clean(self._action.words), self._signs))
            box.border_subtitle = Content("Enter yes, Esc no")
            text = "\n".join(lines)
            yield Static(Content.assemble(text, "\n\n", (f"$ {command}", ACCENT)))

    def on_mount(self) -> None:
        """Arrow keys scroll at once, where it is long."""
        self.query_one(VerticalScroll).focus()

    def action_answer(self, yes: bool) -> None:
        """Say it."""
        self.dismiss(yes)
