"""`specctl verify`: is speculative decoding lossless here? Same text, a tie, or a bug."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from specctl.cli import aliases, bound
from specctl.cli import options as o
from specctl.cli.fetching import resolved
from specctl.cli.render import err, out
from specctl.demo import DEMO
from specctl.errors import UsageError
from specctl.resolve import Resolved
from specctl.settings import EngineSettings, Sampling, SpecSettings
from specctl.units import format_seconds

if TYPE_CHECKING:
    from specctl.bench.results import Outcome

_TEMPERATURE = 0.8  # of the sampled half


def verify(
    models: Annotated[
        list[str] | None, typer.Argument(help="Named like --model of chat; default demo.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="The same; repeatable.")
    ] = None,
    draft: o.DraftModel = None,
    spec_type: Annotated[
        list[str] | None,
        typer.Option("--spec-type", "-s", help="Repeatable; default: all that run here."),
    ] = None,
    k: Annotated[int | None, typer.Option("--k", help="Most tokens drafted per cycle.")] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", help="Tokens a prompt.")] = 64,
    all_prompts: Annotated[
        bool, typer.Option("--all", help="All built-in prompts instead of one per workload.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of the sampled half.")] = 1,
    ctx: o.Ctx = 2048,
    threads: o.Threads = None,
) -> None:
    """Compare speculative with plain decoding, token by token, greedy and sampled.

    A difference is a tie where the logits were so close that rounding of batched passes decided;
    it is decoded again to prove that. Everything else is a bug, and exits with 1. Stopped by Ctrl-C
    it says what was not compared, and exits with 130.
    """
    settings = EngineSettings(n_ctx=ctx, threads=threads)
    _specs(spec_type, k)  # what cannot be meant is said before anything is fetched
    halves = (Sampling(), Sampling(temperature=_TEMPERATURE, seed=seed))
    asked = [*(models or ()), *(model or ())] or [DEMO]
    due = [(name, half) for name in asked for half in halves]
    bugs = done = 0
    try:
        for name in asked:
            files = resolved(name, draft)
            specs, files = aliases.settle(_specs(spec_type, k, files), files, draft)
            for half in halves:
                outcome = _compare(name, files, specs, half, settings, max_tokens, all_prompts)
                bugs += _show(name, half, outcome)
                if outcome.interrupted:
                    raise KeyboardInterrupt
                done += 1
    except KeyboardInterrupt:
        _say_incomplete(due[done:])
        raise typer.Exit(1 if bugs else 130) from None
    if bugs:
        raise typer.Exit(1)


def _say_incomplete(missing: list[tuple[str, Sampling]]) -> None:
    """What was not compared, or not all of it."""
    names = ", ".join(f"{name} {_how(half)}" for name, half in missing)
    said = f"stopped, so this is incomplete. Not compared, or not on all prompts: {names}"
    err().print(said, markup=False, soft_wrap=True)


def _how(sampling: Sampling) -> str:
    return "greedy" if sampling.greedy else f"at temperature {sampling.temperature:g}"


def _specs(
    names: list[str] | None, k: int | None, files: Resolved | None = None
) -> list[SpecSettings]:
    """Those asked for, or all that run with `files`."""
    if names is None:
        names = _all_types(files) if files else []
    specs = [SpecSettings(types=tuple(name.split(",")), k=k) for name in names]
    for spec in specs:
        aliases.check_types(spec)
        if spec.types == ("none",):
            raise UsageError("plain decoding is what the others are compared with")
    return specs


def _all_types(files: Resolved) -> list[str]:
    """Whatever runs with these models."""
    from specctl.drafters.registry import SPEC_TYPES

    own = bound.types_of(files.model, files.draft)
    return [
        kind.name
        for kind in SPEC_TYPES.values()
        if kind.name in own or not (kind.draft_model or kind.heads)
    ]


def _compare(
    model: str,
    files: Resolved,
    specs: list[SpecSettings],
    sampling: Sampling,
    settings: EngineSettings,
    max_tokens: int,
    all_prompts: bool,
) -> Outcome:
    from specctl.bench import workloads
    from specctl.bench.conduct import Checking, conduct
    from specctl.bench.results import Outcome
    from specctl.bench.run import Arm, BenchPlan, Calibration, RunDone
    from specctl.cli import bench_view as view
    from specctl.engine.session import open_session

    prompts = workloads.load()
    if not all_prompts:
        prompts = tuple({prompt.family: prompt for prompt in reversed(prompts)}.values())[::-1]
    plan = BenchPlan(
        model=model,
        draft=files.draft.name if files.draft else None,
        prompts=prompts,
        arms=tuple(Arm(",".join(spec.types), spec) for spec in specs),
        settings=settings,
        sampling=sampling,
        max_tokens=max_tokens,
        repeats=1,
    )
    err().print(
        f"{model}, {_how(sampling)}: {len(prompts)} prompts × (plain, {', '.join(_names(specs))})"
    )
    outcome: Outcome | None = None
    with view.progress(err()) as show:
        for step in conduct(plan, files.model, files.draft, open_session):
            if isinstance(step, Calibration):
                err().print(_estimate(step.estimated_seconds, sampling))
            elif isinstance(step, RunDone):
                show(step)
            elif isinstance(step, Checking):
                view.checking(err(), step)
            elif isinstance(step, Outcome):
                outcome = step
    assert outcome is not None
    return outcome


def _estimate(seconds: float, sampling: Sampling) -> str:
    """Of this half, and of the one that is still to come: as many runs of as many tokens."""
    here = f"≈ {format_seconds(seconds)}"
    if sampling.greedy:
        here = f"≈ {format_seconds(2 * seconds)} for both halves, half of it greedy"
    return f"{here}; where texts differ, ties are proved after that"


def _names(specs: list[SpecSettings]) -> list[str]:
    return [",".join(spec.types) for spec in specs]


def _show(model: str, sampling: Sampling, outcome: Outcome) -> int:
    """Print one half; how many bugs it has."""
    cut = f", {len(outcome.plan.prompts)} prompts until it was stopped"
    title = f"{model}, {_how(sampling)}{cut if outcome.interrupted else ''}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for heading in ("spec type", "texts", "identical", "tie", "bug", "drafted", "accepted"):
        table.add_column(heading, justify="left" if heading == "spec type" else "right")
    bugs = 0
    for arm in outcome.plan.arms:
        found = Counter(
            identity.status for key, identity in outcome.identities.items() if key[1] == arm.name
        )
        runs = [run for run in outcome.runs if run.arm == arm.name]
        bugs += found["bug"]
        table.add_row(
            arm.name,
            str(len(runs)),
            "in law" if found["law"] else str(found["same"]),
            str(found["tie"]),
            str(found["bug"]),
            str(sum(run.totals.drafted for run in runs)),
            str(sum(run.totals.accepted for run in runs)),
        )
    out().print(table)
    for arm in outcome.plan.arms:
        if not any(run.totals.drafted for run in outcome.runs if run.arm == arm.name):
            out().print(
                f"  {arm.name} drafted nothing: this proves nothing of it; more --max-tokens?"
            )
    for (prompt, arm_name, _), identity in outcome.identities.items():
        if identity.status in ("tie", "bug"):
            line = f"  {identity.status}: {arm_name} on {prompt}, token {identity.index}"
            out().print(f"{line}: {identity.why}", markup=False)
    return bugs
