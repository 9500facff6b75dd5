"""The signs that panels are drawn with, lines that keep to a width, and the widget around them.

A panel is a pure function from values and a size to lines of `Content`; its widget calls it when
the state has changed. Colours are theme variables, so every theme and NO_COLOR work; each sign has
an ASCII twin, and no meaning hangs on colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from textual.content import Content
from textual.widget import Widget

from specctl.tui.state import Live
from specctl.units import printable

GOOD, BAD, WARN = "$text-success", "$text-error", "$text-warning"
MUTED, STRONG, ACCENT = "$foreground-muted", "bold", "$text-primary"

Piece = tuple[str, str]  # text and its style
Chunk = Sequence[Piece]  # pieces that are shown whole or not at all


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Signs of one kind. `levels` are parts of a cell from the bottom, the last one full."""

    levels: str
    good: str  # a full cell of a bar above break-even
    bad: str  # and of one below
    bad_half: str
    rejected: str  # a draft of which nothing stood
    plain: str  # a cycle without a draft
    measured: str  # the break-even line
    rule: str  # the rule of thumb's line
    axis: str
    split: str  # draft, verify, rest of a cycle
    meter: str  # used, free
    ellipsis: str
    dot: str
    rec: str


UNICODE = Glyphs("▁▂▃▄▅▆▇█", "█", "▒", "░", "×", "·", "╌", "─", "▏", "▓▒░", "█░", "…", "·", "●")
ASCII = Glyphs(":#", "#", "o", "o", "x", ".", "=", "-", "|", "dv.", "#.", "...", "|", "*")

_SPELLED = str.maketrans(
    {
        "≈": "~",
        "×": "x",
        "–": "-",
        "…": "...",
        "α": "alpha",
        "τ": "tau",
        "·": "|",
        "→": "->",
        "≤": "<=",
        "≥": ">=",
        "µ": "u",
    }
)
_SAID = str.maketrans(
    {"▲": "+", "▼": "-", "▸": ">", "±": "+-", "↑": "^", "↓": "v", "“": '"', "”": '"', "−": "-"}
)


def glyphs(ascii_only: bool) -> Glyphs:
    """The set for a terminal."""
    return ASCII if ascii_only else UNICODE


def spelled(text: str, signs: Glyphs) -> str:
    """`text` in what the terminal can show; what has no spelling becomes `?`."""
    if signs is not ASCII or text.isascii():
        return text
    return text.translate(_SPELLED).encode("ascii", "replace").decode("ascii")


def said(text: str, signs: Glyphs) -> str:
    """As `spelled`, with the signs of tables and benchmarks too."""
    return spelled(text.translate(_SAID), signs) if signs is ASCII else text


def clean(text: str) -> str:
    """One line without control or direction characters, whoever wrote it (models, drivers)."""
    return printable(" ".join(text.split()))


def cut(text: str, width: int, signs: Glyphs = UNICODE) -> str:
    """`text` in at most `width` cells, its end replaced by an ellipsis."""
    if cell_len(text) <= width:
        return text
    room = width - len(signs.ellipsis)
    if room < 1:
        return set_cell_size(text, max(0, width)).rstrip()
    return set_cell_size(text, room).rstrip() + signs.ellipsis


def cut_middle(text: str, width: int, signs: Glyphs = UNICODE) -> str:
    """As `cut`, keeping both ends: file names differ at their end."""
    if cell_len(text) <= width or width < 8:
        return cut(text, width, signs)
    tail = (width - len(signs.ellipsis)) // 2
    end = text[-tail:]
    while cell_len(end) > tail:
        end = end[1:]
    head = set_cell_size(text, width - len(signs.ellipsis) - cell_len(end)).rstrip()
    return head + signs.ellipsis + end


def line(pieces: Iterable[Piece], width: int, signs: Glyphs = UNICODE) -> Content:
    """The pieces in one line of at most `width` cells."""
    shown: list[Piece] = []
    left = width
    for text, style in pieces:
        text = spelled(text, signs)
        if cell_len(text) > left:
            shown.append((cut(text, left, signs), style))
            break
        shown.append((text, style))
        left -= cell_len(text)
    return Content.assemble(*(piece for piece in shown if piece[0]))


def row(chunks: Iterable[Chunk], width: int, signs: Glyphs = UNICODE, gap: str = "   ") -> Content:
    """The first chunk, then each further one that still fits whole."""
    pieces: list[Piece] = []
    left = width
    for chunk in chunks:
        size = sum(cell_len(spelled(text, signs)) for text, _ in chunk)
        if pieces and size + len(gap) > left:
            continue
        if pieces:
            pieces.append((gap, ""))
            left -= len(gap)
        pieces += chunk
        left -= size
    return line(pieces, width, signs)


class Panel(Widget):
    """Draws `lines()` of the state it was last given. `ascii`: only ASCII signs.

    `sync` may be called as often as one likes: it draws only where the state has changed.
    """

    DEFAULT_CSS = """
    Panel { width: 1fr; height: 1fr; text-wrap: nowrap; text-overflow: clip; }
    """

    def __init__(
        self,
        *,
        ascii: bool = False,  # noqa: A002 - what the whole screen calls it
        id: str | None = None,  # noqa: A002 - Textual's name
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._signs = glyphs(ascii)
        self._live: Live | None = None
        self._version = -1

    def sync(self, live: Live) -> None:
        """Show this state."""
        if live is self._live and live.version == self._version:
            return
        self._live, self._version = live, live.version
        self.refresh()

    def lines(self, live: Live, width: int, height: int) -> list[Content]:
        """At most `height` lines of at most `width` cells."""
        raise NotImplementedError

    def render(self) -> Content:
        """All lines as one."""
        width, height = self.content_size
        if self._live is None or width < 1 or height < 1:
            return Content("")
        return Content("\n").join(self.lines(self._live, width, height))
