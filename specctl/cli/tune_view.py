"""What `specctl tune` shows: progress while it searches, the answer, and what is stored."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from specctl.bench import words
from specctl.bench.results import is_busy
from specctl.bench.tune import Standing
from specctl.bench.tune_steps import (
    Began,
    Disqualified,
    Loaded,
    Ran,
    Said,
    StageBegan,
    StageDone,
    Step,
)
from specctl.plan.tuned import Measured, Tuned
from specctl.units import format_seconds, number, percent

LINE_EVERY = 10.0  # seconds between progress lines where there is no terminal
NAMED = 3  # candidates named after a round
_ROUND = {"threads": "threads", "first": "round 1", "half": "round 2", "final": "last round"}
_COLOUR = {"faster": "green", "slower": "red", "no difference shown": "yellow"}


class Show(Protocol):
    """Called with every step but the answer."""

    def __call__(self, step: Step) -> None:
        """Show it."""


@contextmanager
def showing(console: Console, prompts: int) -> Iterator[Show]:
    """Steps as they come: a bar with the time left on a terminal, a line now and then elsewhere."""
    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.fields[count]}"),
        TextColumn("{task.fields[left]}"),
        TextColumn("[dim]{task.description}"),
    )
    said: set[str] = set()
    last = time.monotonic()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:

        def show(step: Step) -> None:
            nonlocal last
            if isinstance(step, Ran):
                if console.is_terminal:
                    _move(bar, step)
                elif time.monotonic() - last >= LINE_EVERY:
                    last = time.monotonic()
                    console.print(f"{_ROUND[step.stage]}: {_count(step)}, {_left(step)}")
                return
            for line in _lines(step, prompts):
                if line not in said or isinstance(step, StageDone | StageBegan):
                    said.add(line)
                    console.print(line, soft_wrap=True)

        yield show


def _move(bar: Progress, step: Ran) -> None:
    if not bar.tasks:
        bar.add_task("", total=1.0, count="", left="")
    bar.update(
        bar.task_ids[0],
        completed=step.index / step.total,
        count=f"{_ROUND[step.stage]} {_count(step)}",
        left=_left(step),
        description=f"{escape(step.arm)} {escape(step.prompt)}",
    )


def _count(step: Ran) -> str:
    return f"{step.index}/{step.total} runs"


def _left(step: Ran) -> str:
    return f"≈ {format_seconds(step.left)} left in all"


def _lines(step: Step, prompts: int) -> Iterator[str]:
    if isinstance(step, Began):
        yield (
            f"≈ {format_seconds(step.budget)} at most (--minutes): "
            f"{len(step.candidates)} candidates and plain decoding, {prompts} "
            f"prompt{'s' * (prompts != 1)} to choose from"
        )
        yield f"[dim]{escape(', '.join(step.candidates))}[/]"
        if step.runs:
            yield (
                f"going on where it was stopped: {step.runs} runs of {format_seconds(step.seconds)}"
                " are there (--fresh starts over)"
            )
        if step.replaced:
            yield "[yellow]what another search of this profile had measured is dropped[/]"
    elif isinstance(step, Loaded):
        for note in step.notes:
            yield f"[dim]{escape(note)}[/]"
        if is_busy(step.load):
            yield (
                f"[yellow]load average {step.load:.1f} on {os.cpu_count()} cores: other programs "
                "are running, expect noise[/]"
            )
    elif isinstance(step, StageBegan):
        yield _beginning(step)
    elif isinstance(step, Said):
        yield f"  {escape(step.text)}"
    elif isinstance(step, Disqualified):
        yield f"[bold red]{escape(bug(step))}[/]"
    elif isinstance(step, StageDone):
        best = ", ".join(_named(s) for s in step.standings[:NAMED])
        yield f"  best: {escape(best)}"


def bug(step: Disqualified) -> str:
    """Loud, and where."""
    return (
        f"BUG: {step.candidate} on {step.prompt}, token {step.identity.index}: "
        f"{step.identity.why}. It is out."
    )


def _beginning(step: StageBegan) -> str:
    stage = step.stage
    if stage.name == "threads":
        return f"threads: {stage.threads}, plain decoding"
    known = f", {step.known} of them are there" if step.known else ""
    about = f", ≈ {format_seconds(step.seconds)}" if step.seconds is not None else ""
    return (
        f"{_ROUND[stage.name]}: {len(stage.candidates)} candidates and plain, {stage.prompts} "
        f"prompt{'s' * (stage.prompts != 1)} × {stage.repeats}, up to {stage.max_tokens} tokens, "
        f"{stage.threads} thread{'s' * (stage.threads != 1)}: {step.runs} runs{known}{about}"
    )


def _named(standing: Standing) -> str:
    if standing.silent:
        return f"{standing.name} ({words.NEVER})"
    return f"{standing.name} {number(standing.speed.speedup, '.2f', '×')}"


# ---------------------------------------------------------------- what is stored


def stored(console: Console, tuned: Tuned) -> None:
    """A tuned profile: what runs, why, and all that was measured."""
    evidence = tuned.evidence
    console.print(f"[bold]{escape(tuned.id)}: {escape(tuned.words)}[/]", soft_wrap=True)
    for reason in evidence.answer:
        console.print(f"  {escape(reason)}", soft_wrap=True)
    console.print(_table(evidence.candidates))
    small = f" with {tuned.draft}" if tuned.draft else ""
    cost = f"{format_seconds(evidence.seconds)}, {evidence.runs} runs"
    for line in (
        f"target {tuned.model}{small}",
        f"{evidence.prompts} (sha256 {evidence.prompts_hash}), up to {evidence.max_tokens} tokens, "
        f"temperature {evidence.temperature:g}, context {evidence.ctx}",
        f"{evidence.machine}; {evidence.engine}, specctl {evidence.specctl}",
        f"{evidence.date}; it cost {cost}",
    ):
        console.print(f"[dim]{escape(line)}[/]", soft_wrap=True)


def _table(rows: tuple[Measured, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("candidate", overflow="fold", max_width=34)
    table.add_column("round", no_wrap=True)
    for heading in ("runs", "speed-\nup", "±", "tok/s", "α", "cover-\nage"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("text", no_wrap=True)
    for row in rows:
        colour = _COLOUR.get(row.verdict, "white")
        text = f"[bold red]{row.text}[/]" if row.text.startswith("BUG") else escape(row.text)
        table.add_row(
            escape(row.name),
            _ROUND.get(row.stage, row.stage),
            f"{row.prompts} × {row.repeats}",
            f"[{colour}]{number(row.speedup, '.2f', '×')}[/]",
            f"{row.noise:.0%}",
            number(row.rate, ".1f"),
            percent(row.acceptance),
            percent(row.coverage),
            text,
        )
    return table
