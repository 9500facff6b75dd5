"""One line: what runs, how it drafts, where, and how full it is."""

from __future__ import annotations

import re

from rich.cells import cell_len
from textual.content import Content

from specctl.tui import words
from specctl.tui.state import Live
from specctl.tui.widgets.glyphs import (
    ACCENT,
    BAD,
    MUTED,
    STRONG,
    UNICODE,
    WARN,
    Glyphs,
    Panel,
    Piece,
    clean,
    cut,
    cut_middle,
    line,
    spelled,
)

_GAP = "   "
_LEAST_NAME = 24  # cells that a model's name keeps as long as something else can go
_LEAST_BESIDE = 12  # and beside the spec type
_DRAFTING = 2  # the spec type's place on the line
_BOTH = 34  # cells from which the draft model is named too


def short_name(name: str) -> str:
    """`/models/Qwen3-8B-Q4_K_M-00001-of-00002.gguf` → `Qwen3-8B-Q4_K_M`."""
    base = re.split(r"[/\\]", clean(name))[-1]
    return re.sub(r"(-\d{5}-of-\d{5})?\.gguf$", "", base)


def drafting(live: Live) -> str:
    """`draft-simple K 4`, `auto K ≤ 48`, `speculation off`: spec type and K in force.

    `auto` drafts what it thinks pays, so what is set is only its most.
    """
    types = ",".join(live.spec_types) or "none"
    if types == "none":
        return "speculation off"
    if live.k:
        return f"{types} K {'≤ ' * ('auto' in live.spec_types)}{live.k}"
    return f"{types} K ≤ {live.k_max}" if live.k_max else types


def header_line(
    live: Live, width: int, signs: Glyphs = UNICODE, recording: bool = False, state: str = ""
) -> Content:
    """At most `width` cells. `state` is a word such as `paused`. What matters least goes first."""
    ready, gauges = live.ready, live.gauges
    # by rank: what is left out last comes first; then the place on the line
    parts: list[tuple[int, Piece]] = []
    if ready is not None:
        parts.append((_DRAFTING, (drafting(live), ACCENT)))
    if recording:
        parts.append((6, (f"{signs.rec} REC", BAD)))
    if state:
        parts.append((7, (state, WARN)))
    if live.n_ctx:
        full = words.context_warning(live.held, live.n_ctx)
        parts.append((5, (f"ctx {live.held}/{live.n_ctx}", WARN if full else "")))
    if gauges.vram_used is not None:
        full = words.vram_warning(gauges.vram_used, gauges.vram_total)
        used = words.bytes_of(gauges.vram_used, gauges.vram_total)
        parts.append((4, (f"VRAM {used}", WARN if full else "")))
    if ready is not None and ready.device:
        parts.append((3, (clean(ready.device), "")))
    name = spelled(_names(live), signs)
    alone = name.rpartition(" + ")[0] + " +" if ready is not None and ready.draft_model else name
    left = width - 1
    kept: list[tuple[int, Piece]] = []
    for place, piece in parts:
        size = cell_len(spelled(piece[0], signs)) + len(_GAP)
        least = _LEAST_NAME if place > _DRAFTING else _LEAST_BESIDE
        if left - size >= min(cell_len(alone), least):
            kept.append((place, piece))
            left -= size
    if left >= cell_len(name) + len("specctl") + len(_GAP):
        kept.append((0, ("specctl", STRONG)))
        left -= len("specctl") + len(_GAP)
    draft = ready.draft_model if ready is not None else None
    shown = _fitted(name, bool(draft), left, signs)
    kept.append((1, (shown, STRONG if ready is not None else MUTED)))
    pieces: list[Piece] = [(" ", "")]
    for _, piece in sorted(kept):
        if len(pieces) > 1:
            pieces.append((_GAP, ""))
        pieces.append(piece)
    return line(pieces, width, signs)


def _names(live: Live) -> str:
    if live.ready is None:
        return "no model" if live.phase == "failed" else "opening the model"
    name = short_name(live.ready.model)
    return f"{name} + {short_name(live.ready.draft_model)}" if live.ready.draft_model else name


def _fitted(name: str, has_draft: bool, width: int, signs: Glyphs) -> str:
    """Both names shortened alike; a name's end tells its quantisation."""
    if cell_len(name) <= width or not has_draft:
        return cut_middle(name, max(0, width), signs)
    model, _, draft = name.rpartition(" + ")
    if width < _BOTH:
        return cut_middle(model, max(0, width - 2), signs) + (" +" if width > 2 else "")
    room = width - 3
    of_draft = min(cell_len(draft), max(room // 2, room - cell_len(model)))
    short = cut_middle(draft, of_draft, signs)
    return f"{cut_middle(model, room - cell_len(short), signs)} + {cut(short, of_draft, signs)}"


class Header(Panel):
    """The line of a live state."""

    DEFAULT_CSS = """
    Header { height: 1; }
    """

    recording: bool = False
    state: str = ""

    def tell(self, *, recording: bool | None = None, state: str | None = None) -> None:
        """What the state does not know; None leaves it as it is."""
        before = (self.recording, self.state)
        self.recording = self.recording if recording is None else recording
        self.state = self.state if state is None else state
        if before != (self.recording, self.state):
            self.refresh()

    def lines(self, live: Live, width: int, height: int) -> list[Content]:
        """The line."""
        return [header_line(live, width, self._signs, self.recording, self.state)]
