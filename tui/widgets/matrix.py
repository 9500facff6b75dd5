"""The matrix of workloads and arms: pure layout and lines, and the widget that is steered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from specctl.tui.bench_state import BenchLive, Place
from specctl.tui.widgets.glyphs import (
    ASCII,
    MUTED,
    STRONG,
    Glyphs,
    clean,
    cut,
    cut_middle,
    glyphs,
    row,
    said,
)
from specctl.tui.widgets.speedbar import cell_lines, scale_of
from specctl.units import number

CELL_MIN, CELL_MAX = 13, 92  # cells of a column
PLAIN_WIDTH = 9
LABEL_MAX = 16


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the matrix puts what, for one size and selection.

    Rows `top` … `top + rows` of the families are shown, the total always, below them; columns
    `left` … `left + columns` of the arms.
    """

    label: int
    plain: int  # width of the plain column; 0: not shown
    cell: int
    left: int
    columns: int
    top: int
    rows: int
    row_height: int

    def place_at(self, live: BenchLive, x: int, y: int) -> Place | None:
        """The cell under a point of the widget."""
        column = (x - self.label - self.plain) // self.cell
        index = (y - 1) // self.row_height
        if x < self.label + self.plain or not 0 <= column < self.columns or y < 1:
            return None
        shown = shown_rows(live, self)
        arm = live.arms[self.left + column]
        return Place(shown[index], arm) if index < len(shown) else None


def shown_rows(live: BenchLive, layout: Layout) -> tuple[str | None, ...]:
    """The workloads of the rows, from above."""
    families = [w for w in live.workloads if w is not None]
    return (*families[layout.top : layout.top + layout.rows], None)


def lay_out(live: BenchLive, selected: Place, width: int, height: int) -> Layout:
    """The layout that shows `selected`; widths and heights in cells."""
    narrow = width < 60
    families = [w for w in live.workloads if w is not None]
    longest = max(cell_len(live.label(w)) for w in live.workloads)
    label = min(longest + 3, 12 if narrow else LABEL_MAX + 3)
    room = width - label
    plain = PLAIN_WIDTH if room - PLAIN_WIDTH >= CELL_MIN * min(len(live.arms), 2) else 0
    if narrow and len(live.arms) > 1:
        plain = 0
    room -= plain
    columns = max(1, min(len(live.arms), room // CELL_MIN))
    cell = max(1, min(room // columns, CELL_MAX))
    arm = live.arms.index(selected.arm)
    left = max(0, min(arm - columns // 2, len(live.arms) - columns))
    tall = 1 + 2 * len(live.workloads) <= height
    row_height = 2 if tall else 1
    rows = max(0, min(len(families), (height - 1) // row_height - 1))
    at = families.index(selected.workload) if selected.workload in families else 0
    top = max(0, min(at - rows // 2, len(families) - rows))
    if selected.workload is None:
        top = len(families) - rows
    return Layout(label, plain, cell, left, columns, top, rows, row_height)


def matrix_lines(
    live: BenchLive, selected: Place, width: int, height: int, signs: Glyphs
) -> list[Content]:
    """The matrix in at most `height` lines of at most `width` cells."""
    layout = lay_out(live, selected, width, height)
    arms = live.arms[layout.left : layout.left + layout.columns]
    cells = {
        (workload, arm): live.cell(Place(workload, arm))
        for workload in live.workloads
        for arm in live.arms
    }
    scale = scale_of(cell.row.speed for cell in cells.values() if cell.row is not None)
    lines = [_heading(live, layout, arms, signs)]
    now = live.running
    for workload in shown_rows(live, layout):
        running = now is not None and workload in (None, now.workload)
        rows = [cells[workload, arm].row for arm in live.arms]
        plain = next((one.speed.plain_rate for one in rows if one is not None), None)
        name = cut(said(clean(live.label(workload)), signs), layout.label - 3, signs)
        here = running and workload is not None
        mark = said("▸ " if here else "  ", signs)
        label = Content.styled(
            (mark + name).ljust(layout.label), STRONG if workload is None or here else ""
        )
        blank = Content(" " * (layout.label + layout.plain))
        parts = [[label + _plain(plain, layout.plain, signs)], [blank]]
        for arm in arms:
            drawn = cell_lines(
                cells[workload, arm],
                layout.cell,
                layout.row_height,
                scale,
                signs,
                selected == Place(workload, arm),
            )
            for line, part in zip(drawn, parts, strict=False):
                part.append(line)
        lines += [Content("").join(part) for part in parts[: layout.row_height]]
    if len(lines) + 2 <= height:
        lines += [Content(""), row([[(part, MUTED)] for part in _legend(signs)], width, signs)]
    return [line if line.cell_length <= width else line.truncate(width) for line in lines[:height]]


def _legend(signs: Glyphs) -> tuple[str, ...]:
    line, shade = ("|", "~") if signs is ASCII else ("│", "▒")
    faster, slower = said("▲", signs), said("▼", signs)
    return (
        f"  {faster} faster  {slower} slower  = no difference shown",
        f"{line} plain decoding",
        f"{shade} slowest to fastest repeat",
        "! never drafted",
    )


def _heading(live: BenchLive, layout: Layout, arms: tuple[str, ...], signs: Glyphs) -> Content:
    families = sum(w is not None for w in live.workloads)
    corner = ""
    if layout.rows < families:
        corner = said(f"{layout.top + 1}–{layout.top + layout.rows} of {families}", signs)
    text = f"  {corner}".ljust(layout.label)[: layout.label]
    if layout.plain:
        text += "plain".rjust(layout.plain - 2) + "  "
    for index, arm in enumerate(arms):
        more = ""
        if index == len(arms) - 1 and layout.columns < len(live.arms):
            more = f" {layout.left + index + 1}/{len(live.arms)}"
        name = cut_middle(clean(arm), layout.cell - 3 - len(more), signs) + more
        text += ("  " + name).ljust(layout.cell)
    return Content.styled(text, "bold underline")


def _plain(rate: float | None, width: int, signs: Glyphs) -> Content:
    if not width:
        return Content("")
    return Content.styled(said(number(rate, ".1f"), signs).rjust(width - 2) + "  ", MUTED)


class Matrix(Widget, can_focus=True):
    """The matrix. Arrow keys or a click select a cell, Enter or a second click opens it."""

    DEFAULT_CSS = """
    Matrix { height: 1fr; text-wrap: nowrap; text-overflow: clip; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(0,-1)", "select", show=False),
        Binding("down", "move(0,1)", "select", show=False),
        Binding("left", "move(-1,0)", "select", show=False),
        Binding("right", "move(1,0)", "select", show=False),
        Binding("home", "move(0,-999)", "first row", show=False),
        Binding("end", "move(0,999)", "last row", show=False),
        Binding("enter", "open", "prompts", show=False),
    ]

    class Selected(Message):
        """Another cell is selected."""

        def __init__(self, place: Place) -> None:
            super().__init__()
            self.place = place

    class Opened(Message):
        """The selected cell is opened."""

        def __init__(self, place: Place) -> None:
            super().__init__()
            self.place = place

    def __init__(self, live: BenchLive, ascii_only: bool = False) -> None:
        super().__init__()
        self.live = live
        self.selected = Place(live.workloads[0], live.arms[0])
        self._signs = glyphs(ascii_only)

    def render(self) -> Content:
        """All lines."""
        width, height = self.content_size
        lines = matrix_lines(self.live, self.selected, width, height, self._signs)
        return Content("\n").join(lines)

    def select(self, place: Place) -> None:
        """Select a cell."""
        if place != self.selected:
            self.selected = place
            self.refresh()
            self.post_message(self.Selected(place))

    def action_move(self, columns: int, rows: int) -> None:
        """Select the cell beside."""
        workloads, arms = self.live.workloads, self.live.arms
        index = workloads.index(self.selected.workload) + rows
        column = arms.index(self.selected.arm) + columns
        self.select(
            Place(
                workloads[max(0, min(index, len(workloads) - 1))],
                arms[max(0, min(column, len(arms) - 1))],
            )
        )

    def action_open(self) -> None:
        """Open the selected cell."""
        self.post_message(self.Opened(self.selected))

    def on_click(self, event: events.Click) -> None:
        """Select; a click on the selected cell opens it."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        width, height = self.content_size
        layout = lay_out(self.live, self.selected, width, height)
        place = layout.place_at(self.live, offset.x, offset.y)
        if place is None:
            return
        if place == self.selected:
            self.action_open()
        self.select(place)
