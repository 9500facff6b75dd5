"""How many threads decoding should use: physical cores, within affinity and the CPU quota."""

from __future__ import annotations

import os
from pathlib import Path

import psutil


def cpu_quota(cgroup: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Cores a cgroup (v2 or v1) grants this process; None without a limit."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        micros = int((cgroup / "cpu" / "cpu.cfs_quota_us").read_text())
        return None if micros <= 0 else micros / int((cgroup / "cpu/cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Physical cores, capped by affinity and quota; at least 1."""
    physical = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        physical = min(physical, len(os.sched_getaffinity(0)))
    quota = cpu_quota(cgroup)
    return max(1, min(physical, int(quota) if quota else physical))


def usable_threads(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Logical cores, capped by affinity and quota; at least 1."""
    logical = psutil.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        logical = min(logical, len(os.sched_getaffinity(0)))
    quota = cpu_quota(cgroup)
    return max(1, min(logical, int(quota) if quota else logical))
