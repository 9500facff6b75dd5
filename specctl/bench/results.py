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
from specctl.bench.identity import Identity
from specctl.bench.report import Report, Speed
from specctl.bench.run import BenchPlan, Run, RunKey
from specctl.errors import UsageError

SCHEMA = "specctl-bench/1"
BUSY = 0.5  # load average per core above which the machine counts as busy


@dataclass(frozen=True, slots=True)
class Outcome:
    """A benchmark that ran to its end. `unix_time` is its start, `wall_seconds` all of it."""

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

    @property
    def busy(self) -> float | None:
        """The load average of other programs, before or after, where it is high; else None."""
        before, after = self.load_before or 0.0, (self.load_after or 0.0) - self.threads
        return max(before, after) if is_busy(max(before, after)) else None


def is_busy(load: float | None) -> bool:
    """Is this load average (of others) enough to spoil a measurement?"""
    return load is not None and load > BUSY * (os.cpu_count() or 1)


def document(outcome: Outcome) -> dict[str, Any]:
    """The whole result as JSON-ready values."""
    plan = outcome.plan
    return {
        "schema": SCHEMA,
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
        "model": _file(outcome.model),
        "draft": _file(outcome.draft) if outcome.draft else None,
        "settings": dataclasses.asdict(plan.settings),
        "sampling": dataclasses.asdict(plan.sampling),
        "interrupted": outcome.interrupted,
        "max_tokens": plan.max_tokens,
        "repeats": plan.repeats,
        "arms": [{"name": arm.name, "spec": dataclasses.asdict(arm.spec)} for arm in plan.all_arms],
        "prompts": [_prompt(outcome, key) for key in dict.fromkeys(p.key for p in plan.prompts)],
        "runs": [_run(run, outcome.identities) for run in outcome.runs],
        "report": _report(outcome.report),
    }


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
    return paths.data_dir() / "bench" / f"{stamp}-{outcome.model.stem}.json"


def _file(path: Path) -> dict[str, Any]:
    return {"file": path.name, "bytes": path.stat().st_size}


def _prompt(outcome: Outcome, key: str) -> dict[str, Any]:
    run = next(run for run in outcome.runs if run.prompt.key == key)
    return {
        "prompt": key,
        "tokens": len(run.prompt_tokens),
        "tokens_hash": tokens_hash(run.prompt_tokens),
    }


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
        "tokens_hash": tokens_hash(run.tokens),
        "finish": run.finish,
        "identity": dataclasses.asdict(identity) if identity else None,
        "undrafted": dict(run.undrafted),
        "totals": dataclasses.asdict(run.totals),
    }


def _report(report: Report) -> dict[str, Any]:
    return {
        "rows": [
            {
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
            for row in (*report.rows, *report.totals)
        ],
        "prompts": [
            {"prompt": one.prompt, "arm": one.arm, **_speed(one.speed)} for one in report.prompts
        ],
        "undrafted": [dataclasses.asdict(one) for one in report.undrafted],
        "failures": list(report.failures),
        "notes": list(report.notes),
    }


def _speed(speed: Speed) -> dict[str, Any]:
    data = dataclasses.asdict(speed)
    return {"noise_assumed": speed.band_is_assumed, **data}
