"""`specctl bench`: does speculation pay here, on this model, on these texts?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from specctl.bench import words, workloads
from specctl.bench.conduct import Checking, Opened, Step, conduct, driven
from specctl.bench.results import Outcome, check_writable, document, kept_path, write
from specctl.bench.run import Arm, BenchPlan, Calibration, RunDone
from specctl.cli import aliases, bound
from specctl.cli import bench_engine as servers
from specctl.cli import bench_view as view
from specctl.cli import options as opt
from specctl.cli.fetching import demo_without_asking, resolved, say_tuned, say_unused_draft
from specctl.cli.interrupt import on_endings
from specctl.cli.render import err, out
from specctl.demo import DEMO, DEMO_F16
from specctl.errors import RemoteError, SpecctlError
from specctl.paths import write_whole
from specctl.resolve import Resolved
from specctl.settings import SpecSettings

DEFAULT_TYPE = "ngram-simple"

SpecType = Annotated[
    list[str] | None,
    typer.Option(
        "--spec-type",
        "-s",
        help="What to compare with plain; repeatable, a comma list is a chain; `none` measures "
        "plain again and so shows the noise. Default: ngram-simple; with a draft, draft-simple.",
    ),
]
K = Annotated[
    list[int] | None,
    typer.Option("--k", help="Most tokens drafted per cycle; repeatable: one arm for each."),
]
Workload = Annotated[
    list[str] | None,
    typer.Option("--workload", "-w", help=f"Repeatable: {', '.join(workloads.FAMILIES)}."),
]
Prompts = Annotated[
    Path | None,
    typer.Option(
        "--prompts",
        help="Your own: JSON lines, JSON, or text divided by lines of ---; also the files of "
        "Spec-Bench, SPEED-Bench and SpecDecode-Bench's data sets.",
    ),
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", "-n", help="Per prompt; default 128, with --quick 64.")
]
Repeats = Annotated[
    int | None, typer.Option("--repeats", "-r", help="Of each run; default 3, with --quick 1.")
]
PerWorkload = Annotated[
    int | None, typer.Option("--per-workload", help="At most so many prompts of each workload.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Three prompts of three families.")]
Tui = Annotated[
    bool, typer.Option("--tui", help="Full screen: the table fills live; cells open to cycles.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit 1 if an arm never drafts or changes the text.")
]
Json = Annotated[Path | None, typer.Option("--json", help="Write the whole result here, too.")]
Html = Annotated[
    Path | None, typer.Option("--html", help="Write a page with charts and all data here.")
]
Svg = Annotated[Path | None, typer.Option("--svg", help="Write the speed-up chart here.")]
Seed = Annotated[int, typer.Option("--seed", help="The same for all arms and repeats.")]


def bench(
    model: opt.Model = None,
    draft: opt.DraftModel = None,
    spec_type: SpecType = None,
    k: K = None,
    workload: Workload = None,
    prompts: Prompts = None,
    per_workload: PerWorkload = None,
    max_tokens: MaxTokens = None,
    repeats: Repeats = None,
    quick: Quick = False,
    tui: Tui = False,
    strict: Strict = False,
    json: Json = None,
    html: Html = None,
    svg: Svg = None,
    engine: servers.Engine = None,
    baseline_url: servers.BaselineUrl = None,
    batch: servers.Batch = None,
    api_key: servers.ApiKey = None,
    binary: servers.Binary = None,
    in_turn: servers.InTurn = False,
    ignore_eos: servers.IgnoreEos = None,
    also_in_process: servers.AlsoInProcess = False,
    temperature: opt.Temperature = 0.0,
    seed: Seed = 0,
    top_k: opt.TopK = 40,
    top_p: opt.TopP = 0.95,
    min_p: opt.MinP = 0.05,
    repeat_penalty: opt.RepeatPenalty = 1.0,
    frequency_penalty: opt.FrequencyPenalty = 0.0,
    presence_penalty: opt.PresencePenalty = 0.0,
    ctx: opt.Ctx = 4096,
    threads: opt.Threads = None,
    gpu_layers: opt.GpuLayers = -1,
    draft_gpu_layers: opt.DraftGpuLayers = -1,
    kv_type: opt.KvType = "f16",
    draft_kv_type: opt.DraftKvType = "f16",
    n_cpu_moe: opt.CpuMoe = 0,
    flash_attn: opt.FlashAttn = "auto",
    spec_min_accept: opt.MinAccept = 0.0,
    spec_compat: opt.Compat = False,
    spec_preset: opt.Preset = None,
    simple_n: opt.SimpleN = None,
    simple_m: opt.SimpleM = None,
    simple_hits: opt.SimpleHits = None,
    mod_match: opt.ModMatch = 24,
    mod_max: opt.ModMax = 64,
    mod_min: opt.ModMin = 48,
    draft_max: opt.DraftMax = 3,
    draft_min: opt.DraftMin = 0,
    draft_p_min: opt.DraftPMin = 0.0,
    draft_sampling: opt.DraftSampling = "greedy",
) -> None:
    """Measure whether speculation pays, against plain decoding of the same prompts.

    Plain and every --spec-type run on one loaded model, interleaved, after a warm-up that does not
    count. The texts are compared token by token. Of kept results: specctl bench compare A B shows
    what changed, specctl bench page RESULT draws one. --engine does the same over HTTP with
    llama-server, or with a running server of any engine. Stopped, it shows and keeps what every arm
    has done, and exits with 130.
    """

    def spec(types: str, k: int | None) -> SpecSettings:
        simple, mod = (simple_n, simple_m, simple_hits), (mod_match, mod_max, mod_min)
        small = (draft_max, draft_min, draft_p_min, draft_sampling)
        sizes = (simple, mod, small)
        return opt.spec_settings(types, k, spec_compat, spec_preset, *sizes, spec_min_accept)

    # fmt: off
    asked = servers.read_flags(
        engine, baseline_url, batch, api_key, binary, in_turn, ignore_eos, also_in_process
    )
    settings = opt.engine_settings(
        ctx, threads, gpu_layers, kv_type, draft_gpu_layers, draft_kv_type, n_cpu_moe, flash_attn
    )
    # fmt: on
    penalties = (repeat_penalty, frequency_penalty, presence_penalty)
    plan = BenchPlan(
        model=model or "",
        draft=None,
        prompts=_prompts(workload, prompts, per_workload, quick),
        arms=(_NO_ARM,),
        settings=settings,
        sampling=opt.sampling(temperature, top_k, top_p, min_p, penalties, seed),
        max_tokens=max_tokens if max_tokens is not None else 64 if quick else 128,
        repeats=repeats if repeats is not None else 1 if quick else 3,
        ignore_eog=asked.ignore_eos if asked else bool(ignore_eos),
    )
    outputs = (json, html, svg)
    for file in filter(None, outputs):
        check_writable(file)
    if asked is not None:
        servers.check_greedy(plan.sampling, tui)
    if asked is not None and asked.is_given:
        servers.check_theirs(draft, spec_type, k, settings, spec("none", None))
        _finish(servers.measure_given(asked, model, plan), outputs, strict)
        return
    if asked is None or asked.also:
        _check_types([spec(one, None) for one in spec_type or ()])
    named = model or demo_without_asking("bench")
    files = resolved(named, draft)
    types = spec_type or [_default_type(files)]
    advice = files.k if spec_type is None and not k else None
    caps: list[int | None] = [*k] if k else [advice]
    specs = [spec(one, cap) for one in types for cap in caps]
    flags = ([] if spec_type else specs, settings)
    if files.tuned is not None:
        specs = specs if spec_type else [files.tuned.spec(one) for one in specs]
        settings = files.tuned.engine(settings)
    specs, files = aliases.settle(specs, files, draft)
    say_tuned(files, specs, flags)
    beside = draft or (files.draft.name if files.draft else None)
    plan = replace(plan, model=named, draft=beside, arms=_arms(specs), settings=settings)
    say_unused_draft(files, [arm.spec for arm in plan.arms])
    if asked is not None:
        _started(asked, plan, files, outputs, strict)
        return
    outcome = (_run_on_screen(plan, files) if tui else None) or _run(plan, files)
    chat = f"Chat with it, drafting only where it pays: specctl chat --model {named}"
    _finish(outcome, outputs, strict, chat if quick and named in (DEMO, DEMO_F16) else None)


_NO_ARM = Arm("speculative", SpecSettings(types=("speculative",)))  # until the arms are known


def _started(
    asked: servers.Flags, plan: BenchPlan, files: Resolved, outputs: Outputs, strict: bool
) -> None:
    """llama-server, and in-process beside it where that is asked for."""
    theirs = servers.measure_started(asked, plan, files)
    _finish(theirs, outputs, strict)
    if not asked.also:
        return
    own = _run(servers.with_threads(plan), files)
    _finish(own, (None, None, None), strict)
    servers.show_beside(out(), own, theirs)


Outputs = tuple[Path | None, Path | None, Path | None]  # --json, --html, --svg


def _finish(outcome: Outcome, outputs: Outputs, strict: bool, word: str | None = None) -> None:
    """Show it and keep it; then fail where the measurement did, or where --strict says so.

    Raises:
        typer.Exit: it was stopped (130); nothing else is to be measured then.
    """
    if outcome.interrupted:
        prompts_done = len(outcome.plan.prompts)
        err().print(f"stopped: this is about the {prompts_done} prompts that every arm has done")
    where = words.WHERE_ASKED if outcome.is_of_theirs else ""
    view.report(out(), outcome.report, outcome.busy, where)
    servers.show_batches(out(), outcome)
    _keep(outcome, *outputs)
    if word:
        out().print(word)
    served = outcome.served
    if served is not None and served.failure:
        above = "what every arm had done until then is above"
        raise RemoteError(served.failure, "\n".join(filter(None, (above, served.hint))))
    if outcome.interrupted:
        raise typer.Exit(130)
    if strict and outcome.failures:
        raise SpecctlError("--strict: " + "; ".join(outcome.failures))


def _prompts(
    families: list[str] | None, file: Path | None, most: int | None, quick: bool
) -> tuple[workloads.Prompt, ...]:
    """Files alone where only a file is named; else the built-in families asked for, or all."""
    own = workloads.read_file(file) if file else ()
    built_in = workloads.load(families or workloads.FAMILIES) if families or not file else ()
    both = workloads.per_family((*own, *built_in), most)
    return workloads.quick(both) if quick else both


def _arms(specs: list[SpecSettings]) -> tuple[Arm, ...]:
    """One arm for each; plain decoding again has no K: `none` is one arm whatever the Ks."""
    arms: list[Arm] = []
    for spec in specs:
        if spec.types == ("none",):
            spec = SpecSettings()
        name = ",".join(spec.types) + (f" k={spec.k}" if spec.k is not None else "")
        if spec.types != ("none",) or all(arm.drafts for arm in arms):
            arms.append(Arm(name, spec))
    return tuple(arms)


def _check_types(specs: list[SpecSettings]) -> None:
    """What cannot be meant is said before anything is fetched."""
    for spec in specs:
        aliases.check_types(spec)


def _default_type(files: Resolved) -> str:
    """What was tuned, or a pair or a name asks for; look-up where it asks for nothing."""
    if files.tuned is not None:
        return ",".join(files.tuned.types)
    if files.draft is not None:
        return bound.type_of(files.draft)
    return ",".join(files.spec_types) if files.spec_types else DEFAULT_TYPE


def _run(plan: BenchPlan, files: Resolved) -> Outcome:
    """Do it, showing every step on stderr."""
    from specctl.engine.session import open_session

    with view.progress(err()) as show:

        def shown(step: Step) -> None:
            if isinstance(step, Opened):
                view.opening(err(), step, plan)
            elif isinstance(step, Calibration):
                view.estimate(err(), step)
            elif isinstance(step, RunDone):
                show(step)
            elif isinstance(step, Checking):
                view.checking(err(), step)

        with on_endings(_stop):
            return driven(conduct(plan, files.model, files.draft, open_session), shown)


def _stop(_signal: int, _frame: object) -> None:
    """As Ctrl-C: a shutdown and `timeout` keep what is complete, too."""
    raise KeyboardInterrupt


def _run_on_screen(plan: BenchPlan, files: Resolved) -> Outcome | None:
    """The same on the full screen; None where it cannot open."""
    from specctl.cli import bench_tui

    return bench_tui.run(plan, files)


def _keep(outcome: Outcome, json: Path | None, html: Path | None, svg: Path | None) -> None:
    """Into the data folder, then wherever else it was asked for."""
    data = document(outcome)
    kept = kept_path(outcome)
    try:
        write(kept, data)
    except SpecctlError as error:  # the table is there: no reason to fail
        err().print(f"not kept: {error.message}", style="yellow", soft_wrap=True)
    else:
        err().print(f"kept as {kept}", style="dim", soft_wrap=True)
    if json is not None:
        write(json, data)
    write_pages(data, kept.stem, html, svg)


def write_pages(data: Mapping[str, Any], name: str, html: Path | None, svg: Path | None) -> None:
    """The page and the picture of a result, where they are asked for.

    Raises:
        UsageError: the data is no whole result. SpecctlError: a file cannot be written.
    """
    from specctl.bench import page

    if html is not None:
        write_whole(html, page.page(data, name))
    if svg is not None:
        write_whole(svg, page.picture(data, name))
