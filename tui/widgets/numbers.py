"""The numbers beside the answer: the most telling first, as many lines as there is room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from textual.content import Content

from specctl.events import Cycle
from specctl.metrics import VERIFY_RULE, WINDOW, Totals
from specctl.tui import words
from specctl.tui.state import Live
from specctl.tui.widgets.glyphs import (
    ACCENT,
    BAD,
    GOOD,
    MUTED,
    STRONG,
    UNICODE,
    WARN,
    Chunk,
    Glyphs,
    Panel,
    Piece,
    line,
    row,
)
from specctl.units import number, percent

_STANDING = {"above": GOOD, "at": WARN, "below": BAD, None: MUTED}
_LOW, _HIGH = VERIFY_RULE
_CYCLE = "cycle "
_COMPARABLE = 16  # tokens that each way must have written


@dataclass(frozen=True, slots=True)
class _View:
    """What all lines are made of; `now` and `cycles` are the same stretch."""

    live: Live
    now: Totals
    cycles: Sequence[Cycle]
    width: int
    signs: Glyphs
    keys: bool

    @property
    def style(self) -> str:
        """The colour of the standing."""
        off = self.live.spec_types in words.PLAINLY
        return MUTED if off else _STANDING[self.now.standing]


def number_lines(
    live: Live,
    width: int,
    height: int,
    signs: Glyphs = UNICODE,
    now: Totals | None = None,
    keys: bool = True,
) -> list[Content]:
    """At most `height` lines of at most `width` cells.

    `now`: another stretch than `live.shown()`. `keys` False: nothing is said about keys (replay).
    """
    cycles = list(islice(reversed(live.cycles), WINDOW))[::-1]
    view = _View(live, live.shown()[0] if now is None else now, cycles, width, signs, keys)
    if height == 1:
        return [_short(view)]
    if height == 2:
        return [_standing(view), _speed_and_acceptance(view)]
    lines = [_standing(view), *_warnings(view)]
    for part in _PARTS:
        made = part(view)
        if made is not None:
            lines.append(made)
    return lines[:height]


def _sentence(view: _View, width: int) -> str:
    live = view.live
    if not view.now.cycles and not view.now.emitted:
        if live.ready is None:
            return "no model" if live.phase == "failed" else "opening the model"
        if live.phase == "prompt":
            return "reading the prompt"
    return words.standing_sentence(view.now, live.spec_types, view.cycles, width, view.keys)


def _row(view: _View, chunks: Sequence[Chunk], gap: str = "   ") -> Content:
    return row(chunks, view.width, view.signs, gap)


def _short(view: _View) -> Content:
    """Everything in one line: whether it pays, tok/s, α with its coverage."""
    room = view.width - 12  # tok/s are never left out
    word = _sentence(view, min(room, 36))
    chunks: list[Chunk] = [[(word, view.style)], [(_speed_now(view), STRONG)]]
    if view.now.drafted:
        chunks.append([(words.acceptance(view.now), "")])
    else:
        chunks.append([(_plain(view.live), MUTED)])
    return _row(view, chunks, f" {view.signs.dot} ")


def _standing(view: _View) -> Content:
    return line(
        [(_sentence(view, view.width), f"{view.style} bold".strip())], view.width, view.signs
    )


def _warnings(view: _View) -> list[Content]:
    live = view.live
    found = (
        words.vram_warning(live.gauges.vram_used, live.gauges.vram_total),
        words.context_warning(live.held, live.n_ctx),
    )
    return [line([(text, WARN)], view.width, view.signs) for text in found if text]


def _speed_now(view: _View) -> str:
    """Of the last cycles while it writes, else of the whole answer."""
    live = view.live
    totals = view.now if live.phase == "writing" else live.answer
    return f"{number(totals.tokens_per_second, '.1f')} tok/s"


def _plain(live: Live) -> str:
    """A server's plain speed is what the user says, not what was measured."""
    return words.plain_speed(live.t_1, given=live.only_sums)


def _speed(view: _View) -> Content:
    live = view.live
    chunks: list[Chunk] = [[(_speed_now(view), STRONG)]]
    chunks.append([(_plain(live), "" if live.t_1 else MUTED)])
    if live.phase == "writing" and live.turns:
        chunks[0] = [(_speed_now(view), STRONG), (" now", MUTED)]
        mean = number(live.answer.tokens_per_second, ".1f")
        chunks.append([(f"this answer {mean}", "")])
    chunks.append([(live.shown()[1], MUTED)])
    return _row(view, chunks)


def _off_and_on(view: _View) -> Content | None:
    """Both ways side by side, once each has written enough: measured, but on different text."""
    off, on = view.live.off, view.live.on
    if min(off.emitted, on.emitted) < _COMPARABLE:
        return None
    slow, fast = (number(one.tokens_per_second, ".1f") for one in (off, on))
    name, figures = "speculation ", f"off {slow}, on {fast} tok/s"
    counts, long = f"over {off.emitted} and {on.emitted} tokens", "measured, not the same text"
    forms = (
        (name, figures, counts, long),
        (name, figures, long),
        (name, figures, "other text"),
        ("", figures, "other text"),
    )
    gap = 3  # of `_row`
    fitting = (form for form in forms if sum(map(len, form)) + gap * (len(form) - 2) <= view.width)
    head, figures, *rest = next(fitting, forms[-1])
    chunks: list[Chunk] = [[(head, MUTED), (figures, STRONG)], *([(text, MUTED)] for text in rest)]
    return _row(view, chunks, " " * gap)


def _speed_and_acceptance(view: _View) -> Content:
    return _row(
        view,
        [
            [(_speed_now(view), STRONG)],
            [(words.acceptance(view.now), "")],
            [(_plain(view.live), MUTED)],
        ],
    )


def _acceptance(view: _View) -> Content:
    now = view.now
    chunks: list[Chunk] = [
        [(words.acceptance(now), "")],
        [(f"K {number(now.mean_draft_length, '.1f')}", "")],
        [(f"α×K {number(now.accepted_per_cycle)}", "")],
        [(f"tokens/pass {number(now.tokens_per_pass)}", "")],
    ]
    if not now.exact:
        chunks.append([("sums mixed or derived", WARN)])
    return _row(view, chunks)


def _split(view: _View) -> Content | None:
    """A cycle's time as one bar, and verification against the guides' band."""
    now, signs = view.now, view.signs
    draft, verify = now.draft_share, now.verify_share
    if draft is not None and verify is None:
        return _row(view, [[(f"draft {percent(draft)} of the time", "")]])
    if view.live.only_sums:
        return None  # a server does not tell
    if draft is None or verify is None:
        return _row(view, [[("cycle time not measured", MUTED)]])
    shares = (draft, verify, max(0.0, 1 - draft - verify))
    styles = (ACCENT, "", MUTED)
    legend: list[Piece] = []
    for name, share, sign, style in zip(
        ("draft", "verify", "rest"), shares, signs.split, styles, strict=True
    ):
        legend += [(f"{sign} ", style), (f"{name} {percent(share)}  ", "")]
    legend[-1] = (legend[-1][0].rstrip(), "")
    size = sum(len(text) for text, _ in legend)
    outside = bool(now.drafted) and not _LOW <= verify <= _HIGH
    rule = f"rule: verify {_LOW * 100:.0f}–{_HIGH * 100:.0f} %"
    rule = f"outside the {rule}" if outside else rule
    chunks: list[Chunk] = []
    room = view.width - size - 2 - len(_CYCLE)
    if outside or room >= len(rule) + 10:
        room -= len(rule) + 2
    if room >= 8:
        cells = min(room, 24)
        ends = [round(sum(shares[: i + 1]) * cells) for i in range(3)]
        starts = [0, *ends[:2]]
        bar: list[Piece] = [
            (sign * (end - start), style)
            for sign, start, end, style in zip(signs.split, starts, ends, styles, strict=True)
        ]
        chunks.append([(_CYCLE, ""), *bar])
    chunks += [legend, [(rule, WARN if outside else MUTED)]]
    return _row(view, chunks, "  ")


def _positions(view: _View) -> Content:
    """Acceptance by position over the answer: a curve, figures, and how many cycles they are of."""
    live = view.live
    totals = live.answer if live.turns else live.totals
    shares = totals.acceptance_by_position
    if not shares and totals.acceptance_of_drafted:
        return _of_drafted(view, totals)
    if not shares:
        return _row(view, [[("by position –", MUTED)]])
    chunks: list[Chunk] = [[("by position", "")]]
    room = view.width - 13
    levels = view.signs.levels
    if len(levels) == 8 and len(shares) > 1:
        curve = "".join(
            levels[max(0, round(share * 8) - 1)] for share in shares[: max(4, room // 4)]
        )
        chunks.append([(curve, ACCENT)])
        room -= len(curve) + 1
    figures = [_figure(share) for share in shares]
    counts = [str(count) for count in totals.drafted_at[: len(shares)]]
    shown = len(figures)
    while shown > 1 and not _fits(figures[:shown], counts[:shown], room):
        shown -= 1
    chunks.append([(" ".join(figures[:shown]), "")])
    chunks.append([("of " + " ".join(counts[:shown]), MUTED)])
    return _row(view, chunks, " ")


def _of_drafted(view: _View, totals: Totals) -> Content:
    """Over all drafted passes, where a source does not say how many drafted that far."""
    figures = [_figure(share) for share in totals.acceptance_of_drafted]
    head, tail = "by position", f"of all {totals.drafted_cycles} drafts"
    while len(figures) > 1 and len(f"{head} {' '.join(figures)} {tail}") > view.width:
        figures.pop()
    return _row(view, [[(head, "")], [(" ".join(figures), "")], [(tail, MUTED)]], " ")


def _fits(figures: Sequence[str], counts: Sequence[str], room: int) -> bool:
    return sum(len(text) + 1 for text in (*figures, *counts)) + 2 <= room


def _figure(share: float) -> str:
    """`.88`, and `1.0` as wide."""
    text = f"{share:.2f}"
    return text[1:] if text.startswith("0") else text[:3]


def _context(view: _View) -> Content | None:
    live, signs = view.live, view.signs
    if not live.n_ctx and live.intervals:
        return None
    if not live.n_ctx:
        return _row(view, [[("context –", MUTED)]])
    share = min(1.0, live.held / live.n_ctx)
    text = f"context {live.held} of {live.n_ctx}"
    cells = min(20, view.width - len(text) - 8)
    used = min(cells, round(share * cells))
    style = WARN if share >= words.FULL_CONTEXT else ""
    chunks: list[Chunk] = [[(text, style)]]
    if cells >= 4:
        bar = [(signs.meter[0] * used, style or ACCENT), (signs.meter[1] * (cells - used), MUTED)]
        chunks.append([*bar, (f" {percent(share)}", style)])
    return _row(view, chunks, "  ")


def _gain(view: _View) -> Content | None:
    live = view.live
    chunks: list[Chunk] = []
    if live.totals.known_t_c and live.totals.drafted:
        seconds = live.totals.net_gain
        chunks.append(
            [
                ("net gain against plain ", ""),
                (words.gain(seconds), GOOD if seconds >= 0 else BAD),
                (" since the start", MUTED),
            ]
        )
    read = live.prompt_tokens - 1 - live.reused_tokens  # the last token is the first cycle's
    if live.phase == "prompt":
        chunks.append([(f"reading {live.prompt_tokens} prompt tokens", MUTED)])
    elif live.prompt_seconds and read > 0:
        chunks.append([(f"prompt {read / live.prompt_seconds:.0f} tok/s", "")])
    return _row(view, chunks) if chunks else None


def _machine(view: _View) -> Content | None:
    gauges = view.live.gauges
    chunks: list[Chunk] = []
    if gauges.vram_used is not None:
        full = words.vram_warning(gauges.vram_used, gauges.vram_total)
        text = f"VRAM {words.bytes_of(gauges.vram_used, gauges.vram_total)}"
        chunks.append([(text, WARN if full else "")])
    if gauges.gpu_load is not None:
        chunks.append([(f"GPU {percent(gauges.gpu_load)}", "")])
    if gauges.ram_used is not None:
        chunks.append([(f"RAM {words.bytes_of(gauges.ram_used, gauges.ram_total)}", "")])
    return _row(view, chunks) if chunks else None


def _sources(view: _View) -> Content | None:
    """Who drafted, where there is a choice."""
    if not view.cycles:
        return None
    counts = Counter(cycle.source or "plain" for cycle in view.cycles)
    if len(counts) < 2 and view.live.spec_types != ("auto",):
        return None
    named: list[Chunk] = [[(f"{who} {count}", "")] for who, count in counts.most_common()]
    named[0] = [(f"last {len(view.cycles)} cycles: ", MUTED), *named[0]]
    return _row(view, named, f" {view.signs.dot} ")


_PARTS: tuple[Callable[[_View], Content | None], ...] = (
    _speed,
    _off_and_on,
    _acceptance,
    _split,
    _positions,
    _context,
    _gain,
    _sources,
    _machine,
)


class Numbers(Panel):
    """The numbers of a live state. `keys` False: nothing is said about keys."""

    keys: bool = True

    def lines(self, live: Live, width: int, height: int) -> list[Content]:
        """As many as there is room for."""
        return number_lines(live, width, height, self._signs, keys=self.keys)
