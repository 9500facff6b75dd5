"""A section of the home screen as a widget: focused, clicked, scrolled, and drawn as lines."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from specctl.tui.home_state import Home, Section
from specctl.tui.widgets.glyphs import glyphs, said
from specctl.tui.widgets.homelines import heading, row_at, section_lines


class HomePanel(Widget, can_focus=True):
    """Draws one section of the state. Which row is selected is the state's to say."""

    DEFAULT_CSS = """
    HomePanel {
        width: 1fr; height: 1fr; padding: 0 1; text-wrap: nowrap; text-overflow: clip;
        border-title-color: $foreground; border-title-style: bold;
        &:focus { border-title-color: $text-primary; }
    }
    """

    class Chosen(Message):
        """The selected row was clicked once more."""

    class Moved(Message):
        """The focus or the selected row is another one."""

    class Turned(Message):
        """The wheel."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self, home: Home, section: Section, ascii_only: bool = False) -> None:
        super().__init__(id=f"home-{section}", classes="-ascii" if ascii_only else None)
        self.home = home
        self.section: Section = section
        self.signs = glyphs(ascii_only)

    def sync(self) -> None:
        """Draw again."""
        mark = said("▸ ", self.signs) if self.has_focus else ""
        self.border_title = Content(mark + heading(self.home, self.section, self.signs))
        self.refresh()

    def render(self) -> Content:
        """All lines."""
        width, height = self.content_size
        args = self.home, self.section, width, height, self.signs
        return Content("\n").join(section_lines(*args, self.has_focus))

    def on_focus(self) -> None:
        """By Tab, by a key of the screen or by the mouse: the state follows."""
        if self.home.focus != self.section:
            self.home.go(self.section)
        self.post_message(self.Moved())

    def on_click(self, event: events.Click) -> None:
        """Select; a click on the selected row opens it."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        width, height = self.content_size
        at = row_at(self.home, self.section, offset.y, (width, height), self.signs)
        if at is None:
            return
        if at == self.home.parts[self.section].at:
            self.post_message(self.Chosen())
        self.home.select(self.section, at)
        self.post_message(self.Moved())

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """One row on."""
        event.stop()
        self.post_message(self.Turned(1))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """One row back."""
        event.stop()
        self.post_message(self.Turned(-1))


class Lines(Widget):
    """Draws what `draw` makes for a width and a height, cells."""

    DEFAULT_CSS = """
    Lines { width: 1fr; height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: clip; }
    """

    def __init__(self, draw: Callable[[int], Content], id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._draw = draw

    def render(self) -> Content:
        """One line."""
        width = self.content_size.width
        return self._draw(width) if width > 0 else Content("")
