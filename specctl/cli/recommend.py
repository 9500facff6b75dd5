"""`specctl recommend`: which target, draft and settings for this machine, with every number why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from specctl.cli import options as o
from specctl.cli.ask import ask_wish
from specctl.cli.render import out
from specctl.errors import UsageError
from specctl.hardware.budget import primary_device
from specctl.hardware.machine import Machine, take_snapshot
from specctl.hardware.simulate import simulate
from specctl.plan import catalog
from specctl.plan.budget import NO_GPU, Budget, plan_budget
from specctl.plan.candidates import SLOW, Configuration, Wish
from specctl.plan.explain import as_json as to_json
from specctl.plan.explain import evidence_lines, k_words, pull_command, run_command, span
from specctl.plan.profile import LOOKUPS, METHODS, USES
from specctl.plan.recommend import Recommendation
from specctl.plan.recommend import recommend as rank
from specctl.units import GIB, format_bytes, parse_size

WIDE = 118  # columns from which one line a row fits
ELSEWHERE = 4  # rows shown of what needs another engine; --json has more
SERVER = "in llama-server, not in specctl chat yet"


def recommend(
    vram: o.Vram = None,
    ram: o.Ram = None,
    gpu: o.Gpu = None,
    ctx: Annotated[int, typer.Option("--ctx", help="Tokens of context; never shrunk.")] = 8192,
    use: Annotated[str, typer.Option("--use", help=", ".join(USES))] = "chat",
    max_download: Annotated[
        str | None, typer.Option("--max-download", metavar="SIZE", help="All files together.")
    ] = None,
    licence: Annotated[
        str | None, typer.Option("--licence", "--license", help="Only this one: apache-2.0, mit, …")
    ] = None,
    method: Annotated[str | None, typer.Option("--method", help=", ".join(METHODS))] = None,
    top: Annotated[int, typer.Option("--top", help="Rows.")] = 6,
    explain: Annotated[
        int | None, typer.Option("--explain", metavar="N", help="Everything about row N.")
    ] = None,
    ask: Annotated[bool, typer.Option("--ask", help="Ask a few questions first.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="All that was not chosen, and why.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Rank whole configurations (target, quant, drafter, K, KV type) that fit this machine.

    Offline, from the built-in catalogue and your own profiles. All speeds are estimates (≈). Exit
    code 0 when anything is proposed, for the CPU too, 1 when nothing is.
    """
    if explain is not None and as_json:
        raise UsageError("--explain and --json: the JSON has all of every row", "leave one out")
    wish = Wish(ctx, use, parse_size(max_download) if max_download else None, licence, method)
    if ask:
        wish = ask_wish(wish)
    machine = simulate(
        take_snapshot(),
        parse_size(vram) if vram is not None else None,
        parse_size(ram) if ram is not None else None,
        gpu,
    )
    result = rank_machine(machine, wish, top)
    rows = (*result.ranked, *result.elsewhere)
    if as_json:
        print(json.dumps(to_json(result), ensure_ascii=False, indent=2))
    elif explain is not None and rows:
        if not 1 <= explain <= len(rows):
            raise UsageError(f"--explain {explain}: there are rows 1 to {len(rows)}")
        _explain(explain, rows[explain - 1], result)
    else:
        _show(result, all_)
    if not rows:
        raise typer.Exit(1)


def rank_machine(machine: Machine, wish: Wish, top: int) -> Recommendation:
    """For the GPU; where that holds nothing, what runs on the CPU beside it."""
    models = catalog.load()
    budget = plan_budget(machine, primary_device(machine))
    result = rank(models, budget, wish, top)
    if result.ranked or result.elsewhere or budget.gpu is None or budget.unified:
        return result
    words = (
        f"Nothing fits the GPU ({budget.name}: {budget.gpu_words} = {format_bytes(budget.gpu)}):"
        " this is for the CPU, as with --vram 0"
    )
    on_cpu = rank(models, replace(plan_budget(machine, None), gpu_words=words), wish, top)
    return on_cpu if on_cpu.ranked or on_cpu.elsewhere else result


def say(text: str, style: str = "") -> None:
    """One line; square brackets in it are text."""
    out().print(text, style=style, markup=False)


def _show(result: Recommendation, everything: bool) -> None:
    _head(result.budget, result.wish)
    if not result.ranked:
        say("\n" + nothing(result))
    _rows(result.ranked, 1)
    if result.ranked:
        best = result.ranked[0]
        why = "" if best.method == "none" else f"figures: {best.acceptance_source}; "
        say(f"\n1: {why}licence {best.model.licence}")
        if best.method != "none" and not looks_up(best):
            say(f"   {k_words(best)}")
        for note in best.notes[:2]:
            say(f"   note: {note}", style="dim")
        say(f"   {pull_command(best)}")
        say(f"   {run_command(best, result.wish.ctx, result.budget)}")
    if result.elsewhere:
        say(f"\nRuns {SERVER}:", style="bold")
        _rows(result.elsewhere[:ELSEWHERE], len(result.ranked) + 1)
    refused = result.all_refused if everything else result.refused
    if refused:
        shuffled = result.ranked or result.wish.method or everything
        nearest = "" if shuffled else ", the nearest first"
        say(f"\nNot chosen{nearest}:", style="bold")
        for refusal in refused:
            say(f"   {refusal.name}: {refusal.reason}")
    hints = ["All that was not chosen: specctl recommend … --all"]
    if result.ranked or result.elsewhere:
        hints.insert(0, "More on row N: specctl recommend … --explain N")
    out().print()
    for hint in hints:
        say(hint, style="dim")


def nothing(result: Recommendation) -> str:
    """Why the first list is empty."""
    method = result.wish.method
    if result.elsewhere:
        return f"Nothing {'with ' + method + ' ' if method else ''}for specctl chat."
    if method is not None:
        return f"Nothing with {method} both fits and gains enough; leave --method out."
    return "Nothing fits."


def _head(budget: Budget, wish: Wish) -> None:
    gpu = budget.gpu is not None
    size, words = (budget.gpu or 0, budget.gpu_words) if gpu else (budget.ram, budget.ram_words)
    simulated = " [simulated]" if budget.simulated else ""
    where = budget.name if gpu else f"CPU only ({budget.name})"
    out().print(
        Text(f"{where}{simulated}: {format_bytes(size)} to plan with ({words})", style="bold")
    )
    pace = budget.gpu_pace or budget.cpu_pace
    say(f"{pace.bandwidth / 1e9:.0f} GB/s: {pace.source}")
    if not gpu and budget.gpu_words != NO_GPU:
        say(budget.gpu_words)
    if gpu and not budget.unified:
        say(f"RAM for experts: {format_bytes(budget.ram)} ({budget.ram_words})")
    out().print(
        f"ctx {wish.ctx} · use {wish.use} · quality class 5 is best · all speeds are estimates (≈);"
        f" below {SLOW:.0f} tok/s last"
    )


def _rows(rows: tuple[Configuration, ...], first: int) -> None:
    if not rows:
        return
    out().print()
    if out().width >= WIDE:
        out().print(_table(rows, first))
        return
    for rank_, one in enumerate(rows, first):
        line = Text(f"{rank_:2}  ")
        line.append(f"{one.model.id} {one.selection.file.quant}", style="bold")
        line.append(f" · {drafter_words(one)}")
        speed = f"≈{speed_words(one)} tok/s"
        gap = out().width - line.cell_len - len(speed)
        line.append(" " * gap if gap > 1 else "\n      ").append(speed)
        out().print(line)
        out().print(
            f"    class {one.quality:g} · {memory_words(one)} GiB · ctx ≤ {ctx_words(one)} ·"
            f" get {download_words(one)} GiB{_even(one)}",
            style="dim",
        )


def _table(rows: tuple[Configuration, ...], first: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("#", "class", "target"):
        table.add_column(name, no_wrap=True)
    table.add_column("drafter")
    for name in ("memory GiB", "ctx to", "get GiB", "tok/s ≈ plain → with", "break-even ≈"):
        table.add_column(name, justify="right", no_wrap=True)
    for rank_, one in enumerate(rows, first):
        table.add_row(
            str(rank_),
            f"{one.quality:g}",
            f"{one.model.id} {one.selection.file.quant}",
            drafter_words(one),
            memory_words(one),
            ctx_words(one),
            download_words(one),
            speed_words(one),
            "–" if one.method == "none" else _range(one.prediction.break_even, 1),
        )
    return table


def drafter_words(one: Configuration) -> str:
    """The drafter with K, its model, and what had to be given up."""
    words = "no speculation" if one.method == "none" else f"{one.method} K {one.prediction.k}"
    if looks_up(one):
        words = "look-up drafting (auto)"
    if one.selection.draft_model is not None:
        words += f" ({one.selection.draft_model.id})"
    if one.kv_type != "f16":
        words += f", KV {one.kv_type}"
    return words + (f", experts of {one.fit.cpu_moe} layers in RAM" if one.fit.cpu_moe else "")


def looks_up(one: Configuration) -> bool:
    """It needs no draft's file: what runs is specctl chat's `auto`, whatever is priced."""
    return one.in_process and one.method in LOOKUPS


def memory_words(one: Configuration) -> str:
    """GiB used of those there are."""
    return f"{one.fit.used / GIB:.1f}/{one.budget / GIB:.1f}"


def ctx_words(one: Configuration) -> str:
    """Tokens of context that fit."""
    return f"{one.usable_ctx // 1024}K"


def download_words(one: Configuration) -> str:
    """GiB of all files; ≈ where it is no listed byte count."""
    return f"{'' if one.download_exact else '≈'}{one.download / GIB:.1f}"


def speed_words(one: Configuration) -> str:
    """Tokens per second plain → with the drafter, both ranges of estimates."""
    plain = _range(one.prediction.plain, 0)
    return plain if one.method == "none" else f"{plain} → {_range(one.prediction.spec, 0)}"


def _even(one: Configuration) -> str:
    if one.method == "none":
        return ""
    return f" · break-even ≈{_range(one.prediction.break_even, 1)}"


def _range(value: tuple[float, float], digits: int) -> str:
    if value[1] < 10 and digits == 0:
        digits = 1
    low, high = (f"{number:.{digits}f}" for number in value)
    return low if low == high else f"{low}–{high}"


def _explain(number: int, one: Configuration, result: Recommendation) -> None:
    console = out()
    _head(result.budget, result.wish)
    _rows((one,), number)
    say("\nMemory", style="bold")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("part")
    table.add_column("GPU", justify="right")
    table.add_column("RAM", justify="right")
    for name, on_gpu, in_ram in one.fit.parts:
        table.add_row(name, *(format_bytes(size) if size else "–" for size in (on_gpu, in_ram)))
    table.add_row("together", format_bytes(one.fit.gpu), format_bytes(one.fit.ram))
    console.print(table)
    for title, lines in _facts(one, result):
        say(f"\n{title}", style="bold")
        for line in lines:
            say(f"   {line}")


def _facts(one: Configuration, result: Recommendation) -> Iterator[tuple[str, list[str]]]:
    prediction, model = one.prediction, one.model
    speed = [f"plain ≈{_range(prediction.plain, 1)} tok/s"]
    if one.method != "none":
        speed += [
            f"with {'look-up drafting' if looks_up(one) else one.method}, K {prediction.k}"
            f" priced: ≈{_range(prediction.spec, 1)} tok/s,"
            f" ≈{_range(prediction.speedup, 2)}-fold",
            f"from: {one.acceptance_source}",
            k_words(one),
            f"break-even: ≈{_range(prediction.break_even, 2)} accepted per cycle of"
            f" {prediction.k} drafted",
        ]
    if prediction.tokens_per_pass is not None and one.method != "none":
        speed.append(f"tokens per pass: ≈{span(prediction.tokens_per_pass)}")
    yield "Speed (estimates)", speed
    rows = evidence_lines(one, result)
    if rows:
        yield "Measured by others, numbers as given [trust: H high, M medium, L low]", rows
    yield (
        "Quality",
        [
            f"class {one.quality:g}, from {model.quality} for the model ({model.quality_source})"
            " and what quant and use add or take"
        ],
    )
    files = [
        f"{file.repo or file.folder}/{name}" for file in one.selection.files for name in file.names
    ]
    sizes = sorted({file.sizes for file in one.selection.files})
    yield "Files", [*files, f"{download_words(one)} GiB, sizes from {', '.join(sizes)}"]
    licence = [model.licence, *([model.licence_note] if model.licence_note else [])]
    yield "Licence", [": ".join(licence)]
    notes = [*one.notes, *model.notes]
    if one.selection.draft is not None and one.selection.draft.note:
        notes.append(f"draft: {one.selection.draft.note}")
    if notes:
        yield "Notes", notes
    others = [f"{r.name}: {r.reason}" for r in result.all_refused if r.model == model.id]
    if others:
        yield "Not chosen of this model", others
    where = "specctl chat" if one.in_process else SERVER
    yield (
        f"Next (runs {where})",
        [
            pull_command(one),
            run_command(one, result.wish.ctx, result.budget),
        ],
    )
