"""The line to search with; hidden until it is opened."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static


class SearchBar(Horizontal):
    """Posts what is looked for. Enter and Down: the next; Up: the one before; Escape: the end."""

    class Sought(Message):
        """The text to look for has changed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Next(Message):
        """To another match: `step` 1 or -1."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    class Closed(Message):
        """No search any more."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "next(1)", "next", show=False),
        Binding("up", "next(-1)", "previous", show=False),
        Binding("escape", "close", "close", show=False),
    ]
    DEFAULT_CSS = """
    SearchBar {
        display: none;
        height: 1;
        background: $panel;
        padding: 0 1;
        & > .search--label { width: auto; color: $text-muted; }
        & > Input { width: 1fr; background: $panel; }
        & > #search-count { width: auto; min-width: 14; color: $text-muted; text-align: right; }
    }
    SearchBar.-open { display: block; }
    """

    def compose(self) -> ComposeResult:
        """What is sought, and how often it was found."""
        yield Static("find ", classes="search--label", markup=False)
        yield Input(compact=True, placeholder="Enter: next, Up: before, Esc: close")
        yield Static("", id="search-count", markup=False)

    @property
    def is_open(self) -> bool:
        """Is it there?"""
        return self.has_class("-open")

    def open(self) -> None:
        """Show it and type into it; open already: the next match."""
        field = self.query_one(Input)
        if self.is_open and field.has_focus:
            self.action_next(1)
            return
        self.add_class("-open")
        field.focus()
        field.select_all()
        if field.value:
            self.post_message(self.Sought(field.value))

    def found(self, count: int, at: int = 0) -> None:
        """How many were found, and which one is shown (from 1; 0: none yet)."""
        text = f"{at} of {count}" if at else f"{count} found"
        if not self.query_one(Input).value:
            text = ""
        self.query_one("#search-count", Static).update(text)

    def action_next(self, step: int) -> None:
        """Another match."""
        if self.query_one(Input).value:
            self.post_message(self.Next(step))

    def action_close(self) -> None:
        """Hide it."""
        if self.is_open:
            self.remove_class("-open")
            self.post_message(self.Closed())

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.is_open:
            self.post_message(self.Sought(event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_next(1)
