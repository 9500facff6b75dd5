"""The home screen's sections as lines: pure functions of the state, a size and the signs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, chop_cells
from textual.content import Content

from specctl.tui.home_state import (
    Action,
    Home,
    MachineRow,
    ModelRow,
    Part,
    Proposal,
    Pulling,
    ResultRow,
    Row,
    Section,
    Verdict,
)
from specctl.tui.widgets.glyphs import (
    ACCENT,
    BAD,
    GOOD,
    MUTED,
    STRONG,
    WARN,
    Chunk,
    Glyphs,
    Piece,
    clean,
    cut,
    cut_middle,
    line,
    row,
    said,
)

TITLES: dict[Section, str] = {
    "machine": "this machine",
    "recommended": "recommended for it",
    "downloaded": "downloaded",
    "results": "recent results",
}
MARK = 2  # cells before a row: where one is
GAP = "   "
LABEL = 8  # cells of doctor's labels
ROOMY = 56  # cells from which the words of a row stand on one line
SIZE = 10  # cells of `1023.9 MiB`
MOST = 3  # lines of a row's figures
BAR = 8  # least cells of a bar
SIGNS: dict[Verdict, tuple[str, str]] = {
    "faster": ("▲", GOOD),
    "slower": ("▼", BAD),
    "no difference shown": ("=", WARN),
    "never drafted": ("!", WARN),
    "differs": ("!", BAD),
}
KEYS = {"chat": "c chat", "bench": "b bench", "pull": "p pull"}


# ---------------------------------------------------------------- a section


def heading(home: Home, section: Section, signs: Glyphs) -> str:
    """The title of a section: its name, where one is in it, and what it is about."""
    part = home.parts[section]
    words = [TITLES[section]]
    if section != "machine" and part.rows:
        words.append(f"{part.at + 1}/{len(part.rows)}")
    if part.about:
        words.append(clean(part.about))
    if section in home.waiting and part.seen:
        words.append("looking …")
    return said(f" {signs.dot} ".join(words), signs)


def section_lines(
    home: Home, section: Section, width: int, height: int, signs: Glyphs, focused: bool = False
) -> list[Content]:
    """A section in at most `height` lines of at most `width` cells."""
    if width < 1 or height < 1:
        return []
    lines = _lines(home, section, width, height, signs, focused)[:height]
    return [one if one.cell_length <= width else one.truncate(width) for one in lines]


def _lines(
    home: Home, section: Section, width: int, height: int, signs: Glyphs, focused: bool
) -> list[Content]:
    part = home.parts[section]
    if part.failed or not part.rows:
        return _instead(part, width, signs)
    lines: list[Content] = []
    first, _ = window(home, section, width, height, signs)
    for at in range(first, len(part.rows)):
        if len(lines) >= height:
            break
        here = focused and at == part.at
        lines += _marked(part.rows[at], width, height, signs, here)
    if len(lines) < height:
        lines += _warnings(part, width, signs)
    return lines


def wanted(home: Home, section: Section, width: int, signs: Glyphs) -> int:
    """Lines that all of a section would take."""
    return len(section_lines(home, section, width, 10_000, signs))


def window(
    home: Home, section: Section, width: int, height: int, signs: Glyphs
) -> tuple[int, list[int]]:
    """The first row that is shown, so that the selected one is, and each row's lines."""
    part = home.parts[section]
    sizes = [len(_marked(one, width, height, signs, False)) for one in part.rows]
    first = 0
    while first < part.at and sum(sizes[first : part.at + 2]) > height:
        first += 1
    return first, sizes


def row_at(
    home: Home, section: Section, y: int, size: tuple[int, int], signs: Glyphs
) -> int | None:
    """The row under line `y` of a section drawn in `size` cells."""
    first, sizes = window(home, section, *size, signs)
    for at in range(first, len(sizes)):
        if y < sizes[at]:
            return at
        y -= sizes[at]
    return None


def _instead(part: Part, width: int, signs: Glyphs) -> list[Content]:
    """What stands where no rows are."""
    if part.failed:
        return [Content.styled(text, BAD) for text in wrapped(part.failed, width, signs)]
    if not part.seen:
        return [Content.styled(said("looking …", signs), MUTED)]
    empty = [Content.styled(text, MUTED) for text in wrapped(part.empty, width, signs)]
    return empty + _warnings(part, width, signs)


def _warnings(part: Part, width: int, signs: Glyphs) -> list[Content]:
    return [
        Content.styled(text, WARN)
        for warning in part.warnings
        for text in wrapped(warning, width, signs)
    ]


def _marked(one: Row, width: int, height: int, signs: Glyphs, here: bool) -> list[Content]:
    """A row with the mark of the selected one before it."""
    if isinstance(one, MachineRow):
        return _machine(one, width, height, signs)
    mark = said("▸ ", signs) if here else " " * MARK
    name = f"{STRONG} reverse" if here else STRONG
    lines = list(_row(one, max(1, width - MARK), signs, name))
    return [
        Content.assemble((mark if index == 0 else " " * MARK, ACCENT), text)
        for index, text in enumerate(lines)
    ]


def _row(one: Row, width: int, signs: Glyphs, name: str) -> Iterator[Content]:
    if isinstance(one, Proposal):
        yield from _proposal(one, width, signs, name)
    elif isinstance(one, ModelRow):
        yield from _model(one, width, signs, name)
    elif isinstance(one, ResultRow):
        yield from _result(one, width, signs, name)


# ---------------------------------------------------------------- its rows


def _machine(one: MachineRow, width: int, height: int, signs: Glyphs) -> list[Content]:
    """All of it, each label's text on lines of its own; one line a label where that is too much."""
    whole = _machine_lines(one, width, signs, apart=True)
    return whole if len(whole) <= height else _machine_lines(one, width, signs, apart=False)


def _machine_lines(one: MachineRow, width: int, signs: Glyphs, apart: bool) -> list[Content]:
    told = wrapped(one.conclusion, width, signs)
    if not apart and len(told) > 1:
        told = [cut(said(clean(one.conclusion), signs), width, signs)]
    lines = [Content.styled(text, STRONG) for text in told]
    for label, text in one.rows:
        room = max(1, width - LABEL)
        parts = text.splitlines() if apart else [", ".join(filter(None, text.splitlines()))]
        if apart:
            parts = [one for part in parts for one in wrapped(part, room, signs)]
        for index, part in enumerate(parts):
            first = label if index == 0 else ""
            pieces: list[Piece] = [(f"{first:{LABEL}}", MUTED), (clean(part), "")]
            lines.append(line([(said(t, signs), style) for t, style in pieces], width, signs))
    for note in one.notes:
        lines += [Content.styled(text, WARN) for text in wrapped(note, width, signs)]
    return lines


def _proposal(one: Proposal, width: int, signs: Glyphs, name: str) -> Iterator[Content]:
    pieces: list[Piece] = [(clean(one.name), name), (f" {signs.dot} ", MUTED), (one.drafter, "")]
    yield line([(said(text, signs), style) for text, style in pieces], width, signs)
    got: Piece = (f"get {one.get}", "") if one.get else ("here", GOOD)
    chunks: list[Chunk] = [[(one.speed, "")], [got], *([(fact, MUTED)] for fact in one.facts)]
    if width >= ROOMY:
        yield row([[(said(text, signs), style) for text, style in one] for one in chunks], width)
    else:
        yield from flow(chunks, width, signs, 2)


def _model(one: ModelRow, width: int, signs: Glyphs, name: str) -> Iterator[Content]:
    """Name, size, and what it is: beside them, or below where there is no room for that."""
    note, size = said(clean(one.note), signs), said(one.size, signs)
    aside = width >= ROOMY
    room = max(1, (width * 6 // 10 if aside else width) - SIZE - 1)
    if not note and cell_len(clean(one.name)) > room:
        room = max(1, width - SIZE - 1)
    shown = cut_middle(said(clean(one.name), signs), room, signs)
    pad = " " * (room - cell_len(shown) + 1 + SIZE - cell_len(size))
    pieces: list[Piece] = [(shown, name), (pad + size, "")]
    if aside and note:
        pieces.append((f"  {note}", MUTED))
    yield line(pieces, width, signs)
    if note and not aside:
        yield line([(note, MUTED)], width, signs)


def _result(one: ResultRow, width: int, signs: Glyphs, name: str) -> Iterator[Content]:
    date: Piece = (f"{clean(one.date)}  ", MUTED)
    room = max(1, width - cell_len(date[0]))
    yield line([date, (cut_middle(said(clean(one.name), signs), room, signs), name)], width, signs)
    if one.broken:
        told = wrapped(one.broken, width, signs)[:MOST]
        yield from (Content.styled(text, BAD) for text in told)
        return
    chunks: list[Chunk] = [
        [(f"{SIGNS[verdict][0]} {clean(text)}", SIGNS[verdict][1])] for verdict, text in one.arms
    ]
    if one.note:
        chunks.append([(clean(one.note), MUTED)])
    yield from flow(chunks, width, signs, MOST)


# ---------------------------------------------------------------- text in lines


def flow(chunks: Sequence[Chunk], width: int, signs: Glyphs, most: int) -> list[Content]:
    """The chunks side by side, in as many lines as they need, at most `most`."""
    lines: list[list[Piece]] = []
    left = 0
    for chunk in chunks:
        pieces = [(said(text, signs), style) for text, style in chunk]
        size = sum(cell_len(text) for text, _ in pieces)
        if lines and len(GAP) + size <= left:
            lines[-1] += [(GAP, ""), *pieces]
            left -= len(GAP) + size
        else:
            lines.append(pieces)
            left = width - size
    return [line(pieces, width, signs) for pieces in lines[:most]]


def wrapped(text: str, width: int, signs: Glyphs) -> list[str]:
    """The words of a text in lines of at most `width` cells."""
    lines = [""]
    for word in said(clean(text), signs).split():
        for part in chop_cells(word, max(2, width)):
            joined = f"{lines[-1]} {part}" if lines[-1] else part
            if cell_len(joined) <= width or not lines[-1]:
                lines[-1] = joined
            else:
                lines.append(part)
    return lines if text else []


# ---------------------------------------------------------------- beside the sections


def pull_line(pulling: Pulling, width: int, signs: Glyphs) -> Content:
    """A pull as a bar between its name and its figures."""
    share = pulling.done / pulling.total if pulling.total else 0.0
    figures = said("  ".join(map(clean, pulling.words.split("  "))), signs)
    stop = "Esc stops"
    name = said(f"{pulling.phase} {clean(pulling.name)}", signs)
    room = width - cell_len(figures) - len(stop) - 3 * len("  ")
    shown = cut_middle(name, max(BAR, room - BAR), signs)
    cells = room - cell_len(shown)
    if cells < BAR or not pulling.total:
        return row([[(figures or name, "")], [(stop, MUTED)], [(name, "")]], width, signs)
    full = min(cells, int(cells * share))
    used, free = signs.meter[0], signs.meter[1]
    pieces: list[Piece] = [
        (shown + "  ", STRONG),
        (used * full, ACCENT),
        (free * (cells - full), MUTED),
        (f"  {figures}  ", ""),
        (stop, MUTED),
    ]
    return line(pieces, width, signs)


def command_line(home: Home, width: int, signs: Glyphs) -> Content:
    """What Enter would do, as the command that does it."""
    offered = home.actions()
    if not offered:
        return Content("")
    text = said(clean(offered[0].line), signs)
    return line([("$ ", MUTED), (cut_middle(text, max(1, width - 2), signs), ACCENT)], width, signs)


def keys_line(home: Home, width: int, signs: Glyphs) -> Content:
    """What to press, the first things first; as much of it as fits."""
    offered = home.actions()
    words = ["Enter " + enter_words(offered)] if offered else []
    verbs = {one.verb for one in offered}
    words += ["Tab next", "^Q quit"]
    words += [KEYS[verb] for verb in ("chat", "bench", "pull") if verb in verbs]
    words += ["F1 keys", "r refresh"]
    return row([[(word, MUTED)] for word in words], width, signs, "  ")


def enter_words(offered: Sequence[Action]) -> str:
    """What Enter does with these."""
    if len(offered) > 1:
        return "menu"
    return "open" if offered[0].verb == "page" else offered[0].verb


def plain_lines(home: Home, width: int, signs: Glyphs) -> list[str]:
    """All sections below each other as plain text, for where no screen can be."""
    lines: list[str] = []
    for section, part in home.parts.items():
        words = [TITLES[section], *([clean(part.about)] if part.about else [])]
        lines += ["", said(f" {signs.dot} ".join(words), signs)]
        body = section_lines(home, section, max(MARK + 1, width - 2), 10_000, signs)
        lines += [f"  {one.plain}".rstrip() for one in body]
        first = part.rows[0].actions[:1] if part.rows else ()
        lines += [f"  $ {said(clean(action.line), signs)}" for action in first]
    return lines[1:]
