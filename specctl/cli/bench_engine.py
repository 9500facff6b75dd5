"""`specctl bench --engine`: the same prompts against servers, plain against speculative."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specctl.bench.compare import compare
from specctl.bench.conduct import driven
from specctl.bench.results import Outcome, document
from specctl.bench.run import BenchPlan, RunDone
from specctl.bench.served import Fleet, check_batches
from specctl.bench.served_conduct import Ready, Step, Subject, conduct_served
from specctl.bench.stored import parse
from specctl.cli import bench_compare
from specctl.cli import bench_view as view
from specctl.cli.interrupt import ended_alike
from specctl.cli.render import err
from specctl.cores import usable_cores
from specctl.errors import UsageError
from specctl.external.flags import ENGINES
from specctl.resolve import Resolved
from specctl.settings import EngineSettings, Sampling, SpecSettings

STARTED = "llama-server"  # what specctl starts itself
KEY_VARIABLE = "SPECCTL_API_KEY"

Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="llama-server|URL",
        help="Measure a server instead: llama-server is started, plain and with each --spec-type; "
        "a URL is a running one (llama-server, vLLM, SGLang, TensorRT-LLM, specctl serve …).",
    ),
]
BaselineUrl = Annotated[
    str | None,
    typer.Option("--baseline-url", metavar="URL", help="Of the same model, not speculating."),
]
Batch = Annotated[
    str | None,
    typer.Option("--batch", metavar="N,N,…", help="Also so many requests at once: 1,2,4,8."),
]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", help=f"Of the given servers; better in ${KEY_VARIABLE}."),
]
Binary = Annotated[
    Path | None, typer.Option("--bin", help="llama-server's program, where not on PATH.")
]
InTurn = Annotated[
    bool, typer.Option("--in-turn", help="One server after the other, though memory holds all.")
]
IgnoreEos = Annotated[
    bool | None,
    typer.Option(
        "--ignore-eos/--stop-at-eos",
        help="Go on past the end of a text, so that all are equally long. Default: servers that "
        "can, and not beside --also-in-process.",
    ),
]
AlsoInProcess = Annotated[
    bool,
    typer.Option("--also-in-process", help="Then the same in-process, and both side by side."),
]


@dataclass(frozen=True, slots=True)
class Flags:
    """What the flags about servers say, checked among themselves."""

    engine: str
    baseline_url: str | None
    batches: tuple[int, ...]
    api_key: str | None
    binary: Path | None
    in_turn: bool
    ignore_eos: bool
    also: bool

    @property
    def is_given(self) -> bool:
        """A running server, by its address."""
        return self.engine != STARTED


def read_flags(
    engine: str | None,
    baseline_url: str | None,
    batch: str | None,
    api_key: str | None,
    binary: Path | None,
    in_turn: bool,
    ignore_eos: bool | None,
    also: bool,
) -> Flags | None:
    """The flags about servers; None: the benchmark is in-process.

    Raises:
        UsageError: no such engine, or a flag that has no meaning with it.
    """
    started, given = engine == STARTED, engine not in (None, STARTED)
    for flag, said, fits, with_ in (
        ("--baseline-url", baseline_url, given, "--engine URL"),
        ("--batch", batch, engine, "--engine"),
        ("--bin", binary, started, "--engine llama-server"),
        ("--in-turn", in_turn, started, "--engine llama-server"),
        ("--also-in-process", also, started, "--engine llama-server"),
        ("--api-key", api_key, given, "--engine URL"),
    ):
        if said not in (None, False) and not fits:
            raise UsageError(f"{flag} has no meaning here", f"it goes with {with_}")
    if engine is None:
        return None
    if given:
        _check_address(engine)
    return Flags(
        engine=engine,
        baseline_url=baseline_url,
        batches=_batches(batch),
        api_key=api_key or os.environ.get(KEY_VARIABLE) or None,
        binary=binary,
        in_turn=in_turn,
        ignore_eos=not also if ignore_eos is None else ignore_eos,
        also=also,
    )


def _check_address(engine: str) -> None:
    if engine in ENGINES:
        raise UsageError(
            f"--engine {engine}: a benchmark starts {STARTED} only",
            f"start it (specctl engine run {engine} …) and name its URL",
        )
    if not any(sign in engine for sign in ".:/") and engine != "localhost":
        raise UsageError(
            f"--engine {engine!r} is neither {STARTED} nor an address",
            "write it like http://127.0.0.1:8080",
        )


def _batches(text: str | None) -> tuple[int, ...]:
    sizes = []
    for part in (text or "").split(",") if text is not None else ():
        try:
            sizes.append(int(part))
        except ValueError:
            raise UsageError(f"--batch {text!r}: {part!r} is no number", "like 1,2,4,8") from None
    return check_batches(sizes)


def check_greedy(sampling: Sampling, tui: bool) -> None:
    """What a server is not asked for. Raises UsageError."""
    if not sampling.greedy or sampling.penalised:
        raise UsageError(
            "--engine measures at temperature 0 without penalties",
            "a sampled text is another one in each engine: nothing could be compared",
        )
    if tui:
        raise UsageError("--tui shows the in-process benchmark", "leave it out with --engine")


def check_theirs(
    draft: str | None,
    spec_type: Sequence[str] | None,
    k: Sequence[int] | None,
    settings: EngineSettings,
    spec: SpecSettings,
) -> None:
    """Of a running server nothing can be set. Raises UsageError for flags that would."""
    said = {
        "--draft": draft,
        "--spec-type": spec_type,
        "--k": k,
        "flags of memory, threads or context": settings != EngineSettings(),
        "flags of drafters": spec != SpecSettings(),
    }
    name = next((name for name, value in said.items() if value), None)
    if name is not None:
        raise UsageError(
            f"{name}: a running server is as it was started", "--engine llama-server starts one"
        )


# ---------------------------------------------------------------- the two ways


def measure_given(flags: Flags, model: str | None, plan: BenchPlan) -> Outcome:
    """A running server; `plan` has no arms of its own yet."""
    from specctl.cli.bench_fleet import Given

    with Given(flags.engine, flags.baseline_url, flags.api_key, model, flags.ignore_eos) as fleet:
        plan = replace(
            plan,
            model=fleet.model,
            arms=(fleet.arm,),
            baseline=fleet.has_plain,
            ignore_eog=fleet.setup().ignore_eos,
        )
        return _run(plan, flags.batches, fleet, Subject(Path(fleet.model), None, 0))


def measure_started(flags: Flags, plan: BenchPlan, files: Resolved) -> Outcome:
    """llama-server, once for each arm, with the settings that the plan has for our own engine."""
    from specctl.cli.bench_fleet import Started
    from specctl.llama.api import calm_threads

    calm_threads()  # llama-server's threads wait as ours do
    plan = with_threads(plan)
    fleet = Started(
        files.model,
        files.draft,
        plan.all_arms,
        plan.settings,
        at_once=max(flags.batches, default=1),
        binary=flags.binary,
        in_turn=flags.in_turn,
        ignore_eos=flags.ignore_eos,
    )
    drafts = any(kind.startswith("draft-") for arm in plan.arms for kind in arm.spec.types)
    subject = Subject(files.model, files.draft if drafts else None, plan.settings.threads or 0)
    return _run(plan, flags.batches, fleet, subject)


def with_threads(plan: BenchPlan) -> BenchPlan:
    """With the number that our own engine would take, so that both have the same."""
    threads = plan.settings.threads or usable_cores()
    return replace(plan, settings=replace(plan.settings, threads=threads))


def _run(plan: BenchPlan, batches: Sequence[int], fleet: Fleet, subject: Subject) -> Outcome:
    arms = ", ".join(arm.name for arm in plan.all_arms)
    sizes = f", then at once {', '.join(map(str, batches))}" if batches else ""
    prompts = view.counted(len(plan.prompts), "prompt")
    err().print(
        f"{plan.model}: {prompts} × {plan.repeats} × ({arms}), up to "
        f"{plan.max_tokens} tokens each{sizes}",
        markup=False,
        soft_wrap=True,
    )
    with ended_alike(), view.progress(err()) as show:

        def shown(step: Step) -> None:
            if isinstance(step, Ready):
                err().print(f"{step.arm}: {step.setup.title} is ready", style="dim", markup=False)
            elif isinstance(step, RunDone):
                show(step)

        return driven(conduct_served(plan, batches, fleet, subject), shown)


# ---------------------------------------------------------------- what is shown


def show_batches(console: Console, outcome: Outcome) -> None:
    """The gain by batch size, where it was measured."""
    served = outcome.served
    if served is None or served.batches is None:
        return
    view.batches(console, served.batches.rows, served.batches.undrafted, served.batches.failures)


def show_beside(console: Console, own: Outcome, theirs: Outcome) -> None:
    """Our engine as A, the server as B."""
    a, b = (parse(document(one), name) for one, name in ((own, "A"), (theirs, "B")))
    console.print()
    bench_compare.show(console, compare(a, b, across=True), "in-process", "llama-server")
