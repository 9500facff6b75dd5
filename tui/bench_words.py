"""The bench screen's lines outside the matrix: what is measured, what a cell says, its prompts and
cycles. Pure functions of the state; every figure is one of `bench/report.py` or `metrics.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content

from specctl.bench import words
from specctl.bench.report import Row
from specctl.bench.results import is_busy
from specctl.bench.run import Run
from specctl.tui.bench_state import BenchLive, Cell, Place, PromptLine, accepted_per_cycle
from specctl.tui.bench_worker import Pulse
from specctl.tui.widgets.cycles import Bar, Chart, chart_lines
from specctl.tui.widgets.glyphs import (
    BAD,
    MUTED,
    STRONG,
    WARN,
    Glyphs,
    clean,
    cut_middle,
    row,
    said,
)
from specctl.tui.widgets.speedbar import bar, figure, scale_of, verdict
from specctl.tui.words import needed as needed_of
from specctl.units import format_seconds, number, percent

POSITIONS = 8
CHART = 7  # lines of one chart of cycles
KEYS = {
    "measuring": ("arrows select", "Enter prompts", "^C stop, keep what is complete", "F1 keys"),
    "done": ("arrows select", "Enter prompts", "r report", "^Q leave, print it", "F1 keys"),
}
OPEN_NOTE = (
    "Measured with the screen open: it draws between the runs, and three lines every five seconds "
    "while one is timed."
)


# ---------------------------------------------------------------- what is measured


def header_lines(
    live: BenchLive,
    pulse: Pulse,
    since: float,
    stopping: bool,
    width: int,
    height: int,
    now: float,
    signs: Glyphs,
) -> list[Content]:
    """Model, size, progress. `since` and `now`: clock of the last step, and just now, seconds."""
    plan = live.plan
    left = _left(live, now - since)
    state = (_state(live, stopping, now - since), WARN if stopping else STRONG)
    name = cut_middle(clean(plan.model), max(10, width // 2 - 10), signs)
    size = f"{_count(len(plan.prompts), 'prompt')} × {plan.repeats}"
    runs = f"{len(live.runs)}/{live.total} runs"
    title: list[tuple[str, str]] = [("bench ", MUTED), (name, STRONG)]
    draft = [(f"draft {clean(plan.draft)}", "")] if plan.draft else []
    if height < 2:
        return [_row([[state], [(runs, "")], [(left, "")], title], width, signs)]
    first = _row([title, draft, [state], [(left, "")]], width, signs)
    threads = f", {_count(live.opened.threads, 'thread')}" if live.opened else ""
    second = _row(
        [[(f"{size}, up to {plan.max_tokens} tokens{threads}", "")], [(_load(live), WARN)]],
        width,
        signs,
    )
    bar_ = _progress(live, min(30, width // 4), signs)
    room = width - sum(cell_len(text) for text, _ in bar_) - cell_len(runs) - 6
    third = _row([bar_, [(runs, "")], *_running(live, pulse, room, signs)], width, signs)
    return [first, third] if height == 2 else [first, second, third]


def _state(live: BenchLive, stopping: bool, elapsed: float) -> str:
    if live.phase == "checking":
        since = f", {format_seconds(round(elapsed))}" if elapsed >= 2 else ""
        return f"tie or bug? decoding {_count(live.differing, 'differing prompt')} again{since}"
    if live.phase == "done":
        stopped = live.outcome is not None and live.outcome.interrupted
        return "stopped: what is complete" if stopped else "done"
    if stopping and live.phase != "failed":
        return "stopping after this cycle"
    return {"opening": "opening the models", "warming": "warming up"}.get(live.phase, live.phase)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" + "s" * (count != 1)


def _left(live: BenchLive, elapsed: float) -> str:
    if live.eta is None:
        return ""
    left = live.eta - elapsed
    return f"≈ {format_seconds(round(left))} left" if left >= 1 else "< 1 s left"


def _load(live: BenchLive) -> str:
    load = live.opened.load if live.opened else None
    return f"load average {load:.1f}: expect noise" if load is not None and is_busy(load) else ""


def _progress(live: BenchLive, width: int, signs: Glyphs) -> list[tuple[str, str]]:
    fraction = 1.0 if live.phase in ("checking", "done") else live.fraction
    full = int(fraction * width)
    return [(signs.meter[0] * full, "$accent"), (signs.meter[1] * (width - full), MUTED)]


def _running(
    live: BenchLive, pulse: Pulse, room: int, signs: Glyphs
) -> list[list[tuple[str, str]]]:
    """Which run is measured, and how far it is."""
    task = live.running
    if task is None:
        return []
    name = cut_middle(f"{clean(task.arm)} on {clean(task.prompt)}", room, signs)
    so_far = f"{pulse.tokens} of {live.plan.max_tokens} tokens" if pulse.tokens else ""
    repeat = f"repeat {task.repeat + 1} of {live.plan.repeats}" if live.plan.repeats > 1 else ""
    return [[(name, MUTED)], [(so_far, MUTED)], [(repeat, MUTED)]]


# ---------------------------------------------------------------- a cell


def detail_lines(
    live: BenchLive, place: Place, width: int, height: int, signs: Glyphs
) -> list[Content]:
    """What the selected cell says and why, the most telling first."""
    cell = live.cell(place)
    title = [(f"{clean(live.label(place.workload))}, {clean(place.arm)}", STRONG)]
    if cell.row is None:
        waits = "not measured" if cell.final else f"{cell.done} of {cell.asked} runs done"
        lines = [_row([title, [(waits, MUTED)]], width, signs)]
        return [*lines, *_notes(live, width, signs)][:height]
    row_, speed = cell.row, cell.row.speed
    value = [(figure(speed, signs).strip() + " ", STRONG), *_pieces(verdict(row_, signs))]
    rates = f"plain {number(speed.plain_rate, '.1f')} → {number(speed.rate, '.1f')} tok/s"
    lines = [_row([title, value, [(words.spread(speed), "")]], width, signs)]
    if height == 1:
        short = [
            (f"α {percent(row_.totals.acceptance_rate)} of {percent(row_.totals.coverage)}", "")
        ]
        return [_row([value, [(words.spread(speed), "")], short, title], width, signs)]
    lines += [
        _row([_standing(row_), [(rates, "")]], width, signs),
        _row(_why(row_), width, signs),
        _row([[(_basis(cell), MUTED)], *_texts(row_, cell.final)], width, signs),
    ]
    lines += _notes(live, width, signs)
    if height >= len(lines) + CHART + 1:
        lines += _latest(live, place, width, height - len(lines) - 1, signs)
    return lines[:height]


def _latest(live: BenchLive, place: Place, width: int, height: int, signs: Glyphs) -> list[Content]:
    """The cycles of the cell's latest run, where there is room for a chart."""
    run = live.latest(place)
    if run is None:
        return []
    repeat = f", repeat {run.repeat + 1}" if live.plan.repeats > 1 else ""
    title = f"accepted per cycle on {clean(run.prompt.key)}{repeat}"
    chart = Chart(_bars(run), run.totals.break_even, title)
    return [Content(""), *chart_lines(chart, width, min(height, 2 * CHART), signs)]


def _bars(run: Run) -> list[Bar]:
    return [Bar(float(accepted), drafted > 0) for drafted, accepted in accepted_per_cycle(run)]


def _basis(cell: Cell) -> str:
    """How much of it is behind the figure."""
    if cell.final:
        return f"{_count(cell.prompts, 'prompt')} × {cell.repeats}"
    return f"so far {cell.prompts} of {_count(cell.of_prompts, 'prompt')} × {cell.repeats}"


def _standing(row_: Row) -> list[tuple[str, str]]:
    totals = row_.totals
    if not totals.drafted_cycles:
        return [(f"no drafts in {totals.cycles} cycles", MUTED if row_.arm == "none" else BAD)]
    got, needed = number(totals.accepted_per_cycle), needed_of(totals)
    standing = f": {totals.standing}" if totals.standing else ""
    return [(f"accepted per cycle {got}, break-even {needed}{standing}", "")]


def _why(row_: Row) -> list[list[tuple[str, str]]]:
    totals = row_.totals
    if not totals.drafted_cycles:
        return []
    chunks = [
        [(f"α {percent(totals.acceptance_rate)} with {percent(totals.coverage)} coverage", "")]
    ]
    positions = totals.acceptance_by_position
    if positions:
        shown = " ".join(f"{p * 100:.0f}" for p in positions[:POSITIONS])
        more = f" … p{len(positions)} {positions[-1] * 100:.0f}" * (len(positions) > POSITIONS)
        chunks.append([(f"by position {shown}{more} %", "")])
    shares = f"draft {percent(totals.draft_share)}, verify {percent(totals.verify_share)}"
    chunks.append([(shares, MUTED)])
    return chunks


def _texts(row_: Row, final: bool) -> list[list[tuple[str, str]]]:
    said_ = words.text(row_.identity) if final else "compared with plain's at the end"
    style = BAD if row_.identity.bugs else ""
    first = f"{words.short_time(row_.plain_ttft)} → {words.short_time(row_.ttft)}"
    return [[(f"text: {said_}", style)], [(f"first token {first}", MUTED)]]


def _notes(live: BenchLive, width: int, signs: Glyphs) -> list[Content]:
    return [_row([[(clean(note), MUTED)]], width, signs) for note in live.notes]


# ---------------------------------------------------------------- its prompts, and their cycles


def prompt_lines(
    live: BenchLive, place: Place, selected: int, width: int, signs: Glyphs
) -> list[Content]:
    """One line for each prompt of a cell."""
    found = live.prompts(place)
    scale = scale_of(p.speed.speed for p in found if p.speed is not None)
    longest = max((cell_len(clean(p.key)) for p in found), default=0)
    name = max(8, min(longest, width - 32))
    return [
        _prompt_line(one, name, width, scale, live.plan.repeats, index == selected, signs)
        for index, one in enumerate(found)
    ]


def _prompt_line(
    one: PromptLine,
    name: int,
    width: int,
    scale: float,
    repeats: int,
    selected: bool,
    signs: Glyphs,
) -> Content:
    mark = said("▸ ", signs) if selected else "  "
    key = cut_middle(said(clean(one.key), signs), name, signs)
    head = Content.styled(mark + key + " " * (name - cell_len(key)) + "  ", "reverse" * selected)
    if one.speed is None or one.speed.speed.speedup is None:
        waits = f"{len(one.runs)} of {repeats} runs" if len(one.runs) else "waiting"
        return _cropped(head + Content.styled(waits, MUTED), width)
    speed = one.speed.speed
    word = {"faster": "▲ faster", "slower": "▼ slower"}.get(speed.verdict, "= no difference")
    tail = Content.assemble(
        (" " + figure(speed, signs) + " ", STRONG),
        (said(word, signs).ljust(16), ""),
        (said(words.spread(speed), signs).ljust(12), MUTED),
    )
    text = _worst(one.statuses)
    room = width - head.cell_length - tail.cell_length - len(text) - 1
    drawn = bar(speed, min(room, 40), scale, signs) if room >= 8 else Content("")
    colour = BAD if "BUG" in text else MUTED
    return _cropped(head + drawn + tail + Content.styled(text, colour), width)


def _worst(statuses: Sequence[str]) -> str:
    counts = Counter(statuses)
    for status, shown in (("bug", "BUG"), ("tie", "tie"), ("law", "law"), ("same", "same")):
        if counts[status]:
            return f"{shown} {counts[status]}" if status in ("bug", "tie") else shown
    return ""


def cycle_lines(runs: Sequence[Run], width: int, signs: Glyphs) -> list[Content]:
    """The cycles of each run as charts of accepted tokens, one below the other."""
    lines: list[Content] = []
    for run in runs:
        lines += _run_lines(run, width, signs)
        lines.append(Content(""))
    return lines


def _run_lines(run: Run, width: int, signs: Glyphs) -> list[Content]:
    totals = run.totals
    rate = f"{number(totals.tokens_per_second, '.1f')} tok/s"
    heads = [
        [(f"repeat {run.repeat + 1}", STRONG)],
        [(f"{len(run.tokens)} tokens in {totals.cycles} cycles, {rate}", "")],
        [(f"ended: {run.finish}", MUTED)],
    ]
    lines = [_row(heads, width, signs)]
    if totals.drafted_cycles:
        got, needed = number(totals.accepted_per_cycle), needed_of(totals)
        alpha = f"α {percent(totals.acceptance_rate)} with {percent(totals.coverage)} coverage"
        needs = f"accepted per cycle {got}, break-even {needed}"
        lines.append(_row([[(needs, "")], [(alpha, "")]], width, signs))
    if run.undrafted:
        reasons = "; ".join(f"{reason} ({count})" for reason, count in run.undrafted[:3])
        lines.append(_row([[(f"without a draft: {clean(reasons)}", MUTED)]], width, signs))
    bars = _bars(run)
    columns = max(10, width - (32 if width >= 46 else 6))  # the rest is axis and labels
    charts = -(-len(bars) // columns)
    columns = -(-len(bars) // max(1, charts))
    for start in range(0, len(bars), columns):
        part = bars[start : start + columns]
        title = f"accepted per cycle, cycles {start + 1} to {start + len(part)}"
        lines.append(_row([[(title, STRONG)]], width, signs))
        lines += chart_lines(Chart(part, totals.break_even), width, CHART, signs)[1:]
    return lines


# ---------------------------------------------------------------- keys


def keys_line(chunks: Sequence[str], width: int, signs: Glyphs) -> Content:
    """What to press, as much of it as fits."""
    return _row([[(chunk, MUTED)] for chunk in chunks], width, signs)


def _row(chunks: Sequence[Sequence[tuple[str, str]]], width: int, signs: Glyphs) -> Content:
    filled = [
        [(said(text, signs), style) for text, style in chunk]
        for chunk in chunks
        if any(text for text, _ in chunk)
    ]
    return row(filled, width, signs) if filled else Content("")


def _pieces(content: Content) -> list[tuple[str, str]]:
    style = next((str(span.style) for span in content.spans), "")
    return [(content.plain, style)]


def _cropped(line: Content, width: int) -> Content:
    return line if line.cell_length <= width else line.truncate(width)
