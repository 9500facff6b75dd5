"""What `specctl tune` tunes and keeps: the names that a profile stores, and the profile."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specctl import __version__
from specctl.bench import workloads
from specctl.cli.fetching import resolved
from specctl.demo import DEMO, DEMO_F16
from specctl.errors import UsageError
from specctl.plan import catalog
from specctl.plan import tuned as profiles
from specctl.plan.tuned import Evidence, Measured, Tuned
from specctl.resolve import Resolved
from specctl.units import format_seconds

if TYPE_CHECKING:
    from specctl.bench.tune import Standing
    from specctl.bench.tune_steps import Answer, Job


@dataclass(frozen=True, slots=True)
class Names:
    """How the profile will name what is tuned: `id` is what the user will say."""

    id: str
    model: str
    draft: str | None
    files: Resolved


def named(given: str, draft: str | None, name: str | None) -> Names:
    """From what the user said to files, and to the names that the profile keeps.

    Raises:
        UsageError: the profile's name would hide another model.
    """
    path = Path(given).expanduser()
    before = None if path.is_file() else profiles.find(given)
    if before is not None:
        draft = draft or before.evidence.draft
    files = resolved(given, draft)
    beside = str(files.draft.resolve()) if files.draft else None
    if path.is_file():
        own, model = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem), str(path.resolve())
    elif before is not None:
        own, model = before.id, before.model
    elif given.startswith("hf:"):
        own, model = Path(given).stem, given
    else:  # `id+draft-mtp` is another file than `id`
        own = given.partition("+")[0]
        model = given if "+" in given and beside is None else own
    chosen = own if name is None else name
    if name is not None or ((path.is_file() or given.startswith("hf:")) and before is None):
        _check_name(chosen, model, asked=name is not None)
    return Names(chosen, model, beside, files)


def _check_name(name: str, model: str, asked: bool) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}", name):
        raise UsageError(f"--name {name!r}", "letters, digits, and any of . _ : -")
    known = catalog.load().get(name.partition(":")[0].lower())
    other = profiles.find(name)
    taken = other is not None and other.id.lower() == name.lower() and other.model != model
    if known is not None or name.lower() in (DEMO, DEMO_F16) or taken:
        said = f"--name {name}" if asked else name
        hint = "choose another one" if asked else "give one with --name"
        raise UsageError(f"{said} is another model's name already", hint)


def profile_of(names: Names, job: Job, answer: Answer, file: Path | None) -> Tuned:
    """The winner, how to run it, and what was measured; `file` holds the prompts."""
    winner = answer.choice.winner
    chosen = winner.candidate if winner else None
    spec = chosen.spec if chosen else None
    bound = spec is not None and spec.k is None and any(t.startswith("draft-") for t in spec.types)
    target, draft = job.settings.target, job.settings.draft
    return Tuned(
        id=names.id,
        model=names.model,
        draft=names.draft if chosen and chosen.draft else None,
        types=spec.types if spec else ("none",),
        k=spec.k if spec else None,
        draft_n_max=spec.draft.n_max if spec and bound else None,
        threads=answer.threads,
        kv_type=target.kv_type_k,
        draft_kv_type=chosen.draft_kv if chosen else "f16",
        gpu_layers=target.gpu_layers,
        draft_gpu_layers=draft.gpu_layers,
        n_cpu_moe=target.n_cpu_moe,
        flash_attn=job.settings.flash_attn,
        evidence=_evidence(names, job, answer, file),
    )


def _evidence(names: Names, job: Job, answer: Answer, file: Path | None) -> Evidence:
    from specctl.bench.results import machine

    about = machine()
    whose = f"{file.name}: " if file else "built-in workloads: "
    keys = ", ".join(prompt.key for prompt in answer.prompts)
    reasons = [*answer.choice.reasons, *answer.threads_why]
    if left_out := workloads.unseen(job.prompts, answer.prompts):
        reasons.append(
            f"no prompt of {', '.join(left_out)} took part: it may be otherwise there "
            "(more --minutes)"
        )
    reasons += [
        f"{one.candidate} is out: a text that is not plain decoding's (token {one.identity.index} "
        f"of {one.prompt}: {one.identity.why})"
        for one in answer.disqualified
    ]
    reasons.append(f"it cost {format_seconds(answer.seconds)} and {answer.runs} runs")
    return Evidence(
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        specctl=__version__,
        engine=f"llama-cpp-python {engine_version()}",
        machine=f"{about['cpu']}, {about['physical_cores']} cores, {about['memory_gib']} GiB, "
        f"{about['system']} {about['architecture']}",
        target=job.model.name,
        target_bytes=job.model.stat().st_size,
        prompts=f"{whose}{len(answer.prompts)} of {len(job.prompts)} prompts ({keys})",
        prompts_hash=hash_of(job.prompts),
        temperature=job.sampling.temperature,
        max_tokens=answer.max_tokens,
        ctx=job.settings.n_ctx,
        seconds=answer.seconds,
        runs=answer.runs,
        draft=names.draft,
        answer=tuple(reasons),
        candidates=tuple(map(_measured, answer.standings)),
    )


def _measured(standing: Standing) -> Measured:
    from specctl.bench import words

    speed, totals = standing.speed, standing.totals
    return Measured(
        name=standing.name,
        stage=standing.stage,
        prompts=len(standing.prompts),
        repeats=speed.repeats,
        noise=speed.noise,
        verdict=words.NEVER if standing.silent else speed.verdict,
        text=words.text(standing.texts),
        speedup=speed.speedup,
        low=speed.low,
        high=speed.high,
        plain=speed.plain_rate,
        rate=speed.rate,
        acceptance=totals.acceptance_rate,
        tokens_per_pass=totals.tokens_per_pass,
        coverage=totals.coverage,
    )


def engine_version() -> str:
    """Of llama-cpp-python."""
    import importlib.metadata

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("llama-cpp-python")
    return "unknown"


def hash_of(texts: tuple[workloads.Prompt, ...]) -> str:
    """Prompts with the same texts have the same one."""
    messages = [[one.key, one.messages()] for one in texts]
    return hashlib.sha256(json.dumps(messages).encode()).hexdigest()[:16]
