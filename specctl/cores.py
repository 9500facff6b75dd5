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
    return _capped(psutil.cpu_count(logical=False) or psutil.cpu_count() or 1, cgroup)


def usable_threads(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Logical cores, capped by affinity and quota; at least 1."""
    return _capped(psutil.cpu_count() or 1, cgroup)


def _capped(count: int, cgroup: Path) -> int:
    if hasattr(os, "sched_getaffinity"):
        count = min(count, len(os.sched_getaffinity(0)))
    quota = cpu_quota(cgroup)
    return max(1, min(count, int(quota) if quota else count))
