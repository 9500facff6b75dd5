"""A kept result as text: the tables that the benchmark printed, and what else it keeps."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from specctl.bench import words
from specctl.bench.report import fastest_first
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
    console.print(view.speeds(shown, wide, undrafted=kept.undrafted))
    console.print(view.reasons(shown, wide))
    for row in kept.totals:
        view.arm(console, _shown(row), fastest_first(kept.prompt_speeds, row.arm))
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
    if kept.served is not None and kept.served.batches:
        served = kept.served
        rows = [_shown(row) for row in served.batches]
        view.batches(console, rows, served.batch_undrafted, served.batch_failures)
    view.conditions(console, kept.conditions)
    if kept.busy is not None:
        where = kept.busy_where
        load = f"(load average {kept.busy:.1f})"
        console.print(f"[yellow]Other programs were running{where} {load}.[/]")


def _where(kept: Stored) -> str:
    machine = [str(kept.machine[key]) for key in ("cpu", "system") if key in kept.machine]
    took = format_seconds(kept.wall_seconds)
    if kept.is_of_theirs:
        machine = [kept.engine, kept.asked_from(", ".join(machine))]
    else:
        machine = [*machine, kept.engine]
    return f"{', '.join(machine)}; up to {kept.max_tokens} tokens each, {took}"


def _shown(row: StoredRow) -> view.Shown:
    return view.Shown(row.workload, row.arm, row.speed, row, row.plain_ttft, row.ttft, row.identity)
