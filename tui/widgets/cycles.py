"""Accepted tokens per cycle as bars, with the two lines they are judged by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from textual.content import Content

from specctl.metrics import RULE_OF_THUMB, fold
from specctl.tui.state import Live
from specctl.tui.widgets.glyphs import (
    ACCENT,
    BAD,
    GOOD,
    MUTED,
    STRONG,
    UNICODE,
    Glyphs,
    Panel,
    Piece,
    line,
    row,
    spelled,
)

_LONG, _SHORT = 72, 46  # widths from which there is room for labels beside the lines
_AND = "& "  # before the label of a line that is drawn in the row beside it
_KEYED = 9  # lines from which one tells what the signs mean
_TOPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)  # scales that do not jump about
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_STRETCH = 1.5  # a scale may grow so much to tell the two lines apart


@dataclass(frozen=True, slots=True)
class Bar:
    """One column. `value` None: not known; `drafted` False: a cycle of plain decoding."""

    value: float | None
    drafted: bool = True


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn: bars oldest first, the measured break-even, and words."""

    bars: Sequence[Bar]
    break_even: float | None
    title: str = "accepted per cycle"
    unit: str = ""  # after "last N"
    empty: str = "no cycles yet"


def chart_of(live: Live, most: int = 512) -> Chart:
    """The latest cycles, or intervals where a source shows no cycles. Break-even is that of
    `live.shown()`: the words beside the chart say the same number.
    """
    break_even = live.shown()[0].break_even
    if not live.only_sums:
        recent = list(live.cycles)[-most:]
        bars = [Bar(cycle.accepted, bool(cycle.drafted)) for cycle in recent]
        empty = {"opening": "opening the model", "prompt": "reading the prompt"}.get(
            live.phase, "no cycles yet"
        )
        return Chart(bars, break_even, empty=empty)
    sums = [fold([interval]) for interval in list(live.intervals)[-most:]]
    bars = [Bar(total.accepted_per_cycle, total.drafted > 0) for total in sums]
    return Chart(bars, break_even, "mean accepted per drafted pass", "intervals")


@dataclass(frozen=True, slots=True)
class _Scale:
    """`unit` tokens a row, over `rows` rows."""

    unit: float
    rows: int

    def row_of(self, value: float) -> int:
        """The row in which a bar of this height ends, 0 at the bottom."""
        return min(self.rows - 1, max(0, math.ceil(value / self.unit - 1e-9) - 1))

    @property
    def labels(self) -> dict[int, int]:
        """Row → the whole number that is marked there."""
        step = next((step for step in _STEPS if step >= self.unit), _STEPS[-1])
        most = math.floor(self.unit * self.rows + 1e-9)
        return {self.row_of(value): value for value in range(step, most + 1, step)}


def _scale(bars: Sequence[Bar], break_even: float | None, rows: int) -> _Scale:
    values = [bar.value for bar in bars if bar.value is not None]
    most = max([2 * RULE_OF_THUMB, break_even or 0.0, *values])  # the rule is never at the top
    top = next((top for top in _TOPS if top >= most), math.ceil(most))
    base = _Scale(top / rows, rows)
    if break_even is None or break_even <= 0 or break_even == RULE_OF_THUMB:
        return base
    for step in range(11):  # a little more room above, if that puts the lines in rows of their own
        scale = _Scale(base.unit * (1 + step / 10 * (_STRETCH - 1)), rows)
        if scale.row_of(break_even) != scale.row_of(RULE_OF_THUMB):
            return scale
    return base


def chart_lines(chart: Chart, width: int, height: int, signs: Glyphs = UNICODE) -> list[Content]:
    """Title and chart. `width` cells, `height` lines; a single line is bars alone."""
    keyed = height >= _KEYED and width >= _SHORT
    rows = max(1, height - 1 - keyed)
    if not chart.bars:
        lines = [line([(chart.title, STRONG)], width, signs)] if height > 1 else []
        return [*lines, line([(chart.empty, MUTED)], width, signs)]
    labelled = width >= _SHORT and rows >= 2
    names = _names(chart.break_even, width) if labelled else ("", "")
    gutter = len(_AND) + 1 + max(len(spelled(name, signs)) for name in names) if labelled else 0
    scale = _scale(chart.bars[-max(1, width - gutter) :], chart.break_even, rows)
    axis = len(str(max(scale.labels.values(), default=1))) + 2 if rows >= 2 and width >= 20 else 0
    columns = max(1, width - axis - gutter)
    bars = chart.bars[-columns:]
    scale = _scale(bars, chart.break_even, rows)  # what has left the picture no longer counts
    body = _body(bars, chart.break_even, scale, columns, signs)
    texts = _texts(chart.break_even, scale, names) if labelled else {}
    lines = [_title(chart, len(bars), width, labelled, signs)] if height > 1 else []
    for index in reversed(range(rows)):
        pieces: list[Piece] = []
        if axis:
            label = scale.labels.get(index)
            mark = "" if label is None else str(label)
            pieces.append((f"{mark:>{axis - 2}} {signs.axis}", MUTED))
        pieces += body[index]
        if index in texts:
            text, style = texts[index]
            pieces.append((f" {text}", style))
        lines.append(line(pieces, width, signs))
    return [*lines, _key(chart, axis, width, signs)] if keyed else lines


def _key(chart: Chart, margin: int, width: int, signs: Glyphs) -> Content:
    """What the columns mean."""
    known = chart.break_even is not None
    signed: list[tuple[str, str, str]] = [
        (signs.good, GOOD, "above"),
        (signs.bad, BAD, "below"),
        (signs.rejected, BAD, "none accepted"),
        (signs.plain, MUTED, "no draft"),
    ]
    chunks = [
        [(sign, style), (f" {name}", MUTED)] for sign, style, name in signed[0 if known else 2 :]
    ]
    chunks[0].insert(0, (" " * margin, ""))
    return row(chunks, width, signs, gap="  ")


def _names(break_even: float | None, width: int) -> tuple[str, str]:
    """Labels of the two lines."""
    measured = "" if break_even is None else f"break-even {max(0.0, break_even):.2f}"
    return measured, "rule of thumb α×K = 1" if width >= _LONG else "rule α×K = 1"


def _texts(
    break_even: float | None, scale: _Scale, names: tuple[str, str]
) -> dict[int, tuple[str, str]]:
    """Row → label. Lines that share a row have their labels in neighbouring ones."""
    measured, rule = names
    at_rule = scale.row_of(RULE_OF_THUMB)
    if break_even is None:
        return {at_rule: (rule, MUTED)}
    at = scale.row_of(break_even)
    if at == at_rule:
        at_rule = at - 1 if at > 0 and break_even > RULE_OF_THUMB else at + 1
        if at_rule >= scale.rows:
            at_rule = at - 1
        rule = _AND + rule
    return {at_rule: (rule, MUTED), at: (measured, STRONG)}


def _title(chart: Chart, shown: int, width: int, labelled: bool, signs: Glyphs) -> Content:
    last = f"last {shown} {chart.unit}".rstrip()
    chunks: list[Sequence[Piece]] = [[(chart.title, STRONG)]]
    if not labelled and chart.break_even is not None:
        chunks.append([(f"{signs.measured} break-even {max(0.0, chart.break_even):.2f}", "")])
    return row([*chunks, [(last, MUTED)]], width, signs, gap="  ")


def _body(
    bars: Sequence[Bar], break_even: float | None, scale: _Scale, columns: int, signs: Glyphs
) -> list[list[Piece]]:
    """Rows from the bottom up, each as runs of one style; the newest bar is the rightmost."""
    empty = [_line_at(index, break_even, scale, signs) for index in range(scale.rows)]
    drawn = [_column(bar, break_even, scale, signs) for bar in bars]
    blank = columns - len(drawn)
    rows: list[list[Piece]] = []
    for index in range(scale.rows):
        cells = [empty[index]] * blank
        cells += [column[index] if index < len(column) else empty[index] for column in drawn]
        runs = groupby(
            ((glyph[at % len(glyph)], style) for at, (glyph, style) in enumerate(cells)),
            key=lambda cell: cell[1],
        )
        rows.append([("".join(glyph for glyph, _ in run), style) for style, run in runs])
    return rows


def _line_at(index: int, break_even: float | None, scale: _Scale, signs: Glyphs) -> Piece:
    """What an empty cell of this row shows. Two signs take turns where both lines are here."""
    rule = index == scale.row_of(RULE_OF_THUMB)
    measured = break_even is not None and index == scale.row_of(break_even)
    if rule and measured:
        return signs.measured + signs.rule, STRONG
    if measured:
        return signs.measured, STRONG
    # In the lowest row of a coarse scale it would pass for the zero line: its label is enough.
    drawn = rule and (index > 0 or scale.unit <= RULE_OF_THUMB)
    return (signs.rule, MUTED) if drawn else (" ", "")


def _column(bar: Bar, break_even: float | None, scale: _Scale, signs: Glyphs) -> list[Piece]:
    """One bar's cells from the bottom up."""
    if not bar.drafted:
        return [(signs.plain, MUTED)]
    if bar.value is None:
        return [("?", MUTED)]
    if bar.value <= 0:
        return [(signs.rejected, BAD)]
    below = break_even is not None and bar.value < break_even
    style = BAD if below else ACCENT if break_even is None else GOOD
    height = bar.value / scale.unit
    full = min(scale.rows, int(height + 1e-9))
    rest = height - full
    cells = [(signs.bad if below else signs.good, style)] * full
    if full < scale.rows and (rest > 1 / 16 or not full):
        if below:
            cells.append((signs.bad if rest >= 0.75 else signs.bad_half, style))
        else:
            cells.append((signs.levels[max(0, round(rest * len(signs.levels)) - 1)], style))
    return cells


class CycleView(Panel):
    """The chart of a live state, or of bars given by `show`."""

    _chart: Chart | None = None

    def show(self, chart: Chart) -> None:
        """Draw this chart from now on, whatever `sync` says."""
        self._chart = chart
        self.refresh()

    def lines(self, live: Live, width: int, height: int) -> list[Content]:
        """The latest cycles."""
        return chart_lines(chart_of(live, width), width, height, self._signs)

    def render(self) -> Content:
        """The chart."""
        if self._chart is None:
            return super().render()
        width, height = self.content_size
        if width < 1 or height < 1:
            return Content("")
        return Content("\n").join(chart_lines(self._chart, width, height, self._signs))
