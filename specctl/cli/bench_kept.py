"""A kept result as text: the tables that the benchmark printed, and what else it keeps."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from specctl.bench import words
from specctl.bench.report import PromptSpeed
from specctl.bench.stored import Stored, StoredRow
from specctl.cli import bench_view as view
from specctl.cli.bench_compare import what
from specctl.units import format_seconds


def show(console: Console, kept: Stored) -> None:
    """What was measured and where, the tables, each arm in words, and what went wrong."""
    wide = console.width >= view.WIDE
    shown = [_shown(row) for row in kept.shown]
    console.print(f"[bold]{escape(what(kept))}[/]")
    console.print(f"[dim]{escape(_where(kept))}[/]")
    if kept.interrupted:
        console.print("[yellow]stopped early: this is about the prompts that every arm has done[/]")
    console.print(view.speeds(shown, wide))
    console.print(view.reasons(shown, wide))
    for row in kept.totals:
        view.arm(console, _shown(row), _of(kept, row.arm))
    for silent in kept.undrafted:
        on = f" on {silent.workload}" if silent.workload else ""
        because = "; ".join(f"{reason} ({count})" for reason, count in silent.reasons[:3])
        console.print(
            f"[yellow]{escape(silent.arm)}{escape(on)}: 0 of {silent.cycles} cycles drafted, "
            f"because: {escape(because or 'no reason given')}[/]"
        )
    for failure in kept.failures:
        console.print(f"[bold red]{escape(failure)}[/]")
    for note in kept.notes:
        console.print(f"[dim]{escape(note)}[/]")
    view.legend(console, [row.speed for row in kept.totals], words.differing(kept.totals))
    view.conditions(console, kept.conditions)
    if kept.busy is not None:
        console.print(f"[yellow]Other programs were running (load average {kept.busy:.1f}).[/]")


def _where(kept: Stored) -> str:
    machine = [str(kept.machine[key]) for key in ("cpu", "system") if key in kept.machine]
    took = format_seconds(kept.wall_seconds)
    return f"{', '.join([*machine, kept.engine])}; up to {kept.max_tokens} tokens each, {took}"


def _shown(row: StoredRow) -> view.Shown:
    return view.Shown(row.workload, row.arm, row.speed, row, row.plain_ttft, row.ttft, row.identity)


def _of(kept: Stored, arm: str) -> tuple[PromptSpeed, ...]:
    """As `Report.of`: this arm's prompts that can be compared, fastest first."""
    known = [p for p in kept.prompt_speeds if p.arm == arm and p.speed.speedup is not None]
    return tuple(sorted(known, key=lambda p: -(p.speed.speedup or 0)))
