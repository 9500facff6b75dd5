"""Charts of a result as SVG: speed-up, accepted per cycle against break-even, positions.

Pure functions from a `Stored`; every figure is one of the document. Colours are classes, so that
`STYLE` can give each a light and a dark value; no colour is the only signal.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from specctl.bench import words
from specctl.bench.report import Speed
from specctl.bench.stored import Stored, StoredRow
from specctl.units import number

WIDTH = 900
_LEFT, _RIGHT = 216, 600  # the plot's edges; names stand left of it, words right
_LINE, _BAR = 25, 15  # heights of a row and of its bar
_PANEL = (212, 132)  # width and height of one arm's positions, with its title
FEW = 20  # cycles, below which a share is shown pale
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_COLOURS = {  # class → property, light, dark
    "page": ("fill", "#ffffff", "#0d1117"),
    "ink": ("fill", "#1f2328", "#f0f6fc"),
    "dim": ("fill", "#59636e", "#9198a1"),
    "grid": ("stroke", "#d8dee4", "#30363d"),
    "one": ("stroke", "#1f2328", "#f0f6fc"),
    "whisker": ("stroke", "#1f2328", "#f0f6fc"),
    "faster": ("fill", "#2da44e", "#3fb950"),
    "slower": ("fill", "#cf222e", "#f85149"),
    "same": ("fill", "#bf8700", "#d29922"),
    "none": ("fill", "#afb8c1", "#6e7681"),
    "good": ("fill", "#1a7f37", "#3fb950"),
    "bad": ("fill", "#cf222e", "#f85149"),
    "even": ("fill", "#9a6700", "#d29922"),
    "bar": ("fill", "#54aeff", "#388bfd"),
    "gain": ("stroke", "#2da44e", "#3fb950"),
    "loss": ("stroke", "#cf222e", "#f85149"),
}
_BAR_CLASS = {"faster": "faster", "slower": "slower", "no difference shown": "same"}
_WORD_CLASS = {"faster": "good", "slower": "bad", "no difference shown": "even"}


def _rules(which: int) -> str:
    return "".join(f".{name}{{{one[0]}:{one[which]}}}" for name, one in _COLOURS.items())


STYLE = (
    "svg text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;"
    "font-size:13px}svg .title{font-size:17px;font-weight:600}svg .bold{font-weight:600}"
    "svg .small{font-size:11.5px}.grid{stroke-width:1}.one{stroke-width:1.5}"
    ".whisker{stroke-width:1.3}.gain,.loss{stroke-width:5}.few{opacity:.4}"
    ".assumed{stroke-dasharray:2.5 2.5}"
    + _rules(1)
    + "@media(prefers-color-scheme:dark){"
    + _rules(2)
    + "}"
)


def clean(text: object) -> str:
    """Any text as it may stand in XML and HTML, in attributes too."""
    return html.escape(_NOT_XML.sub("\ufffd", str(text)), quote=True)


# ---------------------------------------------------------------- elements


def _text(x: float, y: float, what: object, kind: str = "ink", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{clean(what)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _box(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}"'
    return f'<rect {place} class="{kind}"><title>{clean(title)}</title></rect>'


def _svg(height: float, label: str, parts: Iterable[str]) -> str:
    size = f'width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{clean(label)}">'
        + "\n".join(parts)
        + "</svg>\n"
    )


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _name(x: float, y: float, name: str, most: int, kind: str = "ink") -> str:
    """A name cut to `most` characters; the whole of it shows under the mouse."""
    text = _text(x, y, _short(name, most), kind)
    return text.replace("</text>", f"<title>{clean(name)}</title></text>")


def _step(largest: float, most: int) -> float:
    """The smallest 1, 2 or 5 × 10^n that divides 0 … `largest` in at most `most` parts."""
    for exponent in range(-2, 16):
        for factor in (1, 2, 5):
            if largest / (factor * 10.0**exponent) <= most:
                return float(factor * 10.0**exponent)
    return largest


def _wrapped(text: str, most: int = 132) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _by_workload(rows: Sequence[StoredRow]) -> Iterator[tuple[str, list[StoredRow]]]:
    names = dict.fromkeys(row.workload for row in rows)
    for name in names:
        title = name or ("total" if len(names) > 1 else "all prompts")
        yield title, [row for row in rows if row.workload == name]


# ---------------------------------------------------------------- does it pay?


def picture(stored: Stored) -> str:
    """The speed-up chart as a file of its own: with its style, its ground and what was measured."""
    head = [_text(20, 32, "Speculative decoding against plain decoding, speed-up", "ink title")]
    head += [_name(20, 52, line, 120, "dim") for line in about(stored)]
    y = 62.0 + 18 * (len(head) - 1)
    body, y = _speedups(stored, y)
    for line in _wrapped(legend(stored)):
        body.append(_text(20, y, line, "dim small"))
        y += 15
    head = [
        part.replace('y="52.0"', f'y="{52 + 18 * index:.1f}"')
        for index, part in enumerate(head, -1)
    ]
    parts = [f"<style>{STYLE}</style>", _box(0, 0, WIDTH, y + 6, "page"), *head, *body]
    return _svg(y + 6, speech(stored), parts)


def speedups(stored: Stored) -> str:
    """Bars of every arm on every workload from 0, against the line of plain decoding at 1×."""
    body, height = _speedups(stored, 4.0)
    return _svg(height, speech(stored), body)


def about(stored: Stored) -> tuple[str, str]:
    """Two lines on what was measured."""
    with_draft = f" + {stored.draft.file}" if stored.draft else ""
    count, repeats = len(stored.prompts), stored.repeats
    cpu = stored.asked_from(str(stored.machine.get("cpu")))
    times = "once" if repeats == 1 else f"{repeats} times"
    return (
        f"{stored.model.file}{with_draft}",
        f"{count} prompt{'s' * (count != 1)}, {times} each, up to {stored.max_tokens} tokens · "
        f"{_engine(stored)}{cpu}, {stored.threads_said} · {stored.date[:10]}",
    )


def _engine(stored: Stored) -> str:
    """Whose figures these are, where not ours."""
    return f"{stored.served.title} · " if stored.served else ""


def speech(stored: Stored) -> str:
    """The totals in words, for who cannot see the bars."""
    return "; ".join(
        f"{row.arm} {number(row.speed.speedup, '.2f', '×')} ({word(stored, row)})"
        for row in stored.totals
    )


_SILENT = (words.NEVER, words.UNKNOWN)


def word(stored: Stored, row: StoredRow) -> str:
    """The verdict, as the table says it."""
    return words.verdict(row.speed, stored.never_drafted(row))


def legend(stored: Stored) -> str:
    """What the figures are."""
    speeds = [row.speed for row in stored.totals]
    assumed = any(speed.band_is_assumed for speed in speeds)
    whiskers = "Dashed whiskers: the assumed band." if assumed else "Whiskers: the spread."
    largest = max((speed.noise for speed in speeds), default=0.0)
    differing = words.differing(stored.totals)
    return " ".join((words.SPEED_UP, whiskers, words.noise(assumed, largest), differing))


def _band(speed: Speed) -> tuple[float, float] | None:
    """Ends of the whisker: the spread, or with one run the band that is assumed."""
    if speed.speedup is None:
        return None
    if speed.low is None or speed.high is None:
        return speed.speedup / (1 + speed.noise), speed.speedup * (1 + speed.noise)
    return speed.low, speed.high


def _speedups(stored: Stored, top: float) -> tuple[list[str], float]:
    rows = stored.shown
    ends = [band[1] for row in rows if (band := _band(row.speed))]
    largest = max((*ends, 1.25)) * 1.02
    step = _step(largest, 8)

    def at(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * value / largest

    out: list[str] = []
    y = top + 22
    grid_top = y - 4
    for x, heading in ((652, "speed-up"), (664, "spread"), (748, "text"), (786, "verdict")):
        out.append(_text(x, y - 8, heading, "dim small", "end" if x == 652 else "start"))
    for title, group in _by_workload(rows):
        y += 20
        out.append(_text(20, y, title, "ink bold"))
        plain = group[0].speed.plain_rate
        out.append(_text(_LEFT - 10, y, f"plain {number(plain, '.1f')} tok/s", "dim small", "end"))
        for row in group:
            out += _speed_row(stored, row, y + 9, at)
            y += _LINE
        y += 6
    grid = [_line(at(tick), grid_top, at(tick), y + 2, "grid") for tick in _ticks(step, largest)]
    marks = [
        _text(at(tick), y + 17, f"{tick:g}×", "dim small", "middle")
        for tick in _ticks(step, largest)
        if abs(at(tick) - at(1)) > 44
    ]
    one = [
        _line(at(1), grid_top, at(1), y + 2, "one"),
        _text(at(1), y + 17, "plain = 1×", "ink bold small", "middle"),
    ]
    return [*grid, *out, *one, *marks], y + 38


def _ticks(step: float, largest: float) -> list[float]:
    return [round(step * index, 10) for index in range(int(largest / step) + 1)]


def _speed_row(
    stored: Stored, row: StoredRow, y: float, at: Callable[[float], float]
) -> Iterator[str]:
    speed, middle, base = row.speed, y + _BAR / 2, y + _BAR - 3
    yield _name(32, base, row.arm, 26)
    said = word(stored, row)
    value = number(speed.speedup, ".2f", "×")
    if speed.speedup is not None:
        title = f"{row.arm}: {value} ({words.spread(speed)}), {said}"
        kind = "none" if said in _SILENT else _BAR_CLASS[speed.verdict]
        yield _box(at(0), y, at(speed.speedup) - at(0), _BAR, kind, title)
    band = _band(speed)
    if band is not None:
        kind = "whisker assumed" if speed.band_is_assumed else "whisker"
        yield _line(at(band[0]), middle, at(band[1]), middle, kind)
        for end in band:
            yield _line(at(end), middle - 4, at(end), middle + 4, "whisker")
    yield _text(652, base, value, "ink bold", "end")
    yield _text(664, base, words.spread(speed), "dim small")
    text = words.text(row.identity)
    yield _text(748, base, text, "bad bold small" if row.identity.bugs else "dim small")
    yield _text(786, base, said, "dim" if said in _SILENT else _WORD_CLASS[speed.verdict])


# ---------------------------------------------------------------- why?


def break_even(stored: Stored) -> str:
    """Accepted per drafted cycle (dot) from the measured break-even (tick), on a log(1 + x) axis.

    There a distance is a ratio of 1 + accepted (what a drafted cycle brings) to 1 + break-even
    (what it costs in plain steps).
    """
    rows = [
        row
        for row in stored.shown
        if row.accepted_per_cycle is not None and row.break_even is not None
    ]
    figures = [f for row in rows for f in (row.accepted_per_cycle, row.break_even) if f is not None]
    largest = math.log1p(max((*figures, 1.0)) * 1.08)

    def at(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * math.log1p(max(value, -0.5)) / largest

    out: list[str] = []
    y = 22.0
    for x, heading in ((680, "accepted"), (770, "break-even"), (800, "coverage")):
        anchor = "start" if x == 800 else "end"
        out.append(_text(x, y - 8, heading, "dim small", anchor))
    grid_top = y - 4
    for title, group in _by_workload(rows):
        y += 20
        out.append(_text(20, y, title, "ink bold"))
        for row in group:
            out += _even_row(row, y + 9, at)
            y += _LINE
        y += 6
    ticks = [2.0**n - 1 for n in range(12) if math.log1p(2.0**n - 1) <= largest]
    grid = [_line(at(tick), grid_top, at(tick), y + 2, "grid") for tick in ticks]
    marks = [_text(at(tick), y + 17, f"{tick:g}", "dim small", "middle") for tick in ticks]
    label = "; ".join(
        f"{row.arm} on {row.workload or 'all prompts'}: {number(row.accepted_per_cycle)} accepted "
        f"per cycle, break-even {number(row.break_even)}"
        for row in rows
    )
    return _svg(y + 26, label, [*grid, *out, *marks])


def _even_row(row: StoredRow, y: float, at: Callable[[float], float]) -> Iterator[str]:
    got, needed = row.accepted_per_cycle, row.break_even
    assert got is not None
    assert needed is not None
    middle, base = y + _BAR / 2, y + _BAR - 3
    above = got >= needed
    yield _name(32, base, row.arm, 26)
    yield _line(at(needed), middle, at(got), middle, "gain" if above else "loss")
    yield _line(at(needed), middle - 7, at(needed), middle + 7, "one")
    kind = "good" if above else "bad"
    yield f'<circle cx="{at(got):.1f}" cy="{middle:.1f}" r="5" class="{kind}"/>'
    yield _text(680, base, number(got), "ink bold", "end")
    yield _text(770, base, number(needed), "ink", "end")
    share = "–" if row.coverage is None else f"{row.coverage * 100:.0f} %"
    yield _text(800, base, share, "dim")


def positions(stored: Stored) -> str:
    """Acceptance at position 1, 2, … of each arm, over all prompts; pale where few drafted so far.

    Few: less than `FEW` cycles.
    """
    rows = [row for row in stored.totals if row.acceptance_by_position]
    across = WIDTH // _PANEL[0]
    width, height = _PANEL
    out: list[str] = []
    for index, row in enumerate(rows):
        out += _panel(
            row,
            stored.drafted_at.get(row.arm, ()),
            20 + width * (index % across),
            4 + height * (index // across),
        )
    label = "; ".join(
        f"{row.arm}: " + " ".join(f"{p * 100:.0f}" for p in row.acceptance_by_position) + " %"
        for row in rows
    )
    return _svg(8 + height * math.ceil(len(rows) / across), label, out)


def _panel(row: StoredRow, cycles: Sequence[int], x: float, top: float) -> Iterator[str]:
    shares = row.acceptance_by_position
    left, right, high, low = x + 30, x + _PANEL[0] - 14, top + 26, top + 106
    yield _name(x, top + 14, row.arm, 28, "ink bold")
    for share in (0.0, 0.5, 1.0):
        y = low - (low - high) * share
        yield _line(left, y, right, y, "grid")
        yield _text(left - 4, y + 4, f"{share * 100:.0f}", "dim small", "end")
    each = min((right - left) / len(shares), 26.0)
    for index, share in enumerate(shares):
        tall = (low - high) * share
        gap = 2.0 if each > 6 else 0.0
        count = cycles[index] if index < len(cycles) else 0
        title = f"position {index + 1}: {share * 100:.0f} % of {count} cycles"
        kind = "bar" if count >= FEW else "bar few"
        yield _box(left + each * index + gap / 2, low - tall, each - gap, tall, kind, title)
    for number_ in dict.fromkeys((1, len(shares))):
        yield _text(left + each * (number_ - 0.5), low + 14, number_, "dim small", "middle")
