"""What a container or service manager lets this process use: cgroup v2, v1, or both mounted.

The limit that holds is the smallest one between the process's own group and the root.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specctl.hardware.device import Roots, Trail, read_int, read_text

_UNLIMITED = 1 << 60  # v1 writes "no limit" as a huge number, rounded to pages


@dataclass(frozen=True, slots=True)
class Limits:
    """CPUs (a fraction is possible) and bytes; None where nothing limits them."""

    cpus: float | None = None
    memory: int | None = None
    memory_used: int | None = None  # of that limit, what cannot be dropped at once


def read_limits(roots: Roots, trail: Trail) -> Limits:
    """The limits of the group this process runs in."""
    said = read_text(roots.proc / "self" / "cgroup")
    if said is None:
        trail.say(f"{roots.proc}/self/cgroup", "not there", "no limits assumed")
        return Limits()
    own: dict[str, str] = {}
    for line in said.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            own.update(dict.fromkeys(parts[1].split(","), parts[2]))
    cpus = _smallest(
        [*_v2_cpus(roots.cgroup, own.get("", "/")), *_v1_cpus(roots.cgroup, own.get("cpu", "/"))]
    )
    memory = _memory(roots.cgroup, own)
    trail.say(
        "cgroup limits",
        f"cpu {'none' if cpus is None else f'{cpus:g} CPUs'}, "
        f"memory {'none' if memory is None else f'{memory[0]} B, {memory[1]} B in use'}",
    )
    return Limits(cpus, *(memory or (None, None)))


def _smallest(values: list[float]) -> float | None:
    return min(values) if values else None


def _chain(mount: Path, group: str) -> Iterator[Path]:
    """The group's folder and its parents up to the mount. In a container the path is the host's,
    and only the mount itself is there.
    """
    parts = [part for part in group.split("/") if part not in ("", ".", "..")]
    for count in range(len(parts), -1, -1):
        folder = mount.joinpath(*parts[:count])
        if folder.is_dir():
            yield folder


def _v2_mounts(cgroup: Path) -> tuple[Path, ...]:
    return (cgroup, cgroup / "unified")


def _v2_cpus(cgroup: Path, group: str) -> Iterator[float]:
    for mount in _v2_mounts(cgroup):
        for folder in _chain(mount, group):
            parts = (read_text(folder / "cpu.max") or "").split()
            if len(parts) == 2 and parts[0].isdigit() and parts[1].isdigit() and int(parts[1]):
                yield int(parts[0]) / int(parts[1])


def _v1_cpus(cgroup: Path, group: str) -> Iterator[float]:
    for name in ("cpu", "cpu,cpuacct", "cpuacct,cpu"):
        for folder in _chain(cgroup / name, group):
            quota = read_int(folder / "cpu.cfs_quota_us")
            period = read_int(folder / "cpu.cfs_period_us")
            if quota and period and quota > 0 and period > 0:
                yield quota / period


def _memory(cgroup: Path, own: dict[str, str]) -> tuple[int, int] | None:
    """(limit, use that cannot be reclaimed at once) of the tightest group."""
    found: list[tuple[int, int]] = []
    for mount in _v2_mounts(cgroup):
        for folder in _chain(mount, own.get("", "/")):
            limit, used = read_int(folder / "memory.max"), read_int(folder / "memory.current")
            if limit is not None:
                found.append((limit, _without_cache(folder, used or 0, "inactive_file")))
    for folder in _chain(cgroup / "memory", own.get("memory", "/")):
        limit = read_int(folder / "memory.limit_in_bytes")
        used = read_int(folder / "memory.usage_in_bytes")
        if limit is not None and limit < _UNLIMITED:
            found.append((limit, _without_cache(folder, used or 0, "total_inactive_file")))
    return min(found, key=lambda pair: pair[0] - pair[1]) if found else None


def _without_cache(folder: Path, used: int, key: str) -> int:
    for line in (read_text(folder / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.isdigit():
            return max(0, used - int(value))
    return used
