"""Why it drafts as it does: decisions and notes, the newest at the bottom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from specctl.tui.state import Live, LogLine
from specctl.tui.widgets.glyphs import (
    BAD,
    MUTED,
    STRONG,
    UNICODE,
    WARN,
    Glyphs,
    Panel,
    clean,
    cut,
    line,
    spelled,
)
from specctl.tui.words import kind_of

_GUTTER = 6  # the cycle's index, or what kind of line it is
_MOST_LINES = {"decision": 2, "note": 3, "warning": 3, "error": 3}  # what is longer is cut
_TITLED = 4  # lines from which there is a title


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the log and how often lines of its kind were there since the last note."""

    line: LogLine
    count: int = 1


def folded(log: Iterable[LogLine]) -> list[Entry]:
    """Decisions of one kind (the same but for figures) in their latest form, with their number.

    A controller that goes to and fro between two choices is two entries, not hundreds. Notes,
    errors and a new answer (its cycles count from 0) begin anew.
    """
    entries: list[Entry] = []
    recent: dict[str, Entry] = {}
    last = -1
    for logged in log:
        if logged.kind != "decision" or (logged.cycle or 0) < last:
            entries += recent.values()
            recent = {}
        if logged.kind != "decision":
            entries.append(Entry(logged))
            last = -1
            continue
        last = logged.cycle or 0
        kind = kind_of(logged.text)
        before = recent.pop(kind, None)  # a dict keeps order: the latest goes to its end
        recent[kind] = Entry(logged, 1 if before is None else before.count + 1)
    return [*entries, *recent.values()]


def log_lines(
    log: Sequence[LogLine],
    width: int,
    height: int,
    signs: Glyphs = UNICODE,
    decides: bool = True,
) -> list[Content]:
    """The latest lines that fit, with a title where there is room.

    `decides` False: it is somebody else's server, whose decisions nobody sees.
    """
    titled = height >= _TITLED
    room = height - titled
    lines: list[Content] = []
    for entry in reversed(folded(log)):
        if len(lines) >= room:
            break
        lines[:0] = _entry_lines(entry, width, signs)
    if not lines:
        lines = [line([("no decisions yet" if decides else "–", MUTED)], width, signs)]
    head = [("decisions", STRONG), ("  cycle, why, how often", MUTED)]
    title = [line(head if decides else [("notes", STRONG)], width, signs)] if titled else []
    return title + lines[max(0, len(lines) - room) :]


def _entry_lines(entry: Entry, width: int, signs: Glyphs) -> list[Content]:
    logged = entry.line
    style = {"decision": "", "note": MUTED, "warning": WARN, "error": BAD}[logged.kind]
    mark = logged.kind.removesuffix("ing") if logged.cycle is None else str(logged.cycle)
    text = spelled(clean(logged.text), signs)
    gutter = f"{mark:>{_GUTTER - 1}} " if width >= 3 * _GUTTER else ""
    if not gutter and logged.kind == "error":
        text = f"error: {text}"
    room = width - len(gutter)
    times = f" ×{entry.count}" if entry.count > 1 else ""
    for words in (" per cycle", " accepted"):  # the decision's figures count, not its words
        if logged.kind == "decision" and cell_len(text) + len(times) > room:
            text = text.replace(words, "")
    parts = _wrapped(text, max(1, room - len(times)), _MOST_LINES[logged.kind], signs)
    lines = []
    for index, part in enumerate(parts):
        first, last = index == 0, index == len(parts) - 1
        pieces = [(gutter if first else " " * len(gutter), style or MUTED), (part, style)]
        lines.append(line([*pieces, (times if last else "", MUTED)], width, signs))
    return lines


def _wrapped(text: str, width: int, most: int, signs: Glyphs) -> list[str]:
    """At word borders, in at most `most` lines."""
    lines: list[str] = []
    left = text
    while left and len(lines) < most - 1 and cell_len(left) > width:
        taken = ""
        for word in left.split(" "):
            longer = f"{taken} {word}" if taken else word
            if cell_len(longer) > width:
                break
            taken = longer
        if not taken:
            break
        lines.append(taken)
        left = left[len(taken) :].lstrip()
    return [*lines, cut(left, width, signs)] if left else lines or [""]


class LogView(Panel):
    """The log of a live state."""

    def lines(self, live: Live, width: int, height: int) -> list[Content]:
        """The latest."""
        return log_lines(list(live.log), width, height, self._signs, not live.only_sums)
