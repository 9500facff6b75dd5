"""Growing text, made safe for a terminal and cut into rows of a width.

Knows neither widgets nor colours: text comes with the name of a look (or a ready style), rows go
out as pieces of (text, look). Adding text costs what is new, however long the text before it is:
greedy wrapping never changes a row that another one follows.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.cells import cell_len, split_graphemes
from rich.style import Style

Look = str | Style
Overlay = tuple[int, int, Look]  # start and end within a line, and what is laid over
Piece = tuple[str, Look, Look | None]  # text, look, overlay

TAB = 4
MIN_WIDTH = 2  # of a row: the widest character

_WORDS = re.compile(r" +|[^ ]+")
_SIMPLE = re.compile(r"[\x20-\x7e\xa0-\xac\xae-\u02ff\u0370-\u0482]*").fullmatch  # one cell each
_ZWJ, _VS16 = "\u200d", "\ufe0f"
# C0 but tab and newline, DEL and C1, line separators, bidi embeddings, overrides and isolates,
# format controls, and halves of surrogate pairs, which no terminal can be sent.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff]"
)


class Cleaner:
    """Replaces, visibly, what would steer a terminal. Tabs and newlines stay, CR LF becomes one.

    Fed piece by piece; a last character that needs its successor is held back until `finish`.
    Joiners stay only inside emoji: elsewhere terminals and `rich.cells` disagree on their width.
    """

    def __init__(self, plain: bool = False) -> None:
        self._plain = plain  # ASCII replacements
        self._held = ""
        self._last = ""

    def push(self, text: str) -> str:
        """The safe form of what is certain now."""
        text = self._held + text
        self._held = text[-1] if text.endswith(("\r", _ZWJ)) else ""
        return self._clean(text[: len(text) - len(self._held)])

    def finish(self) -> str:
        """The safe form of what was held back."""
        held, self._held = self._held, ""
        return self._clean(held)

    def _clean(self, text: str) -> str:
        if not text:
            return ""
        text = text.replace("\r\n", "\n")
        text = _UNSAFE.sub(self._replace, text)
        if _ZWJ in text:
            text = self._without_stray_joiners(text)
        self._last = text[-1:] or self._last
        return text

    def _replace(self, match: re.Match[str]) -> str:
        code = ord(match[0])
        if self._plain:
            return "^" + chr(code ^ 0x40) if code < 0x80 else "?"
        if code < 0x20:
            return chr(0x2400 + code)  # Unicode's control pictures
        return "\u2421" if code == 0x7F else "\ufffd"

    def _without_stray_joiners(self, text: str) -> str:
        kept: list[str] = []
        before = self._last
        for index, character in enumerate(text):
            after = text[index + 1 : index + 2]
            if character == _ZWJ and not (_is_emoji(before) and _is_emoji(after)):
                continue
            kept.append(character)
            before = character
        return "".join(kept)


def clean(text: str, plain: bool = False) -> str:
    """The safe form of a whole text."""
    cleaner = Cleaner(plain)
    return cleaner.push(text) + cleaner.finish()


def _is_emoji(character: str) -> bool:
    """Is it what emoji sequences are made of? Unassigned ones may be newer than our tables."""
    if character <= "\xff":
        return False
    return character == _VS16 or unicodedata.category(character) in ("So", "Sk", "Cn")


def clusters(text: str) -> list[tuple[int, int, int]]:
    """(start, end, cells) of everything that is drawn as one, with no gap between them.

    `rich.cells` and, beyond it, pairs of regional indicators: a flag.
    """
    spans = split_graphemes(text)[0]
    if not any("\U0001f1e6" <= character <= "\U0001f1ff" for character in text):
        return spans
    joined: list[tuple[int, int, int]] = []
    open_flag = False
    for start, end, cells in spans:
        regional = "\U0001f1e6" <= text[start] <= "\U0001f1ff"
        if regional and open_flag:
            joined[-1] = (joined[-1][0], end, joined[-1][2] + cells)
        else:
            joined.append((start, end, cells))
        open_flag = regional and not open_flag
    return joined


def _unbreakable(text: str, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(start, end, cells) of the parts of a word: between wide characters a row may end."""
    word = text[start:end]
    if _SIMPLE(word):
        yield start, end, end - start
        return
    first, cells = start, 0
    for left, right, width in clusters(word):
        if width > 1:
            if start + left > first:
                yield first, start + left, cells
            yield start + left, start + right, width
            first, cells = start + right, 0
        else:
            cells += width
    if first < end:
        yield first, end, cells


def wrap(text: str, start: int, width: int) -> list[int]:
    """Where rows of `width` cells start in text[start:], the first at `start`.

    Rows leave no gap. Spaces at a row's end may stand out and are not drawn; a word that does not
    fit moves to the next row, one longer than a row is cut.
    """
    rows = [start]
    if len(text) - start <= width and text.isascii():
        return rows
    column, blank = 0, True
    for match in _WORDS.finditer(text, start):
        if text[match.start()] == " ":
            column += match.end() - match.start()
            continue
        for left, right, cells in _unbreakable(text, *match.span()):
            fits = column + cells <= width
            if not fits and column and not (blank and column < width):
                rows.append(left)
                column = 0
                fits = cells <= width
            if fits:
                column += cells
            else:
                column = _cut_word(text, left, right, column, width, rows)
            blank = False
    return rows


def _cut_word(text: str, start: int, end: int, column: int, width: int, rows: list[int]) -> int:
    """Cut a word longer than a row; the column after it."""
    word = text[start:end]
    spans = [(i, i + 1, 1) for i in range(len(word))] if _SIMPLE(word) else clusters(word)
    for left, _, cells in spans:
        if column + cells > width:
            rows.append(start + left)
            column = 0
        column += cells
    return column


@dataclass(slots=True)
class Line:
    """What lies between two newlines: `marks` are (end, look), `rows` the starts of its rows."""

    text: str = ""
    marks: list[tuple[int, Look]] = field(default_factory=list)
    rows: list[int] = field(default_factory=lambda: [0])
    column: int = 0  # cells, for tabs

    def end(self, row: int) -> int:
        """Where a row ends."""
        return self.rows[row + 1] if row + 1 < len(self.rows) else len(self.text)

    def without(self, look: Look) -> tuple[str, list[int]]:
        """The text but for stretches of `look`, and where each of its characters stands."""
        text: list[str] = []
        places: list[int] = []
        start = 0
        for end, mark in self.marks:
            if mark != look:
                text.append(self.text[start:end])
                places.extend(range(start, end))
            start = end
        return "".join(text), places


class Flow:
    """Lines of text at one width. Only `feed`, `insert` and `finish` add, and only at the end."""

    def __init__(self, width: int, plain: bool = False) -> None:
        self.width = max(MIN_WIDTH, width)
        self.lines = [Line()]
        self.tops = [0]  # the first row of each line
        self._plain = plain
        self._cleaner = Cleaner(plain)
        self._last = -1  # the last line that is not empty
        self._fresh = True

    @property
    def height(self) -> int:
        """Rows; empty lines at the end are not counted."""
        return self.tops[self._last] + len(self.lines[self._last].rows) if self._last >= 0 else 0

    def feed(self, text: str, look: Look) -> None:
        """Add text of a model or a person."""
        self._write(self._cleaner.push(text), look)

    def insert(self, text: str, look: Look) -> None:
        """Add a remark that is no part of the text: one line, cleaned on its own."""
        self._append(clean(text, self._plain).replace("\n", " "), look)

    def finish(self, look: Look = "") -> None:
        """Add what was held back."""
        self._write(self._cleaner.finish(), look)

    def add_row(self, pieces: list[tuple[str, Look]]) -> None:
        """A line that is laid out already."""
        if not self._fresh:
            self._next_line()
        self._fresh = False
        line = self.lines[-1]
        line.text = "".join(text for text, _ in pieces)
        end = 0
        for text, look in pieces:
            end += len(text)
            line.marks.append((end, look))
        self._last = len(self.lines) - 1 if line.text.strip() else self._last

    def rewrap(self, width: int) -> None:
        """Another width: every line is cut anew."""
        self.width = max(MIN_WIDTH, width)
        top = 0
        for index, line in enumerate(self.lines):
            line.rows = wrap(line.text, 0, self.width)
            self.tops[index] = top
            top += len(line.rows)

    def locate(self, row: int) -> tuple[int, int]:
        """The line that a row belongs to, and its number there."""
        index = bisect_right(self.tops, row) - 1
        return index, row - self.tops[index]

    def row_of(self, line: int, place: int) -> int:
        """The row that shows a character."""
        return self.tops[line] + bisect_right(self.lines[line].rows, place) - 1

    def pieces(self, line: int, row: int, overlays: list[Overlay] | None = None) -> list[Piece]:
        """What is drawn of a row. No border lies inside of what is drawn as one."""
        source = self.lines[line]
        start, end = source.rows[row], source.end(row)
        end -= self._overhang(source.text[start:end])
        return list(_cut(source, start, end, overlays or []))

    def _overhang(self, text: str) -> int:
        """Spaces at the end that stand out."""
        if not text.endswith(" "):
            return 0
        spaces = len(text) - len(text.rstrip(" "))
        return max(0, min(spaces, cell_len(text) - self.width))

    def _write(self, text: str, look: Look) -> None:
        for number, part in enumerate(text.split("\n")):
            if number:
                self._next_line()
            self._append(part, look)

    def _next_line(self) -> None:
        self.tops.append(self.tops[-1] + len(self.lines[-1].rows))
        self.lines.append(Line())

    def _append(self, part: str, look: Look) -> None:
        if not part:
            return
        self._fresh = False
        line = self.lines[-1]
        if "\t" in part:
            part = _expand(part, line.column)
        line.column += cell_len(part)
        line.text += part
        if line.marks and line.marks[-1][1] == look:
            line.marks[-1] = (len(line.text), look)
        else:
            line.marks.append((len(line.text), look))
        line.rows[-1:] = wrap(line.text, line.rows[-1], self.width)
        self._last = len(self.lines) - 1


def _expand(text: str, column: int) -> str:
    """Tabs as spaces, the text beginning at `column`."""
    parts = text.split("\t")
    out = [parts[0]]
    column += cell_len(parts[0])
    for part in parts[1:]:
        spaces = TAB - column % TAB
        out += [" " * spaces, part]
        column += spaces + cell_len(part)
    return "".join(out)


def _cut(line: Line, start: int, end: int, overlays: list[Overlay]) -> Iterator[Piece]:
    """line.text[start:end] in pieces of one look and overlay each."""
    first = bisect_right(line.marks, start, key=lambda mark: mark[0])
    borders = {start, end}
    for place, _ in line.marks[first:]:
        if place >= end:
            break
        borders.add(place)
    for left, right, _ in overlays:
        borders.update(place for place in (left, right) if start < place < end)
    for left, right in _runs(line.text[start:end], start, sorted(borders)):
        mark = bisect_right(line.marks, left, key=lambda mark: mark[0])
        over = next((look for a, b, look in overlays if a <= left < b), None)
        yield line.text[left:right], line.marks[min(mark, len(line.marks) - 1)][1], over


def _runs(text: str, start: int, borders: list[int]) -> Iterator[tuple[int, int]]:
    """Between borders, each moved to the end of the cluster it lies in: its first part decides."""
    if len(borders) > 2 and not _SIMPLE(text):
        ends = [0, *(right for _, right, _ in clusters(text))]
        borders = sorted({start + ends[bisect_left(ends, border - start)] for border in borders})
    yield from itertools.pairwise(borders)
