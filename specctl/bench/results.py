"""A finished benchmark as JSON: all that is needed to compare it with another one later.

No host name, no user, no folder: the machine in general terms, models by their file names.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specctl import __version__, paths
from specctl.bench.identity import SAME, Identity
from specctl.bench.report import Report, Row, Speed
from specctl.bench.run import PLAIN, BenchPlan, Run, RunKey
from specctl.bench.served import ServedFacts
from specctl.errors import UsageError

SCHEMA = "specctl-bench/1"
SERVED_SCHEMA = "specctl-bench-engine/1"  # the same, of servers: with `served`, less is known
BUSY = 0.5  # load average per core above which the machine counts as busy


@dataclass(frozen=True, slots=True)
class Outcome:
    """A benchmark that ran to its end. `unix_time` is its start, `wall_seconds` all of it.

    Of servers (`served`) the model may be no file of this machine but what the server calls it, and
    `threads` 0: not told.
    """

    plan: BenchPlan
    model: Path
    draft: Path | None
    report: Report
    runs: tuple[Run, ...]
    identities: Mapping[RunKey, Identity]
    unix_time: float
    wall_seconds: float
    estimated_seconds: float
    load_before: float | None
    load_after: float | None
    threads: int
    engine: str
    interrupted: bool = False  # the plan then holds what was complete
    served: ServedFacts | None = None

    @property
    def busy(self) -> float | None:
        """The load average of other programs, before or after, where it is high; else None."""
        return load_of_others(self.load_before, self.load_after, self.threads, os.cpu_count() or 1)

    @property
    def failures(self) -> tuple[str, ...]:
        """What `--strict` fails on, in words; of batches, too."""
        batches = self.served.batches if self.served else None
        of_batches = (f"in batches {one}" for one in (batches.failures if batches else ()))
        return (*self.report.failures, *of_batches)

    @property
    def is_of_theirs(self) -> bool:
        """Of a server that was not started here: this machine only asked."""
        return self.served is not None and not self.served.setup.started


def load_of_others(
    before: float | None, after: float | None, threads: int, cores: int
) -> float | None:
    """The larger load average without our own `threads`, where it is high; else None."""
    loads = [] if before is None else [before]
    loads += [] if after is None else [after - threads]
    most = max(loads, default=None)
    return most if is_busy(most, cores) else None


def is_busy(load: float | None, cores: int | None = None) -> bool:
    """Is this load average (of others) enough to spoil a measurement? `cores`: else this
    machine's.
    """
    return load is not None and load > BUSY * (cores or os.cpu_count() or 1)


def document(outcome: Outcome) -> dict[str, Any]:
    """The whole result as JSON-ready values."""
    plan, served = outcome.plan, outcome.served
    theirs = outcome.is_of_theirs
    data: dict[str, Any] = {
        "schema": SCHEMA if served is None else SERVED_SCHEMA,
        "specctl": __version__,
        "engine": outcome.engine,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(outcome.unix_time)),
        "wall_seconds": round(outcome.wall_seconds, 3),
        "estimated_seconds": round(outcome.estimated_seconds, 3),
        "machine": {
            **machine(),
            "threads": outcome.threads,
            "load_before": outcome.load_before,
            "load_after": outcome.load_after,
        },
        "model": _named(outcome.model) if theirs else _file(outcome.model),
        "draft": _file(outcome.draft) if outcome.draft else None,
        "settings": {} if theirs else dataclasses.asdict(plan.settings),
        "sampling": dataclasses.asdict(plan.sampling),
        "interrupted": outcome.interrupted,
        "max_tokens": plan.max_tokens,
        "repeats": plan.repeats,
        "ignore_eog": plan.ignore_eog,
        "arms": [{"name": arm.name, "spec": dataclasses.asdict(arm.spec)} for arm in plan.all_arms],
        "prompts": [_prompt(outcome, key) for key in dict.fromkeys(p.key for p in plan.prompts)],
        "runs": [_run(run, outcome.identities) for run in outcome.runs],
        "report": _report(outcome.report),
    }
    if served is not None:
        data["served"] = _served(served)
    return data


def _served(served: ServedFacts) -> dict[str, Any]:
    batches = served.batches
    return {
        **dataclasses.asdict(served.setup),
        "failure": served.failure,
        "batches": [_row(row) for row in (batches.rows if batches else ())],
        "batch_undrafted": [
            dataclasses.asdict(one) for one in (batches.undrafted if batches else ())
        ],
        "batch_failures": list(batches.failures if batches else ()),
        "batch_runs": [_run(run, _of_waves(served)) for run in served.batch_runs],
    }


def _of_waves(served: ServedFacts) -> dict[RunKey, Identity]:
    """Waves whose texts are not plain's, of those that have a plain one; the others are `same`."""
    runs = served.batch_runs
    plain = any(run.arm == PLAIN for run in runs)
    found = {run.key: SAME for run in runs if plain and run.arm != PLAIN}
    differing = served.batches.differences if served.batches else ()
    return found | {(one.prompt, one.arm, one.repeat): one.identity for one in differing}


def machine() -> dict[str, Any]:
    """CPU, cores, memory (GiB) and system, nothing that names this one machine."""
    import psutil

    return {
        "cpu": cpu_name(),
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The CPU's brand, as the system tells it."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(errors="replace"), re.M)
    except OSError:
        match = None
    return match[1].strip() if match else platform.processor() or platform.machine()


def tokens_hash(tokens: Sequence[int]) -> str:
    """Sixteen hex digits that are equal where the token ids are."""
    return hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest()[:16]


def check_writable(path: Path) -> None:
    """Say before the measurement, not after it, that its result has nowhere to go.

    Raises:
        UsageError: the folder is missing or may not be written, or `path` is a folder.
    """
    folder = path.parent
    if path.is_dir() or not folder.is_dir():
        raise UsageError(f"cannot write {path}: " + ("a folder" if path.is_dir() else "no folder"))
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError(f"cannot write {path}: permission denied")


def write(path: Path, data: Mapping[str, Any]) -> None:
    """A result as JSON, all of it or nothing.

    Raises:
        SpecctlError: the file cannot be written.
    """
    paths.write_whole(path, json.dumps(data, ensure_ascii=False, indent=1) + "\n")


def kept_path(outcome: Outcome) -> Path:
    """Where the data folder keeps this one."""
    stamp = time.strftime("%Y-%m-%d-%H%M%S", time.gmtime(outcome.unix_time))
    file = outcome.model.name  # a server's word for its model may hold dots: 2.5-7B
    name = file[:-5] if file.lower().endswith(".gguf") else file
    if outcome.served is not None:  # a server's word for its model may be anything
        safe = re.sub(r"[^\w.-]+", "-", name) or "model"
        name = f"{outcome.served.setup.engine}-{safe}"[:120]
    return paths.data_dir() / "bench" / f"{stamp}-{name}.json"


def _named(name: Path) -> dict[str, Any]:
    """What a server calls its model, without a folder of its machine."""
    return {"file": name.name if name.is_absolute() else name.as_posix(), "bytes": None}


def _file(path: Path) -> dict[str, Any]:
    return {"file": path.name, "bytes": path.stat().st_size}


def _prompt(outcome: Outcome, key: str) -> dict[str, Any]:
    run = next(run for run in outcome.runs if run.prompt.key == key)
    return {
        "prompt": key,
        "tokens": len(run.prompt_tokens),
        "tokens_hash": _hash(run.prompt_tokens),
        "text_hash": text_hash(json.dumps(run.prompt.messages(), ensure_ascii=False)),
    }


def _hash(tokens: Sequence[int]) -> str | None:
    """None where a server does not show its tokens."""
    return None if -1 in tokens else tokens_hash(tokens)


def text_hash(text: str) -> str:
    """Sixteen hex digits that are equal where the texts are."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _run(run: Run, identities: Mapping[RunKey, Identity]) -> dict[str, Any]:
    identity = identities.get(run.key)
    return {
        "prompt": run.prompt.key,
        "arm": run.arm,
        "repeat": run.repeat,
        "seconds": run.seconds,
        "ttft": run.ttft,
        "prompt_seconds": run.prompt_seconds,
        "tokens": len(run.tokens),
        "timed_tokens": run.timed_tokens,
        "tokens_hash": _hash(run.tokens),
        "text_hash": text_hash(run.text),
        "finish": run.finish,
        "identity": dataclasses.asdict(identity) if identity else None,
        "undrafted": dict(run.undrafted),
        "totals": dataclasses.asdict(run.totals),
    }


def _report(report: Report) -> dict[str, Any]:
    return {
        "rows": [_row(row) for row in (*report.rows, *report.totals)],
        "prompts": [
            {
                "prompt": one.prompt,
                "arm": one.arm,
                **_speed(one.speed),
                "drafted": one.drafted,
            }
            for one in report.prompts
        ],
        "undrafted": [dataclasses.asdict(one) for one in report.undrafted],
        "failures": list(report.failures),
        "notes": list(report.notes),
        "conditions": list(report.conditions),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "workload": row.workload,
        "arm": row.arm,
        "prompts": row.prompts,
        **_speed(row.speed),
        "acceptance_rate": row.totals.acceptance_rate,
        "accepted_per_cycle": row.totals.accepted_per_cycle,
        "tokens_per_pass": row.totals.tokens_per_pass,
        "acceptance_by_position": row.totals.acceptance_by_position,
        "coverage": row.totals.coverage,
        "draft_share": row.totals.draft_share,
        "verify_share": row.totals.verify_share,
        "break_even": row.totals.break_even,
        "plain_ttft": row.plain_ttft,
        "ttft": row.ttft,
        "identity": dataclasses.asdict(row.identity),
    }


def _speed(speed: Speed) -> dict[str, Any]:
    data = dataclasses.asdict(speed)
    return {"noise_assumed": speed.band_is_assumed, **data}
