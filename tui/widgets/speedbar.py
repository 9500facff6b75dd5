"""A speed-up as a bar against the 1.0× line, and as a cell with its figure and verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.content import Content

from specctl.bench import words
from specctl.bench.report import Row, Speed, never_drafted
from specctl.tui.bench_state import Cell
from specctl.tui.widgets.glyphs import ASCII, BAD, GOOD, MUTED, WARN, Glyphs, said
from specctl.units import number

COLOUR = {"faster": GOOD, "slower": BAD, "no difference shown": WARN}
SIGN = {"faster": "▲", "slower": "▼", "no difference shown": "="}
_SCALES = (2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0)
_EIGHTHS = " ▏▎▍▌▋▊▉█"
FIGURE = 6  # cells of `12.34×`
WORD = len("no difference")
SPREAD = len("one, ±10%")
BAR_MIN, BAR_MAX = 6, 60


def scale_of(speeds: Iterable[Speed]) -> float:
    """The speed-up at a bar's full length: the same for all cells, at least 2."""
    largest = max((s.high or s.speedup or 0.0 for s in speeds), default=0.0)
    return next((one for one in _SCALES if one >= largest), largest)


def bar(speed: Speed, width: int, scale: float, signs: Glyphs) -> Content:
    """Exactly `width` cells from 0 to `scale`. The line at 1.0× is plain decoding; what lies
    between the slowest and the fastest repeat is shaded.
    """
    if width < 1 or speed.speedup is None:
        return Content(" " * max(0, width))
    low, high = speed.low or speed.speedup, speed.high or speed.speedup
    solid = min(low / scale, 1.0) * width
    shaded = min(round(high / scale * width), width)
    full = int(solid)
    if signs is ASCII:
        cells = "#" * full
        shade, line = "~", "|"
    else:
        part = _EIGHTHS[int((solid - full) * 8)]
        cells = "█" * full + (part if part != " " and shaded <= full + 1 else "")
        shade, line = "▒", "│"
    cells = (cells + shade * (shaded - len(cells)))[:width].ljust(width)
    one = min(int(width / scale), width - 1)
    colour = COLOUR[speed.verdict]
    covered = cells[one] != " "
    return Content.assemble(
        (cells[:one], colour),
        (line, f"{colour} reverse" if covered and signs is not ASCII else MUTED),
        (cells[one + 1 :], colour),
    )


def verdict(row: Row, signs: Glyphs, short: bool = False) -> Content:
    """`▲ faster`, `= no difference`, `▼ slower`, `never drafted`; short: `▲`, `=`, `▼`, `!`."""
    speed = row.speed
    sign = said(SIGN[speed.verdict], signs)
    if row.arm != "none" and never_drafted(row.totals):
        return Content.styled("!" if short else words.NEVER, BAD)
    if short:
        return Content.styled(sign, COLOUR[speed.verdict])
    return Content.styled(f"{sign} {words.SHORT[speed.verdict]}", COLOUR[speed.verdict])


def figure(speed: Speed, signs: Glyphs) -> str:
    """`1.94×`, as wide as `FIGURE`."""
    return said(number(speed.speedup, ".2f", "×"), signs).rjust(FIGURE)


def cell_lines(
    cell: Cell, width: int, height: int, scale: float, signs: Glyphs, selected: bool = False
) -> list[Content]:
    """A cell of the matrix: bar, figure and verdict, as much of it as `width` holds; a second line
    with the spread and how much of it is done where `height` is 2. Exactly `width` cells each.
    """
    mark = (said("▸", signs) if cell.running else " ") + " "
    inner = width - 3  # the mark before, one space behind
    if cell.row is None:
        lines = [_waiting(cell, signs)]
    else:
        lines = _judged(cell, cell.row, inner, scale, signs, selected)
    if cell.row is None and selected:
        lines = [lines[0].stylize("reverse")]
    head = Content.styled(mark, "bold")
    out = [_fit(head + lines[0], width)]
    if height > 1:
        below = lines[1] if len(lines) > 1 else Content("")
        out.append(_fit(Content("  ") + below, width))
    return out[:height]


def _waiting(cell: Cell, signs: Glyphs) -> Content:
    if cell.final:
        return Content.styled("not measured", MUTED)
    count = f"{cell.done}/{cell.asked}"
    text = f"running {count}" if cell.running else count if cell.done else signs.plain
    return Content.styled(text, MUTED)


def _judged(
    cell: Cell, row: Row, inner: int, scale: float, signs: Glyphs, selected: bool
) -> list[Content]:
    speed = row.speed
    word = verdict(row, signs)
    value = Content.styled(
        figure(speed, signs), f"bold {COLOUR[speed.verdict]}" + " reverse" * selected
    )
    space = Content(" ")
    spread = said(words.spread(speed), signs)
    rest = FIGURE + 1 + 2 + WORD
    wide = rest + 2 + SPREAD + 2
    if inner >= wide + BAR_MIN + 1:
        length = min(inner - wide - 1, BAR_MAX)
        padded = word.pad_right(max(0, 2 + WORD - word.cell_length))
        tail = Content.styled("  " + spread, MUTED)
        first = bar(speed, length, scale, signs) + space + value + space + padded + tail
    elif inner >= rest + BAR_MIN + 1:
        first = bar(speed, inner - rest - 1, scale, signs) + space + value + space + word
    elif inner >= FIGURE + 3 + BAR_MIN:
        length = inner - FIGURE - 3
        sign = verdict(row, signs, short=True)
        first = bar(speed, length, scale, signs) + space + value + space + sign
    else:
        first = value + space + verdict(row, signs, short=True)
    parts = [word.plain.lstrip(said("▲▼= ", signs)), spread]
    parts = [part for part in parts if part not in first.plain]  # said already
    if not cell.final:
        parts += [f"{row.prompts}/{cell.of_prompts} prompts", f"{row.prompts}/{cell.of_prompts}"]
    return [first, Content.styled(_as_fits(parts, inner), MUTED)]


def _as_fits(parts: Sequence[str], width: int) -> str:
    """The parts, two spaces apart, without those for which there is no room; the last two say the
    same thing in two lengths.
    """
    out = ""
    for part in parts:
        if part and len(out) + 2 * bool(out) + len(part) <= width and part not in out:
            out += "  " * bool(out) + part
    return out


def _fit(line: Content, width: int) -> Content:
    length = line.cell_length
    if length > width:
        return line.truncate(width)
    return line.pad_right(width - length)
