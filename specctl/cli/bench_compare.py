"""`specctl bench compare A B`: two kept results side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from specctl.bench import words
from specctl.bench.compare import Comparison, Pair, compare, document
from specctl.bench.stored import Stored, load
from specctl.cli.render import out
from specctl.units import number, percent

_COLOUR = {"faster": "green", "slower": "red", "no difference shown": "yellow"}


def bench_compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A result, by path or kept name.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The one to compare it with.")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    across: Annotated[
        bool, typer.Option("--across-engines", help="One may be in-process, the other a server's.")
    ] = False,
) -> None:
    """Compare two results of specctl bench: did B's speed-up change against A's?

    Results are what --json wrote or the data folder keeps. Runs of another model,
    other prompts, length, sampling, threads or settings are refused, with all that
    differs (exit 2). The drafters' own settings, the draft model and the machine may
    differ: that is what is compared, and it is said. --across-engines puts a server
    beside our own engine, with the same model file, prompts and length.
    """
    found = compare(load(a), load(b), across)
    if as_json:
        json.dump(document(found), sys.stdout, ensure_ascii=False, indent=1)
        print()
        return
    show(out(), found, a, b)


def show(console: Console, found: Comparison, a: str, b: str) -> None:
    """Who is who, the two tables, and what else differs."""
    for letter, name, one in (("A", a, found.a), ("B", b, found.b)):
        console.print(f"[bold]{letter}[/]  {escape(name)}: {escape(what(one))}", soft_wrap=True)
    console.print(_speeds(found))
    console.print(_reasons(found))
    for note in found.notes:
        console.print(f"[yellow]{escape(note)}[/]")
    console.print(f"[dim]{_legend(found)}[/]")


def what(one: Stored) -> str:
    """What was measured, in a line."""
    with_draft = f" + {one.draft.file}" if one.draft else ""
    times = "once each" if one.repeats == 1 else f"{one.repeats} times each"
    return (
        f"{one.date[:10]}, {one.model.file}{with_draft}, {len(one.prompts)} prompts {times}, "
        f"{_engine(one)}{one.threads_said}, specctl {one.specctl}"
    )


def _engine(one: Stored) -> str:
    return f"{one.served.title}, " if one.served else ""


def _speeds(found: Comparison) -> Table:
    table = _table("Does it pay more?")
    for heading in (
        *("plain A\ntok/s", "plain B\ntok/s"),
        *("speed-\nup A", "speed-\nup B", "change\nB to A"),
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for pair in _with_headings(table, found):
        colour = _COLOUR[pair.verdict]
        table.add_row(
            f" {escape(pair.arm)}",
            number(pair.a.speed.plain_rate, ".1f"),
            number(pair.b.speed.plain_rate, ".1f"),
            number(pair.a.speed.speedup, ".2f", "×"),
            number(pair.b.speed.speedup, ".2f", "×"),
            _signed(pair.change),
            f"[{colour}]{words.SHORT[pair.verdict]}[/]" if pair.change else "–",
        )
    return table


def _reasons(found: Comparison) -> Table:
    table = _table("Why?")
    for heading in (
        *("α A", "α B", "accepted\n/cycle A", "accepted\n/cycle B"),
        *("break-\neven A", "break-\neven B"),
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for pair in _with_headings(table, found):
        table.add_row(
            f" {escape(pair.arm)}",
            percent(pair.a.acceptance_rate),
            percent(pair.b.acceptance_rate),
            number(pair.a.accepted_per_cycle),
            number(pair.b.accepted_per_cycle),
            number(pair.a.break_even),
            number(pair.b.break_even),
        )
    return table


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("workload, arm", overflow="fold", max_width=26)
    return table


def _with_headings(table: Table, found: Comparison) -> Iterator[Pair]:
    """Each pair, after a row that names its workload."""
    last: object = object()
    several = len({pair.workload for pair in found.pairs}) > 2
    for pair in found.pairs:
        if not several and pair.workload is not None:  # the total is that one workload
            continue
        if pair.workload != last:
            if last.__class__ is str:
                table.add_section()
            name = pair.workload or ("total" if several else "all prompts")
            table.add_row(f"[bold]{escape(name)}[/]")
        yield pair
        last = pair.workload


def _signed(change: float | None) -> str:
    return "–" if change is None else f"{(change - 1) * 100:+.1f} %"


def _legend(found: Comparison) -> str:
    a, b = (
        max((row.speed.noise for row in one.rows if row.workload is None), default=0.0)
        for one in (found.a, found.b)
    )
    assumed = any(
        pair.a.speed.band_is_assumed or pair.b.speed.band_is_assumed for pair in found.pairs
    )
    return (
        "Change: speed-up B over speed-up A, each against its own plain run. Faster and slower are "
        f"said only where the noise of both does not explain it (in total ±{a:.1%} in A, "
        f"±{b:.1%} in B{'; assumed where there was one run' if assumed else ''})."
    )
