"""`specctl make-draft`: a draft of a model from itself, kept where it pays."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from specctl import __version__
from specctl.bench import selfdraft_steps as job
from specctl.bench import workloads
from specctl.bench.forecast import AtK
from specctl.bench.results import check_writable, is_busy, machine, write
from specctl.bench.selfdraft import make
from specctl.bench.selfdraft_plan import K_MOST, KS, DraftPlan, Prepared, prepare
from specctl.cli import options as opt
from specctl.cli.interrupt import ended_alike
from specctl.cli.render import err, out
from specctl.errors import UsageError
from specctl.hub.drafts import ALIAS
from specctl.llama.quantise import QUANTS
from specctl.units import format_bytes, format_seconds, percent

SCHEMA = "specctl-make-draft/1"
DEFAULT_WORKLOADS = ("code-edit", "chat")  # one that repeats its prompt, one that does not
PER_WORKLOAD = 2
LINE_EVERY = 10.0  # seconds between progress lines where there is no terminal


def make_draft(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=f"The model: {opt.MODEL_FORMS}.")],
    quant: Annotated[
        list[str] | None,
        typer.Option(
            "--quant", "-q", help=f"Repeatable; default Q2_K, Q3_K_S. {', '.join(QUANTS)}."
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            "-w",
            help=f"Repeatable; default two prompts each of {' and '.join(DEFAULT_WORKLOADS)}.",
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", help="Your own: JSON lines, or text divided by lines of ---."),
    ] = None,
    drop_layers: Annotated[
        int | None,
        typer.Option(
            "--drop-layers",
            metavar="N",
            help="Leave out N layers in the middle instead of, or with -q beside, re-quantising; "
            "did not pay where it was measured.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", help="Keep the best one here, paying or not.")
    ] = None,
    k: Annotated[
        list[int] | None, typer.Option("--k", help="Draft lengths to judge; repeatable.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", help="Of each answer that is compared.")
    ] = 96,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be made and how large, and stop.")
    ] = False,
    json: Annotated[
        Path | None, typer.Option("--json", help="Write the whole result here.")
    ] = None,
    ctx: opt.Ctx = 4096,
    threads: opt.Threads = None,
    gpu_layers: opt.GpuLayers = -1,
    draft_gpu_layers: opt.DraftGpuLayers = -1,
    kv_type: opt.KvType = "f16",
    draft_kv_type: opt.DraftKvType = "f16",
    n_cpu_moe: opt.CpuMoe = 0,
    flash_attn: opt.FlashAttn = "auto",
) -> None:
    """Make a draft of a model by re-quantising it, and keep it only where it pays.

    The target answers the prompts once; each draft reads those answers, its choice is compared at
    every position, and the passes of both are timed on this machine: an estimate of the speed-up
    follows, with its noise. A draft that pays is kept, and --spec-type draft-self uses it.
    """
    from specctl.cli.fetching import resolved

    if max_tokens < 2:
        raise UsageError(f"--max-tokens {max_tokens} is below 2")
    if drop_layers is not None and drop_layers < 1:
        why = "drops nothing" if drop_layers == 0 else "is below 1"
        raise UsageError(f"--drop-layers {drop_layers} {why}", "leave it out, or say how many")
    for one in k or ():
        if not 1 <= one <= K_MOST:
            raise UsageError(f"--k {one} is not in 1 … {K_MOST}")
    if json is not None:
        check_writable(json)
    texts = _prompts(workload, prompts)
    # fmt: off
    settings = opt.engine_settings(
        ctx, threads, gpu_layers, kv_type, draft_gpu_layers, draft_kv_type, n_cpu_moe, flash_attn
    )
    # fmt: on
    plan = DraftPlan(
        name=target,
        target=resolved(target).model,
        prompts=texts,
        workload=", ".join(dict.fromkeys(prompt.family for prompt in texts)),
        quants=tuple(one.upper() for one in quant or ()),
        drop=drop_layers or 0,
        settings=settings,
        ks=tuple(sorted(set(k))) if k else KS,
        max_tokens=max_tokens,
        out=output,
    )
    if dry_run:
        _say_plan(plan, prepare(plan))
        return
    with ended_alike():  # what is half made goes, whoever ends it
        outcome = _run(plan)
    _report(outcome)
    if json is not None:
        write(json, _document(outcome))


def _prompts(families: list[str] | None, file: Path | None) -> tuple[workloads.Prompt, ...]:
    own = workloads.read_file(file) if file else ()
    if families or file:
        return (*own, *(workloads.load(families) if families else ()))
    found: list[workloads.Prompt] = []
    for family in DEFAULT_WORKLOADS:
        found += workloads.load([family])[:PER_WORKLOAD]
    return tuple(found)


def _say_plan(plan: DraftPlan, prepared: Prepared) -> None:
    out().print(_about(plan, prepared), markup=False, soft_wrap=True)
    for note in prepared.notes:
        out().print(note, style="dim", markup=False, soft_wrap=True)
    for one in prepared.wanted:
        line = f"would make {one.quant}, ≈ {format_bytes(one.size)}, as {one.file}"
        out().print(line, markup=False, soft_wrap=True)
    out().print(f"{format_bytes(prepared.free)} are free there; nothing was made")


def _about(plan: DraftPlan, prepared: Prepared) -> str:
    return (
        f"{plan.target.name}: {prepared.facts.quant}, {prepared.bits:.1f} bits a weight, "
        f"{format_bytes(prepared.size)}"
    )


# ---------------------------------------------------------------- while it runs


def _run(plan: DraftPlan) -> job.Outcome:
    from specctl.engine.session import open_session

    outcome: job.Outcome | None = None
    with _progress() as show, contextlib.closing(make(plan, open_session)) as steps:
        for step in steps:
            if isinstance(step, Prepared):
                err().print(_about(plan, step), markup=False, soft_wrap=True)
                for note in step.notes:
                    err().print(note, style="dim", markup=False, soft_wrap=True)
                err().print(
                    f"{len(plan.prompts)} prompts of {plan.workload}, answers of up to "
                    f"{plan.max_tokens} tokens, greedy",
                    markup=False,
                )
            elif isinstance(step, job.Made):
                err().print(_made(step), markup=False, soft_wrap=True)
            elif isinstance(step, job.Twin):
                err().print(_twin(step), markup=False, soft_wrap=True)
            elif isinstance(step, job.Outcome):
                outcome = step
            elif not isinstance(step, job.Judged):
                show(*_place(step))
    assert outcome is not None
    return outcome


def _made(made: job.Made) -> str:
    """What came out, by tensor types: llama.cpp's fallbacks show here."""
    total = sum(size for _, size in made.types)
    mix = ", ".join(
        f"{size / total:.0%} {label}" for label, size in made.types if size > total / 50
    )
    line = (
        f"{made.quant}: {format_bytes(made.size)}, {made.bits:.1f} bits a weight ({mix}), "
        f"in {format_seconds(made.seconds)}"
    )
    label = QUANTS[made.kind][1] if made.kind else None
    if label is not None and not made.mostly(label):
        line += (
            f"\n  most of it is not {label}: llama.cpp gives matrices whose rows "
            "are no multiple of its block, and the ends, a larger type"
        )
    return line


def _twin(twin: job.Twin) -> str:
    return (
        f"  {twin.quant} came out as {twin.of} did, tensor for tensor: llama.cpp gave both the "
        f"same types; {twin.of} stands for both"
    )


def _place(step: job.Step) -> tuple[str, int, int, float | None]:
    """What is being done, how far, of how much, seconds left."""
    if isinstance(step, job.Answered):
        return "the target answers", step.index, step.total, step.eta
    if isinstance(step, job.Quantised):
        return f"{step.quant}: quantising", step.done, step.total, None
    if isinstance(step, job.Read):
        return f"{step.quant}: reading the answers", step.index, step.total, None
    assert isinstance(step, job.Measured)
    return f"{step.quant}: timing", step.done.index, step.done.total, step.done.eta


Show = Callable[[str, int, int, float | None], None]


@contextlib.contextmanager
def _progress() -> Iterator[Show]:
    """A bar on a terminal, a line now and then elsewhere."""
    if not err().is_terminal:
        last = time.monotonic()

        def line(what: str, done: int, total: int, eta: float | None) -> None:
            nonlocal last
            if time.monotonic() - last >= LINE_EVERY:
                last = time.monotonic()
                err().print(f"{what}: {done}/{total}{_left(eta)}", markup=False)

        yield line
        return
    columns = (BarColumn(bar_width=30), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=err(), transient=True) as bar:
        task = bar.add_task("opening the model", total=None)

        def move(what: str, done: int, total: int, eta: float | None) -> None:
            words = f"{what} {done}/{total}{_left(eta)}"
            bar.update(task, completed=done, total=total, description=words)

        yield move


def _left(eta: float | None) -> str:
    return f", ≈ {format_seconds(eta)} left" if eta else ""


# ---------------------------------------------------------------- when it is done


def _report(outcome: job.Outcome) -> None:
    console = out()
    table = Table(box=None, pad_edge=False)
    table.add_column("draft")
    for heading in ("step", "agrees", "K", "accepted", "needed", "≈ speed-up"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("by prompt", no_wrap=True)
    for found in outcome.judged:
        best, beta = found.forecast.best, found.forecast.beta
        costs = found.forecast.costs
        table.add_row(
            found.made.quant,
            f"{costs.step_ratio:.2f} t₁" if costs.step_ratio else "–",
            percent(beta),
            str(best.k),
            f"{best.accepted:.2f}",
            f"{best.break_even:.2f}",
            f"{best.speedup:.2f}× ± {best.noise:.0%}",
            f"{best.low:.2f}–{best.high:.2f}",
        )
    console.print(table)
    costs = outcome.best.forecast.costs
    console.print(
        f"t₁ {format_seconds(costs.t_1)} at {costs.n_past} tokens of context, "
        f"{outcome.threads} threads; accepted and needed are tokens per cycle at that K. "
        "Estimates: of these prompts, greedy; ± is that of the timing alone.",
        style="dim",
        soft_wrap=True,
    )
    if is_busy(outcome.load):
        console.print(f"load average {outcome.load:.1f}: other programs were running, expect noise")
    for line in _verdict(outcome):
        console.print(line, markup=False, soft_wrap=True)


def _verdict(outcome: job.Outcome) -> list[str]:
    best = outcome.best
    expected, kept = best.forecast.best, outcome.kept
    lines = [_words(best, expected)]
    if kept is None:
        lines[0] += "; nothing kept"
        return lines
    lines[0] += f"; kept, {format_bytes(kept.size)}: {kept.path}"
    name = outcome.plan.name
    lines += [
        f"use it:     specctl chat -m {name} -s {ALIAS}",
        f"measure it: specctl bench -m {name} -s {ALIAS} -w {outcome.plan.prompts[0].family}",
    ]
    return lines


def _words(best: job.Judged, expected: AtK) -> str:
    ratio = best.forecast.costs.step_ratio
    step = f"{best.made.quant} drafts at {ratio:.2f} of the target's own step: " if ratio else ""
    word = {
        "faster": "faster",
        "slower": "slower",
        "no difference shown": f"no difference shown (± {expected.noise:.0%})",
    }[expected.verdict]
    return (
        f"{step}at K {expected.k} it needs {expected.break_even:.2f} accepted per cycle and would "
        f"get {expected.accepted:.2f}: {word}, ≈ {expected.speedup:.2f}×"
    )


def _document(outcome: job.Outcome) -> dict[str, Any]:
    """The result as JSON-ready values; no folder but that of the draft."""
    plan, kept = outcome.plan, outcome.kept
    return {
        "schema": SCHEMA,
        "specctl": __version__,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(outcome.unix_time)),
        "wall_seconds": round(outcome.wall_seconds, 3),
        "machine": {**machine(), "threads": outcome.threads, "load_before": outcome.load},
        "target": {
            "name": plan.target.name,
            "quant": outcome.prepared.facts.quant,
            "weights_bytes": outcome.prepared.size,
            "bits_per_weight": outcome.prepared.bits,
        },
        "prompts": [prompt.key for prompt in plan.prompts],
        "max_tokens": plan.max_tokens,
        "drafts": [_draft(found) for found in outcome.judged],
        "kept": None if kept is None else {"file": kept.file, "quant": kept.quant, "k": kept.k},
    }


def _draft(found: job.Judged) -> dict[str, Any]:
    made, said = found.made, found.forecast
    costs = said.costs
    return {
        "quant": made.quant,
        "bytes": made.size,
        "bits_per_weight": made.bits,
        "tensor_type_bytes": dict(made.types),
        "quantise_seconds": made.seconds,
        "positions": said.positions,
        "agreement": said.beta,
        "t_1": costs.t_1,
        "n_past": costs.n_past,
        "pass_seconds": {rows: timing.rounds for rows, timing in costs.passes},
        "plain_seconds": costs.plain.rounds,
        "draft_seconds": {
            name: timing.rounds
            for name, timing in (("first", costs.first), ("next", costs.next), ("pair", costs.pair))
            if timing is not None
        },
        "k_star": said.k_star,
        "pays": said.pays,
        "lengths": [
            {
                "k": one.k,
                "alpha": one.alpha,
                "accepted_per_cycle": one.accepted,
                "accepted_whole": one.whole,
                "break_even": one.break_even,
                "cycle_seconds": one.cycle_seconds,
                "speedup": one.speedup,
                "noise": one.noise,
                "low": one.low,
                "high": one.high,
            }
            for one in said.lengths
        ],
    }
