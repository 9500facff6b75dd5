"""The application around one screen: themes, quitting, a terminal that is always given back."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen


class SpecctlApp(App[None]):
    """Shows `first`; ends with Ctrl-Q."""

    CSS_PATH = "app.tcss"
    TITLE = "specctl"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "quit", priority=True, show=False)
    ]

    def __init__(self, first: Screen[None], theme: str | None = None) -> None:
        super().__init__()
        self._first = first
        if theme is not None:
            self.theme = theme

    def on_mount(self) -> None:
        """Show it."""
        self.push_screen(self._first)
