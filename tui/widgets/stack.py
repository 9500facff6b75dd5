"""The blocks of a conversation, one under the other: rows to characters and back."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from specctl.tui.state import Turn
from specctl.tui.widgets.flow import Line, Overlay
from specctl.tui.widgets.turnblock import Mode, Section, TurnBlock

_UNCOPIED = ("ghost", "fold")
NEVER = 1 << 60  # a row that no transcript reaches


class Place(NamedTuple):
    """A character: block, section, line, and where in the line."""

    block: int
    section: int
    line: int
    start: int


class RowOf(NamedTuple):
    """What a row of the transcript shows."""

    block: int
    section: Section
    line: int
    part: int  # the how-manieth row of the line

    @property
    def source(self) -> Line:
        """The line it is cut from."""
        return self.section.flow.lines[self.line]

    @property
    def start(self) -> int:
        """Where in the line it starts."""
        return self.source.rows[self.part]

    @property
    def end(self) -> int:
        """Where in the line it ends."""
        return self.source.end(self.part)

    @property
    def first(self) -> bool:
        """Is it the first of its section?"""
        return self.line == 0 and self.part == 0


class Stack:
    """Keeps a block for each turn and knows where each stands."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.blocks: list[TurnBlock] = []
        self.tops: list[int] = []
        self._settled = 0  # blocks before this one do not change any more
        self._needle: re.Pattern[str] | None = None
        self._hits: dict[int, tuple[int, list[tuple[int, int]]]] = {}

    # ------------------------------------------------------------ what comes in

    @property
    def height(self) -> int:
        """Rows of the whole."""
        return self.tops[-1] + self.blocks[-1].height if self.blocks else 0

    def match(self, turns: Sequence[Turn]) -> int:
        """A block for each turn; the first row that is another now, or `NEVER`."""
        blocks = self.blocks
        same, shared = 0, min(len(turns), len(blocks))
        while same < shared and turns[same] is blocks[same].turn:
            same += 1
        first = NEVER
        if same < len(blocks):
            first = self.tops[same]
            del blocks[same:], self.tops[same:]
            self._settled = min(self._settled, same)
        for turn in turns[same:]:
            first = min(first, self.height)
            self.tops.append(self.height + (self.mode.gap if blocks else 0))
            blocks.append(TurnBlock(turn, self.mode))
        return first

    def update(self, note: str) -> int:
        """Take in what came; the first row that is another now, or `NEVER`.

        `note` is what the last turn says while it has no text.
        """
        first = NEVER
        last = len(self.blocks) - 1
        for index in range(self._settled, last + 1):
            block = self.blocks[index]
            changed = block.update(note if index == last else "")
            if changed is not None:
                first = min(first, self.tops[index] + changed)
                if index < last:
                    self.restack()
            if index == self._settled and block.turn.done:
                self._settled += 1
        return first

    def use(self, mode: Mode) -> None:
        """Another mode: wrap all anew, or build all anew where more than sizes changed."""
        old, self.mode = self.mode, mode
        sizes = {"width": mode.width, "gap": mode.gap}
        same = all(
            getattr(old, name) == getattr(mode, name)
            for name in Mode.__dataclass_fields__
            if name not in sizes
        )
        for block in self.blocks:
            if same:
                block.rewrap(mode)
            else:
                block.rebuild(mode)
        self._settled = 0
        self._hits.clear()
        self.restack()

    def restack(self) -> None:
        """Put every block under the one before it."""
        top = 0
        for index, block in enumerate(self.blocks):
            self.tops[index] = top
            top += block.height + self.mode.gap

    # ------------------------------------------------------------ rows and places

    def row(self, row: int) -> RowOf | None:
        """What stands in a row; None for a blank one."""
        index = bisect_right(self.tops, row) - 1
        if index < 0:
            return None
        block = self.blocks[index]
        section = block.section_at(row - self.tops[index])
        if section is None:
            return None
        inside = row - self.tops[index] - section.top
        if inside >= section.flow.height:
            return None
        return RowOf(index, section, *section.flow.locate(inside))

    def place_of(self, row: int) -> Place | None:
        """The first character from a row on."""
        for candidate in range(row, min(row + 4, self.height)):
            found = self.row(candidate)
            if found is not None and found.section in (sections := self._sections(found.block)):
                index = next(i for i, s in enumerate(sections) if s is found.section)
                return Place(found.block, index, found.line, found.start)
        return None

    def row_of(self, place: Place) -> int:
        """The row that shows a character, or one near it where it is gone."""
        if place.block >= len(self.blocks):
            return self.height
        sections = self._sections(place.block)
        if not sections:
            return self.tops[place.block]
        section = sections[min(place.section, len(sections) - 1)]
        line = min(place.line, len(section.flow.lines) - 1)
        top = self.tops[place.block] + section.top
        return top + section.flow.row_of(line, place.start)

    def _sections(self, block: int) -> list[Section]:
        return self.blocks[block].sections

    # ------------------------------------------------------------ copying

    def copy(self, first: int, last: int, places: Callable[[int, RowOf], tuple[int, int]]) -> str:
        """The text of rows first … last, unwrapped; rejected drafts are no part of it.

        `places` says which stretch of a row's line is meant.
        """
        out: list[str] = []
        before: Line | None = None
        for number in range(max(0, first), min(last, self.height - 1) + 1):
            row = self.row(number)
            if number > first and (row is None or row.source is not before):
                out.append("\n")
            before = None
            if row is not None:
                before = row.source
                start, end = places(number, row)
                text = _without_remarks(before, start, end)
                out.append(text.rstrip() if end >= len(before.text) else text)
        return "".join(out)

    # ------------------------------------------------------------ search

    def seek(self, text: str) -> None:
        """What to look for, whatever its case; nothing where it is empty."""
        self._needle = re.compile(re.escape(text), re.IGNORECASE) if text else None
        self._hits.clear()

    def matches(self) -> list[Place]:
        """Every place of what is looked for, top to bottom."""
        if self._needle is None:
            return []
        return [
            Place(block_index, section_index, line_index, start)
            for block_index, block in enumerate(self.blocks)
            for section_index, section in enumerate(block.sections)
            for line_index, line in enumerate(section.flow.lines)
            for start, _ in self._hits_in(line)
        ]

    def overlays(self, row: RowOf, current: Place | None) -> list[Overlay]:
        """The matches in a row's line."""
        if self._needle is None:
            return []
        chosen = -1
        if current is not None and current.block == row.block and current.line == row.line:
            sections = self._sections(row.block)
            if current.section < len(sections) and sections[current.section] is row.section:
                chosen = current.start
        return [
            (start, end, "current" if start == chosen else "match")
            for start, end in self._hits_in(row.source)
        ]

    def _hits_in(self, line: Line) -> list[tuple[int, int]]:
        """(start, end) of matches in a line, found across the rejected drafts in it."""
        assert self._needle is not None
        size, hits = self._hits.get(id(line), (-1, []))
        if size == len(line.text):
            return hits
        if any(look == "ghost" for _, look in line.marks):
            text, places = line.without("ghost")
            hits = [
                (places[match.start()], places[match.end() - 1] + 1)
                for match in self._needle.finditer(text)
            ]
        else:
            hits = [match.span() for match in self._needle.finditer(line.text)]
        self._hits[id(line)] = (len(line.text), hits)
        return hits


def _without_remarks(line: Line, start: int, end: int) -> str:
    """line.text[start:end] but for what is not the text itself."""
    parts: list[str] = []
    left = 0
    for right, look in line.marks:
        if look not in _UNCOPIED:
            parts.append(line.text[max(left, start) : min(right, end)])
        left = right
        if left >= end:
            break
    return "".join(parts)
