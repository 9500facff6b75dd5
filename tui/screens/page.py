"""A page of text that is scrolled, on top of another screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from specctl.tui.widgets.glyphs import MUTED, clean, glyphs, row, said


class PageScreen(Screen[None]):
    """A title, scrolling content made for the width there is, and a line of keys."""

    KEYS: ClassVar[tuple[str, ...]] = ("arrows scroll", "Esc back")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.pop_screen", "back", show=False),
    ]
    DEFAULT_CSS = """
    PageScreen { layout: vertical; }
    PageScreen #title { height: 1; padding: 0 1; background: $panel; text-style: bold;
                   text-wrap: nowrap; text-overflow: ellipsis; }
    PageScreen VerticalScroll { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    PageScreen #page { width: 1fr; height: auto; text-wrap: nowrap; text-overflow: clip; }
    PageScreen #page-keys { height: 1; padding: 0 1; background: $panel; }
    """

    def __init__(self, title: str, ascii_only: bool = False) -> None:
        super().__init__()
        self._signs = glyphs(ascii_only)
        self._title = said(clean(title), self._signs)

    def compose(self) -> ComposeResult:
        """Title, page, keys."""
        yield Static(self._title, id="title", markup=False)
        with VerticalScroll():
            yield Static("", id="page")
        yield Static("", id="page-keys")

    def on_mount(self) -> None:
        """Arrow keys scroll at once."""
        self.query_one(VerticalScroll).focus()

    def on_resize(self, event: events.Resize) -> None:
        """Made anew for the width."""
        self.sync(True)

    def sync(self, steps: bool) -> None:
        """Draw again if there were steps."""
        if not steps or not self.query("#page"):  # or it is not composed yet
            return
        width = max(20, self.size.width - 3)  # padding and scroll bar
        self.query_one("#page", Static).update(self.page(width))
        keys = row([[(said(key, self._signs), MUTED)] for key in self.KEYS], width, self._signs)
        self.query_one("#page-keys", Static).update(keys)

    def page(self, width: int) -> Content | Text:
        """The content for this width, cells."""
        raise NotImplementedError


class TextScreen(PageScreen):
    """A text that `make` renders for a width, cells."""

    def __init__(self, title: str, make: Callable[[int], Text], ascii_only: bool = False) -> None:
        super().__init__(title, ascii_only)
        self._make = make

    def page(self, width: int) -> Text:
        """The text."""
        return self._make(width)
