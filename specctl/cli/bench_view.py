"""What `specctl bench` shows: progress while it runs, tables when it is done."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from specctl.bench import words
from specctl.bench.conduct import Checking, Opened
from specctl.bench.report import (
    NOTABLE,
    IdentityCount,
    PromptSpeed,
    Report,
    Row,
    Speed,
    Undrafted,
    is_undrafted,
)
from specctl.bench.results import is_busy
from specctl.bench.run import BenchPlan, Calibration, RunDone
from specctl.units import format_seconds, number, percent

WIDE = 96  # columns from which the workload gets a column of its own
LINE_EVERY = 10.0  # seconds between progress lines where there is no terminal
NAMED = 5  # prompts named in one list
POSITIONS = 8
_COLOUR = {"faster": "green", "slower": "red", "no difference shown": "yellow"}


# ---------------------------------------------------------------- while it runs


def opening(console: Console, opened: Opened, plan: BenchPlan) -> None:
    """What is about to be measured, and what may spoil it."""
    arms = ", ".join(arm.name for arm in plan.all_arms)
    console.print(
        f"{escape(plan.model)}: {counted(len(plan.prompts), 'prompt')} × {plan.repeats} × "
        f"({escape(arms)}), up to {counted(plan.max_tokens, 'token')} each, "
        f"{counted(opened.threads, 'thread')}"
    )
    for note in opened.notes:
        console.print(f"[dim]{escape(note)}[/]")
    if is_busy(opened.load):
        console.print(
            f"[yellow]load average {opened.load:.1f} on {os.cpu_count()} cores: other programs are "
            "running, expect noise[/]"
        )


def estimate(console: Console, calibration: Calibration) -> None:
    """How long it will take, from the warm-up."""
    console.print(
        f"≈ {format_seconds(calibration.estimated_seconds)} (estimate from the warm-up: "
        f"{format_seconds(calibration.plain_step)} a plain step, "
        f"{calibration.prompt_tokens_per_second:.0f} prompt tokens/s)"
    )


def counted(count: int, noun: str) -> str:
    """`1 prompt`, `2 prompts`."""
    return f"{count} {noun}" + "s" * (count != 1)


def checking(console: Console, step: Checking) -> None:
    """Texts that differ are being decoded again."""
    if step.differing:
        console.print(
            f"{counted(step.differing, 'prompt')} gave more than one text: ties or bugs? …"
        )


class Show(Protocol):
    """Called with every finished run."""

    def __call__(self, done: RunDone) -> None:
        """Show it."""


@contextmanager
def progress(console: Console) -> Iterator[Show]:
    """A bar with the time left on a terminal, a line now and then elsewhere."""
    if not console.is_terminal:
        last = time.monotonic()

        def line(done: RunDone) -> None:
            nonlocal last
            if time.monotonic() - last >= LINE_EVERY and done.index < done.total:
                last = time.monotonic()
                console.print(
                    f"{done.index}/{done.total} runs, ≈ {format_seconds(done.eta)} left", style=None
                )

        yield line
        return
    columns = (
        BarColumn(bar_width=30),
        TextColumn("{task.fields[count]}"),
        TextColumn("{task.fields[left]}"),
        TextColumn("[dim]{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:

        def move(done: RunDone) -> None:
            if not bar.tasks:
                bar.add_task("", total=1.0, count="", left="")
            bar.update(
                bar.task_ids[0],
                completed=done.fraction,
                count=f"{done.index}/{done.total}",
                left=f"≈ {format_seconds(done.eta)} left",
                description=f"{escape(done.run.arm)} {escape(done.run.prompt.key)}",
            )

        yield move


# ---------------------------------------------------------------- when it is done


def report(
    console: Console, result: Report, busy: float | None = None, busy_where: str = ""
) -> None:
    """Everything the benchmark says; `busy` is the load of other programs, if it was high,
    `busy_where` on which machine, if not the one that was measured.
    """
    wide = console.width >= WIDE
    rows = result.rows if len({row.workload for row in result.rows}) > 1 else ()
    shown = (*rows, *result.totals)
    console.print(speeds(shown, wide, undrafted=result.undrafted))
    console.print(reasons(shown, wide))
    for row in result.totals:
        arm(console, row, result.of(row.arm))
    _warnings(console, result)
    legend(console, [row.speed for row in result.totals], words.differing(result.totals))
    conditions(console, result.conditions)
    if busy is not None:
        once = any(row.speed.band_is_assumed for row in result.totals)
        console.print(
            f"[yellow]Other programs were running{busy_where} (load average {busy:.1f} on "
            f"{os.cpu_count()} "
            f"cores){': repeat this before you believe a single run' if once else ''}.[/]"
        )


class Figures(Protocol):
    """What a row's figures are, of a run just done or of a kept one; see `metrics.Totals`."""

    @property
    def acceptance_rate(self) -> float | None: ...  # noqa: D102
    @property
    def accepted_per_cycle(self) -> float | None: ...  # noqa: D102
    @property
    def break_even(self) -> float | None: ...  # noqa: D102
    @property
    def coverage(self) -> float | None: ...  # noqa: D102
    @property
    def draft_share(self) -> float | None: ...  # noqa: D102
    @property
    def verify_share(self) -> float | None: ...  # noqa: D102
    @property
    def acceptance_by_position(self) -> tuple[float, ...]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Shown:
    """A row of the tables: one arm on one workload, or on all (`workload` None)."""

    workload: str | None
    arm: str
    speed: Speed
    totals: Figures
    plain_ttft: float | None
    ttft: float
    identity: IdentityCount


def speeds(
    rows: Sequence[Row | Shown],
    wide: bool,
    title: str = "Does it pay?",
    *,
    undrafted: Sequence[Undrafted],
) -> Table:
    """Does it pay?"""
    table = _table(title, wide)
    for heading in ("plain\ntok/s", "spec.\ntok/s", "speed-\nup", "spread"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("text", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for first, row in _with_headings(table, rows, wide):
        speed = row.speed
        colour = _COLOUR[speed.verdict]
        table.add_row(
            *first,
            number(speed.plain_rate, ".1f"),
            number(speed.rate, ".1f"),
            f"[{colour}]{number(speed.speedup, '.2f', '×')}[/]",
            words.spread(speed),
            _identity(row),
            _verdict(row, is_undrafted(row, undrafted)),
        )
    return table


def _verdict(row: Row | Shown, silent: bool) -> str:
    said = words.verdict(row.speed, silent)
    if said in (words.NEVER, words.UNKNOWN):
        return said
    return f"[{_COLOUR[row.speed.verdict]}]{said}[/]"


def batches(
    console: Console,
    rows: Sequence[Row | Shown],
    undrafted: Sequence[Undrafted],
    failures: Sequence[str],
) -> None:
    """The gain by batch size: a table, what its figures mean, and what went wrong."""
    wide = console.width >= WIDE
    title = "How the gain changes with the batch"
    console.print(speeds(rows, wide, title, undrafted=undrafted))
    noise = words.noise(rows[0].speed.band_is_assumed, max(row.speed.noise for row in rows))
    console.print(f"[dim]{words.BATCHES} {escape(noise)}[/]")
    for failure in failures:
        console.print(f"[bold red]in batches {escape(failure)}[/]")
    waves = sum(row.identity.differs for row in rows)
    if waves:
        console.print(f"[yellow]{counted(waves, 'wave')} with a differing text.[/]")
        console.print(f"[dim]{words.DIFFERS}[/]")


def reasons(rows: Sequence[Row | Shown], wide: bool) -> Table:
    """Why?"""
    table = _table("Why?", wide)
    for heading in (
        "α",
        "accepted\n/cycle",
        "break-\neven",
        "cover-\nage",
        "draft\n%",
        "verify\n%",
        "first token\nplain → spec." if wide else "first\ntoken, s",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for first, row in _with_headings(table, rows, wide):
        totals = row.totals
        table.add_row(
            *first,
            percent(totals.acceptance_rate),
            number(totals.accepted_per_cycle),
            number(totals.break_even),
            percent(totals.coverage),
            percent(totals.draft_share),
            percent(totals.verify_share),
            f"{words.short_time(row.plain_ttft)} → {words.short_time(row.ttft)}"
            if wide
            else f"{number(row.plain_ttft, '.1f')}→{row.ttft:.1f}",
        )
    return table


def _table(title: str, wide: bool) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    if wide:
        table.add_column("workload", no_wrap=True)
    table.add_column("arm", overflow="fold", max_width=26 if wide else 20)
    return table


def _with_headings(
    table: Table, rows: Sequence[Row | Shown], wide: bool
) -> Iterator[tuple[tuple[str, ...], Row | Shown]]:
    """Each row with its first cells; the workload stands once, above its arms where narrow."""
    last: object = object()
    for row in rows:
        name = row.workload or ("total" if len(rows) > 1 else "all prompts")
        new = name != last
        if new and last.__class__ is str:
            table.add_section()
        if new and not wide:
            table.add_row(f"[bold]{escape(name)}[/]")
        yield (
            ((f"[bold]{escape(name)}[/]" if new else "",) if wide else ())
            + (escape(row.arm) if wide else f" {escape(row.arm)}",),
            row,
        )
        last = name


def _identity(row: Row | Shown) -> str:
    said = words.text(row.identity)
    return f"[bold red]{said}[/]" if row.identity.bugs else said


def arm(console: Console, row: Row | Shown, prompts: Sequence[PromptSpeed]) -> None:
    """An arm in words: acceptance by position, best and worst prompt, gains and losses by name."""
    positions = row.totals.acceptance_by_position
    lines = []
    if positions:
        shown = " ".join(f"{p * 100:.0f}" for p in positions[:POSITIONS])
        more = f" … p{len(positions)} {positions[-1] * 100:.0f}" * (len(positions) > POSITIONS)
        lines.append(f"accepted at position 1, 2, …: {shown}{more} %")
    tried = [p for p in prompts if p.drafted]
    if tried and len(prompts) > 1:
        lines.append(f"best {_named(tried[0])}, worst {_named(prompts[-1])}")
    if prompts:
        faster = [p for p in tried if p.speed.verdict == "faster"]
        gains = [p for p in faster if (p.speed.speedup or 0) > NOTABLE]
        losses = [p for p in reversed(prompts) if p.speed.verdict == "slower"]
        lines.append(f"above {NOTABLE}×: {_list(gains, len(prompts))}")
        lines.append(f"slower than plain: {_list(losses, len(prompts))}")
    if tried and len(tried) < len(prompts):
        silent = [p for p in prompts if not p.drafted]
        lines.append(
            f"never drafted on {_list(silent, len(prompts))}: the machine's own difference"
        )
    console.print(f"[bold]{escape(row.arm)}[/]")
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 2), expand=False))


def _list(some: Sequence[PromptSpeed], of: int) -> str:
    if not some:
        return f"none of {of}"
    names = ", ".join(map(_named, some[:NAMED]))
    more = f" and {len(some) - NAMED} more" if len(some) > NAMED else ""
    return f"{len(some)} of {of}: {names}{more}"


def _named(prompt: PromptSpeed) -> str:
    return f"{escape(prompt.prompt)} {number(prompt.speed.speedup, '.2f', '×')}"


def _warnings(console: Console, result: Report) -> None:
    for silent in result.undrafted:
        where = f" on {silent.workload}" if silent.workload else ""
        because = "; ".join(f"{reason} ({count})" for reason, count in silent.reasons[:3])
        style = "dim" if silent.workload else "bold red"
        console.print(
            f"[{style}]{escape(silent.arm)}{escape(where)}: 0 of {silent.cycles} cycles drafted, "
            f"because: {escape(because or 'no reason given')}[/]"
        )
    for one in result.bugs:
        console.print(
            f"[bold red]BUG: {escape(one.arm)} on {escape(one.prompt)}, repeat {one.repeat + 1}, "
            f"token {one.identity.index}: {escape(one.identity.why)}[/]"
        )
    ties = {(d.prompt, d.arm): d for d in result.differences if d.identity.status == "tie"}
    for one in list(ties.values())[:NAMED]:
        console.print(
            f"[dim]tie: {escape(one.arm)} on {escape(one.prompt)}, token {one.identity.index}: "
            f"{escape(one.identity.why)}[/]"
        )
    differ = [d for d in result.differences if d.identity.status == "differs"]
    for one in differ[:NAMED]:
        where = f"{escape(one.arm)} on {escape(one.prompt)}, repeat {one.repeat + 1}"
        console.print(f"[yellow]text: {where}: {escape(one.identity.why)}[/]")
    for prompt in result.unstable:
        console.print(f"[bold red]plain decoding itself gave two texts on {escape(prompt)}[/]")


def conditions(console: Console, said: Sequence[str]) -> None:
    """What was asked and how."""
    for line in said:
        console.print(Padding(f"[dim]{escape(line)}[/]", (0, 0, 0, 2), expand=False))


def legend(console: Console, totals: Sequence[Speed], differing: str) -> None:
    """What the figures mean; `differing`: of texts that are not plain's."""
    if not totals:
        return
    noise = words.noise(totals[0].band_is_assumed, max(one.noise for one in totals))
    console.print(f"[dim]{words.SPEED_UP} {noise}[/]")
    if differing:
        console.print(f"[dim]{differing}[/]")
