"""A table of the latest intervals of a watched server: what stands where a chat has its text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual.content import Content

from specctl.events import Interval
from specctl.metrics import Totals, fold
from specctl.tui import words
from specctl.tui.state import Live
from specctl.tui.widgets.glyphs import (
    BAD,
    GOOD,
    MUTED,
    STRONG,
    UNICODE,
    WARN,
    Glyphs,
    Panel,
    Piece,
    line,
)
from specctl.units import number, percent

_STYLES = {"above": GOOD, "at": WARN, "below": BAD, None: ""}


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    width: int
    text: Callable[[Interval, Totals], str]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


# In order of what is shown; what does not fit is left out from the end.
_COLUMNS = (
    _Column("at", 7, lambda i, _: _clock(i.clock)),
    _Column("tok/s", 7, lambda _, t: number(t.tokens_per_second, ".1f")),
    _Column("α", 6, lambda _, t: number(t.acceptance_rate)),
    _Column("drafted", 8, lambda _, t: percent(t.coverage)),
    _Column("α×K", 6, lambda _, t: number(t.accepted_per_cycle)),
    _Column("K", 6, lambda _, t: number(t.mean_draft_length, ".1f")),
    _Column("tok/pass", 9, lambda _, t: number(t.tokens_per_pass)),
    _Column("× plain", 9, lambda _, t: words.times_faster(t)),
    _Column("tokens", 8, lambda _, t: str(t.emitted) if t.emitted_known else "–"),
)


def interval_lines(live: Live, width: int, height: int, signs: Glyphs = UNICODE) -> list[Content]:
    """A title and the latest intervals, the newest at the bottom."""
    if not live.intervals:
        return [line([("nothing generated yet: waiting for requests", MUTED)], width, signs)]
    columns: list[_Column] = []
    left = width
    for column in _COLUMNS:
        if column.width > left:
            break
        columns.append(column)
        left -= column.width
    heads = [(f"{column.title:>{column.width}}", MUTED) for column in columns]
    lines = [line(heads, width, signs)] if height > 1 else []
    recent = list(live.intervals)[-max(1, height - len(lines)) :]
    return [*lines, *(_row(interval, columns, width, signs) for interval in recent)]


def _row(interval: Interval, columns: list[_Column], width: int, signs: Glyphs) -> Content:
    totals = fold([interval])
    pieces: list[Piece] = []
    for column in columns:
        text = f"{column.text(interval, totals):>{column.width}}"
        style = {"at": MUTED, "tok/s": STRONG}.get(column.title, "")
        if column.title == "× plain":
            style = _STYLES[totals.standing]
        pieces.append((text, style))
    return line(pieces, width, signs)


class Intervals(Panel):
    """The table of a live state."""

    def lines(self, live: Live, width: int, height: int) -> list[Content]:
        """As many as there is room for."""
        return interval_lines(live, width, height, self._signs)
