"""`specctl tune`: which drafter, draft length and threads are best here, on your own prompts?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specctl import __version__, paths
from specctl.bench import workloads
from specctl.cli import aliases, bound
from specctl.cli import options as o
from specctl.cli.fetching import demo_without_asking
from specctl.cli.render import err, out
from specctl.cli.tune_profile import Names, engine_version, hash_of, named, profile_of
from specctl.errors import SpecctlError, UsageError
from specctl.hub.lock import Lock, released
from specctl.plan import tuned as profiles
from specctl.resolve import Resolved
from specctl.settings import DraftSettings, EngineSettings, Sampling, SpecSettings

if TYPE_CHECKING:
    from specctl.bench.tune import Candidate
    from specctl.bench.tune_state import State
    from specctl.bench.tune_steps import Answer, Job


def tune(
    profile: Annotated[
        str | None, typer.Argument(metavar="[PROFILE]", help="What to tune, named like --model.")
    ] = None,
    model: o.Model = None,
    draft: o.DraftModel = None,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", help="Your own: JSON lines, or text divided by lines of ---."),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option("--workload", "-w", help=f"Repeatable: {', '.join(workloads.FAMILIES)}."),
    ] = None,
    minutes: Annotated[float, typer.Option("--minutes", help="What it may take, about.")] = 5.0,
    spec_type: Annotated[
        list[str] | None,
        typer.Option("--spec-type", "-s", help="Try only these; repeatable, a comma list a chain."),
    ] = None,
    k: Annotated[
        list[int] | None, typer.Option("--k", help="With these draft lengths; repeatable.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", "-n", help="Per run; default 128 to 32.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Of the profile; default: as what is tuned.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print what is stored.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over instead of going on where it stopped.")
    ] = False,
    temperature: o.Temperature = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="The same for all runs.")] = 0,
    ctx: o.Ctx = 4096,
    threads: o.Threads = None,
    gpu_layers: o.GpuLayers = -1,
    draft_gpu_layers: o.DraftGpuLayers = -1,
    kv_type: o.KvType = "f16",
    n_cpu_moe: o.CpuMoe = 0,
    flash_attn: o.FlashAttn = "auto",
) -> None:
    """Measure what runs best here and keep it as a profile that --model finds.

    Drafters, draft lengths, threads and the draft's KV type, on your prompts, in a few minutes;
    plain decoding stays where nothing beats it. Ctrl-C keeps what is measured: the same command
    goes on. `specctl chat --model PROFILE` then runs as tuned; its flags still win.
    """
    if profile is not None and model is not None:
        raise UsageError(f"{profile} and --model {model} name two models", "give one of them")
    if show:
        _show(profile or model)
        return
    texts = _prompts(prompts, workload)
    # fmt: off
    settings = o.engine_settings(
        ctx, threads, gpu_layers, kv_type, draft_gpu_layers, "f16", n_cpu_moe, flash_attn
    )
    # fmt: on
    sampling = Sampling(temperature=temperature, seed=seed)
    _check(minutes, max_tokens)
    specs = _specs(spec_type)
    names = named(profile or model or demo_without_asking("tune"), draft, name)
    specs, files = aliases.settle(specs, names.files, draft)
    beside = str(files.draft.resolve()) if files.draft else None
    names = replace(names, draft=beside, files=files)
    job = _job(names, texts, settings, sampling, minutes, max_tokens, specs, k)
    path = _state_path(names.id)
    with _alone(path, names.id):
        state = _state(path, job, fresh)
        answer = _stoppable(job, state)
        tuned = profile_of(names, job, answer, prompts)
        kept = profiles.write(tuned)
        state.finish()
    from specctl.cli import tune_view as view

    view.stored(out(), tuned)
    for one in answer.disqualified:
        out().print(view.bug(one), style="bold red", markup=False, soft_wrap=True)
    err().print(f"kept as {kept}", style="dim", markup=False, soft_wrap=True)
    out().print(f"Use it: specctl chat --model {tuned.id}", markup=False, soft_wrap=True)


def _show(name: str | None) -> None:
    from specctl.cli import tune_view as view

    found = profiles.find(name) if name else None
    if name and found is None:
        known = ", ".join(one.id for one in profiles.all_tuned())
        raise UsageError(
            f"nothing is tuned under {name!r}",
            f"tuned: {known}" if known else "`specctl tune MODEL` tunes one",
        )
    some = (found,) if found else profiles.all_tuned()
    if not some:
        out().print("Nothing is tuned yet: specctl tune MODEL --prompts FILE")
    for one in some:
        view.stored(out(), one)


# ---------------------------------------------------------------- what is tuned


def _prompts(file: Path | None, families: list[str] | None) -> tuple[workloads.Prompt, ...]:
    """A file's prompts, the families asked for, or one after the other of all."""
    own = workloads.read_file(file) if file else ()
    built_in = workloads.load(families or workloads.FAMILIES) if families or not file else ()
    return workloads.in_turns((*own, *built_in))


def _check(minutes: float, max_tokens: int | None) -> None:
    """What cannot be meant is said before anything is fetched."""
    if not 0 < minutes <= 24 * 60:
        raise UsageError(f"--minutes {minutes:g} is not between 0 and a day", "5 is usual")
    if max_tokens is not None and max_tokens < 8:
        raise UsageError(f"--max-tokens {max_tokens} measures nothing", "32 or more")


def _specs(spec_type: list[str] | None) -> list[SpecSettings]:
    """Those asked for by name, `draft-self` among them."""
    specs: list[SpecSettings] = []
    for text in spec_type or ():
        types = tuple(part.strip() for part in text.split(",") if part.strip())
        specs.append(SpecSettings(types=types))
        aliases.check_types(specs[-1])
    return specs


# ---------------------------------------------------------------- the search


def _job(
    names: Names,
    texts: tuple[workloads.Prompt, ...],
    settings: EngineSettings,
    sampling: Sampling,
    minutes: float,
    max_tokens: int | None,
    specs: list[SpecSettings],
    ks: list[int] | None,
) -> Job:
    from specctl.bench.tune_steps import Job
    from specctl.cores import usable_cores, usable_threads
    from specctl.engine.opening import check_files

    methods, from_file = _methods(names.files)
    some_candidates = _candidates(methods, from_file, specs, ks)
    check_files(names.files.model, names.files.draft, [one.spec for one in some_candidates])
    usual = settings.threads or usable_cores()
    fixed = settings.threads is not None
    some = (usual,) if fixed else (usual, usual - 1, usable_threads())
    threads = tuple(dict.fromkeys(count for count in some if count >= 1))
    return Job(
        model=names.files.model,
        draft=names.files.draft,
        candidates=some_candidates,
        methods=methods,
        prompts=texts,
        settings=settings,
        sampling=sampling,
        threads=threads,
        minutes=minutes,
        max_tokens=max_tokens,
        widen=not specs and not ks,
    )


def _methods(files: Resolved) -> tuple[tuple[str, ...], frozenset[str]]:
    """The model-bound methods that these files allow, and which of them the draft file is for.

    Raises:
        UsageError: the draft is of a kind that is not run here.
    """
    from specctl.drafters.registry import SPEC_TYPES

    methods = bound.types_of(files.model, files.draft)
    if not set(methods) <= set(SPEC_TYPES):
        raise UsageError(f"{methods[0]} is not run here, and {files.draft} is for it")
    return methods, frozenset(methods[:1] if files.draft is not None else ())


def _candidates(
    methods: tuple[str, ...],
    from_file: frozenset[str],
    specs: list[SpecSettings],
    ks: list[int] | None,
) -> tuple[Candidate, ...]:
    """What is tried by itself, or exactly what was asked for."""
    from specctl.bench.tune import Candidate, candidates

    usual = candidates(methods, from_file)
    if not specs and not ks:
        return usual
    out: dict[str, Candidate] = {}
    for spec in specs or [SpecSettings(types=c.spec.types) for c in usual]:
        types = spec.types
        if types == ("none",):
            continue  # plain decoding is always a candidate
        draft = bool(from_file & set(types)) or (types == ("auto",) and bool(from_file))
        caps: list[int | None] = [*ks] if ks else [None]
        for k in caps:
            name = ",".join(types)
            if k is not None:
                name += f" k={k}"
            elif spec.draft != DraftSettings():  # what `draft-self` was made for
                name += f" n-max={spec.draft.n_max}"
            out[name] = Candidate(name, replace(spec, k=k), draft, core=True)
    if not out:
        raise UsageError("nothing to compare with plain decoding", "give another --spec-type")
    return tuple(out.values())


def _state_path(name: str) -> Path:
    file = profiles.path_of(name).name.replace(profiles.SUFFIX, ".jsonl")
    return paths.data_dir() / "tune" / file


@contextlib.contextmanager
def _alone(state: Path, name: str) -> Iterator[None]:
    """One search of a profile at a time: two would write into one file.

    Raises:
        SpecctlError: another process tunes it, or its lock cannot be made.
    """
    lock = Lock(paths.data_dir() / ".locks" / f"tune--{state.stem}.lock")
    try:
        if not lock.try_acquire():
            owner = lock.owner() or "another process"
            raise SpecctlError(
                f"{name} is being tuned by {owner}", "wait for it, or give this one another --name"
            )
    except OSError as error:
        raise SpecctlError(f"cannot write {paths.data_dir()}: {error.strerror}") from error
    with released(lock):
        yield


def _state(path: Path, job: Job, fresh: bool) -> State:
    from specctl.bench.tune_state import State

    head: dict[str, Any] = {
        "specctl": __version__,
        "engine": engine_version(),
        "model": _file(job.model),
        "draft": _file(job.draft) if job.draft else None,
        "candidates": [[one.name, asdict(one.spec)] for one in job.candidates],
        "prompts": hash_of(job.prompts),
        "settings": asdict(job.settings),
        "sampling": asdict(job.sampling),
        "threads": list(job.threads),
        "minutes": job.minutes,
        "max_tokens": job.max_tokens,
    }
    return State(path, head, job.prompts, fresh=fresh)


def _file(path: Path) -> list[object]:
    found = path.stat()
    return [path.name, found.st_size, found.st_mtime_ns]


def _stoppable(job: Job, state: State) -> Answer:
    try:
        return _search(job, state)
    except KeyboardInterrupt:
        where = f"{state.runs} runs are kept" if state.runs else "nothing was measured yet"
        said = f"stopped: {where}; the same command goes on, --fresh starts over"
        err().print(said, soft_wrap=True)
        raise typer.Exit(130) from None


def _search(job: Job, state: State) -> Answer:
    from specctl.bench.tune_job import tune as search
    from specctl.bench.tune_steps import Answer
    from specctl.cli import tune_view as view
    from specctl.engine.session import open_session

    with (
        contextlib.closing(search(job, open_session, state)) as steps,
        view.showing(err(), len(job.prompts)) as show,
    ):
        for step in steps:
            if isinstance(step, Answer):
                return step
            show(step)
    raise AssertionError("a search ends with its answer")
