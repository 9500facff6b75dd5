"""What lies behind the bench's matrix: the prompts of a cell, the cycles of a run, the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from specctl.tui.bench_state import BenchLive, Place
from specctl.tui.bench_words import cycle_lines, prompt_lines
from specctl.tui.screens.page import PageScreen


class _Page(PageScreen):
    """A page of the bench: `r` shows the report from everywhere."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "app.report", "the report", show=False),
    ]


class PromptsScreen(_Page):
    """The prompts of one cell; Enter shows the cycles of one."""

    KEYS = ("arrows select", "Enter cycles", "Esc back")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "select", show=False, priority=True),
        Binding("down", "move(1)", "select", show=False, priority=True),
        Binding("pageup", "move(-10)", "select", show=False, priority=True),
        Binding("pagedown", "move(10)", "select", show=False, priority=True),
        Binding("enter", "open", "cycles", show=False),
    ]

    def __init__(self, live: BenchLive, place: Place, ascii_only: bool = False) -> None:
        super().__init__(f"{live.label(place.workload)}, {place.arm}: prompts", ascii_only)
        self._live = live
        self._place = place
        self._ascii = ascii_only
        self._keys = [line.key for line in live.prompts(place)]
        self._selected = 0

    def page(self, width: int) -> Content:
        """One line a prompt."""
        lines = prompt_lines(self._live, self._place, self._selected, width, self._signs)
        return Content("\n").join(lines)

    def action_move(self, rows: int) -> None:
        """Select another prompt and keep it in sight."""
        self._selected = max(0, min(self._selected + rows, len(self._keys) - 1))
        self.sync(True)
        scroll = self.query_one(VerticalScroll)
        height = max(1, scroll.size.height)
        if not scroll.scroll_y <= self._selected < scroll.scroll_y + height:
            top = self._selected if rows < 0 else self._selected - height + 1
            scroll.scroll_to(y=max(0, top), animate=False)

    def action_open(self) -> None:
        """The cycles of the selected prompt."""
        self.app.push_screen(
            CyclesScreen(self._live, self._keys[self._selected], self._place.arm, self._ascii)
        )

    def on_click(self, event: events.Click) -> None:
        """Select a prompt; a click on the selected one opens it."""
        offset = event.get_content_offset(self.query_one("#page", Static))
        if offset is None or not 0 <= offset.y < len(self._keys):
            return
        if offset.y == self._selected:
            self.action_open()
        else:
            self.action_move(offset.y - self._selected)


class CyclesScreen(_Page):
    """Every repeat of one arm on one prompt, cycle by cycle."""

    def __init__(self, live: BenchLive, prompt: str, arm: str, ascii_only: bool = False) -> None:
        super().__init__(f"{arm} on {prompt}: accepted tokens, cycle by cycle", ascii_only)
        self._live = live
        self._which = prompt, arm

    def page(self, width: int) -> Content:
        """A chart for each repeat."""
        runs = self._live.runs_of(*self._which)
        if not runs:
            return Content("This run has not been done yet.")
        return Content("\n").join(cycle_lines(runs, width, self._signs))


class ReportScreen(_Page):
    """The whole report, as it is printed on leaving. `render` makes it for a width."""

    KEYS = ("arrows scroll", "Esc matrix", "^Q leave, print it", "F1 keys")

    def __init__(self, make: Callable[[int], Text], ascii_only: bool = False) -> None:
        super().__init__("report", ascii_only)
        self._make = make

    def page(self, width: int) -> Text:
        """The report."""
        return self._make(width)
