"""The bench on the full screen: the matrix filling, and what the selected cell says."""

from __future__ import annotations

import time
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget

from specctl.tui.bench_state import BenchLive
from specctl.tui.bench_words import KEYS, detail_lines, header_lines, keys_line
from specctl.tui.bench_worker import BenchWorker
from specctl.tui.screens.sized import SizedScreen
from specctl.tui.widgets.glyphs import glyphs
from specctl.tui.widgets.matrix import Matrix

TOO_SMALL = "specctl needs at least 40 × 10: make the window larger. The benchmark goes on."


class _Lines(Widget):
    """Draws what its screen says."""

    DEFAULT_CSS = """
    _Lines { width: 1fr; text-wrap: nowrap; text-overflow: clip; }
    """

    def render(self) -> Content:
        """The screen's lines for this widget."""
        screen = self.screen
        assert isinstance(screen, BenchScreen)
        width, height = self.content_size
        return Content("\n").join(screen.lines_of(self.id or "", width, height)[: max(0, height)])


class BenchScreen(SizedScreen):
    """The matrix. Knows the state and the worker's pulse; steps reach it through the app."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "app.report", "the report", show=False)]
    DEFAULT_CSS = """
    BenchScreen { layout: vertical; }
    BenchScreen #header { height: 3; padding: 0 1; background: $panel; }
    BenchScreen Matrix { padding: 0 1; margin: 1 0 0 0; }
    BenchScreen #detail { height: 6; padding: 0 1; border-top: solid $panel-lighten-1; }
    BenchScreen.-ascii #detail { border-top: ascii $panel-lighten-1; }
    BenchScreen #bench-keys { height: 1; padding: 0 1; background: $panel; }
    BenchScreen.-flat Matrix { margin: 0; }
    BenchScreen.-flat #detail { border: none; }
    BenchScreen #too-small { display: none; height: 1fr; content-align: center middle; }
    BenchScreen.-less _Lines, BenchScreen.-less Matrix { display: none; }
    BenchScreen.-less #too-small { display: block; text-wrap: wrap; }
    """

    def __init__(self, live: BenchLive, worker: BenchWorker, ascii_only: bool = False) -> None:
        super().__init__()
        self.live = live
        self.since = time.monotonic()  # when the last step came
        self._worker = worker
        self._signs = glyphs(ascii_only)
        self.set_class(ascii_only, "-ascii")
        self.matrix = Matrix(live, ascii_only)
        header, *below = (_Lines(id=name) for name in ("header", "detail", "bench-keys"))
        self._parts: tuple[Widget, ...] = (header, self.matrix, *below)

    def compose(self) -> ComposeResult:
        """From above: header, matrix, detail, keys."""
        yield from self._parts
        yield _Lines(id="too-small")

    def on_mount(self) -> None:
        """The arrows steer the matrix."""
        self.matrix.focus()

    def on_resize(self, event: object) -> None:
        """Lines for header and detail by the height there is (SizedScreen sets the classes)."""
        height = self.size.height
        header = 3 if height >= 20 else 2 if height >= 14 else 1
        detail = 17 if height >= 44 else 6 if height >= 24 else 3 if height >= 14 else 1
        self.set_class(height < 20, "-flat")
        self.query_one("#header").styles.height = header
        self.query_one("#detail").styles.height = detail

    def on_matrix_selected(self, _: Matrix.Selected) -> None:
        """Another cell's detail."""
        self.query_one("#detail").refresh()

    def sync(self, steps: bool) -> None:
        """Draw again: all of it after `steps`, else the one line that counts."""
        if steps:
            self.since = time.monotonic()
        for widget in self._parts if steps else self._parts[:1]:
            widget.refresh()

    def lines_of(self, name: str, width: int, height: int) -> list[Content]:
        """What a part of the screen shows."""
        live, signs = self.live, self._signs
        if name == "header":
            stopping, pulse = self._worker.stop.asked, self._worker.pulse
            now = time.monotonic()
            return header_lines(live, pulse, self.since, stopping, width, height, now, signs)
        if name == "detail":
            return detail_lines(live, self.matrix.selected, width, height, signs)
        if name == "bench-keys":
            keys = KEYS["done" if live.phase == "done" else "measuring"]
            return [keys_line(keys, width, signs)]
        return [Content(TOO_SMALL)]
