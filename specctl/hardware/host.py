"""The machine around the GPUs: CPU, cores, RAM, what a container leaves of them, and disk."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from specctl.hardware.cgroup import Limits, read_limits
from specctl.hardware.device import Roots, Trail, list_folder, read_text

Sysctl = Callable[[str], str | None]

# flags as /proc/cpuinfo writes them → the names people use
_ISA = {
    "avx": "avx",
    "avx2": "avx2",
    "fma": "fma",
    "f16c": "f16c",
    "avx_vnni": "avx-vnni",
    "avx512f": "avx512",
    "avx512_vnni": "avx512-vnni",
    "avx512_bf16": "avx512-bf16",
    "amx_int8": "amx",
    "asimd": "neon",
    "neon": "neon",
    "asimddp": "dotprod",
    "i8mm": "i8mm",
    "sve": "sve",
    "sve2": "sve2",
    "sme": "sme",
}


@dataclass(frozen=True, slots=True)
class Host:
    """CPU, memory and disk. Bytes; bandwidth in bytes per second.

    `allowed_cpus` is the number of logical CPUs this process may run on, `physical_cores` counts
    the cores behind them, `performance_cores` those of the fast kind where there are two kinds.
    `cpu_quota` is the cgroup's share in CPUs. `ram_available` respects the cgroup, whose limit is
    `ram_limit`. `disk_free` is that of the disk which holds `models_dir`.
    """

    system: str  # linux, darwin, win32
    cpu: str
    architecture: str
    logical_cpus: int
    allowed_cpus: int
    physical_cores: int
    performance_cores: int | None
    cpu_quota: float | None
    isa: tuple[str, ...]
    ram_total: int
    ram_available: int
    ram_limit: int | None
    models_dir: str
    disk_free: int | None
    wsl: bool = False
    bandwidth: float | None = None
    bandwidth_source: str = "not measured"


def usable_cores(host: Host) -> int:
    """Threads that decode best: physical (fast) cores this process may use, within the quota."""
    cores = host.performance_cores or host.physical_cores
    if host.cpu_quota is not None:
        cores = min(cores, int(host.cpu_quota + 1e-9))
    return max(1, cores)


def read_host(
    roots: Roots,
    trail: Trail,
    models: Path,
    system: str = sys.platform,
    sysctl: Sysctl = lambda _: None,
    affinity: Iterable[int] | None = None,
) -> Host:
    """Everything about the host; each part falls back on its own. `affinity` None asks the OS."""
    limits = read_limits(roots, trail) if system == "linux" else Limits()
    name, flags = _cpu(roots, trail, system, sysctl)
    logical = _logical(roots, system)
    allowed = _allowed(affinity, logical, trail)
    physical, fast = _cores(roots, trail, system, sysctl, allowed)
    total, available = _memory(roots, trail, system, sysctl)
    if limits.memory is not None and limits.memory < total:
        available = max(0, min(available, limits.memory - (limits.memory_used or 0)))
    return Host(
        system=system,
        cpu=name,
        architecture=platform.machine(),
        logical_cpus=logical,
        allowed_cpus=len(allowed),
        physical_cores=physical,
        performance_cores=fast,
        cpu_quota=limits.cpus,
        isa=flags,
        ram_total=total,
        ram_available=available,
        ram_limit=limits.memory if limits.memory is not None and limits.memory < total else None,
        models_dir=str(models),
        disk_free=_disk_free(models, trail),
        wsl=is_wsl(roots, trail, system),
    )


def is_wsl(roots: Roots, trail: Trail, system: str) -> bool:
    """Linux inside Windows: the GPU comes through /usr/lib/wsl/lib."""
    if system != "linux":
        return False
    said = read_text(roots.proc / "version") or ""
    found = "microsoft" in said.lower()
    trail.say(f"{roots.proc}/version", "WSL" if found else "no WSL")
    return found


# ---------------------------------------------------------------- CPU


def _cpu(roots: Roots, trail: Trail, system: str, sysctl: Sysctl) -> tuple[str, tuple[str, ...]]:
    if system == "darwin":
        name = sysctl("machdep.cpu.brand_string") or platform.processor()
        said = (sysctl("machdep.cpu.features") or "") + (sysctl("machdep.cpu.leaf7_features") or "")
        arm = "neon " if sysctl("hw.optional.arm64") == "1" else ""
        words = (arm + said.lower().replace("avx1.0", "avx")).split()
        trail.say("sysctl machdep.cpu", name)
        return name, _isa(words)
    text = read_text(roots.proc / "cpuinfo") if system == "linux" else None
    if text is None:
        name = platform.processor() or platform.machine()
        trail.say("CPU name", name, "platform module; instruction sets not known")
        return name, ()
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name") or fields.get("Hardware") or _device_tree(roots)
    flags = _isa((fields.get("flags") or fields.get("Features") or "").split())
    trail.say(f"{roots.proc}/cpuinfo", f"{name}; {' '.join(flags) or 'no known flags'}")
    return re.sub(r"\s+", " ", name), flags


def _device_tree(roots: Roots) -> str:
    """ARM boards name themselves in the device tree, not in cpuinfo."""
    model = read_text(roots.proc / "device-tree" / "model") or ""
    return model.strip("\0 ") or platform.processor() or platform.machine()


def _isa(words: Iterable[str]) -> tuple[str, ...]:
    found = set(words)
    return tuple(dict.fromkeys(name for flag, name in _ISA.items() if flag in found))


def _logical(roots: Roots, system: str) -> int:
    online = _parse_list(read_text(roots.sys / "devices/system/cpu/online") or "")
    if system == "linux" and online:
        return len(online)
    return os.cpu_count() or 1


def _allowed(affinity: Iterable[int] | None, logical: int, trail: Trail) -> frozenset[int]:
    if affinity is None and hasattr(os, "sched_getaffinity"):
        affinity = os.sched_getaffinity(0)
    allowed = frozenset(affinity) if affinity is not None else frozenset(range(logical))
    trail.say("CPU affinity", f"{len(allowed)} of {logical} logical CPUs")
    return allowed or frozenset({0})


def _cores(
    roots: Roots, trail: Trail, system: str, sysctl: Sysctl, allowed: frozenset[int]
) -> tuple[int, int | None]:
    """(physical cores behind the allowed CPUs, those of the fast kind or None)."""
    if system == "darwin":
        every, fast = sysctl("hw.physicalcpu"), sysctl("hw.perflevel0.physicalcpu")
        if every and every.isdigit():
            trail.say("sysctl hw.physicalcpu", f"{every}, of them fast: {fast or 'not told'}")
            return int(every), int(fast) if fast and fast.isdigit() else None
    core_of: dict[int, str] = {}
    for cpu in sorted(allowed):
        folder = roots.sys / f"devices/system/cpu/cpu{cpu}/topology"
        siblings = read_text(folder / "thread_siblings_list") or read_text(
            folder / "core_cpus_list"
        )
        if siblings:
            core_of[cpu] = siblings
    if system == "linux" and core_of:
        fast_cpus = _parse_list(read_text(roots.sys / "devices/cpu_core/cpus") or "")
        fast_cores = {core for cpu, core in core_of.items() if cpu in fast_cpus}
        count = len(set(core_of.values()))
        trail.say(f"{roots.sys} CPU topology", f"{count} physical cores, fast: {len(fast_cores)}")
        return count, len(fast_cores) or None
    count = psutil.cpu_count(logical=False) or len(allowed)
    trail.say("CPU topology", f"{count} physical cores", "psutil")
    return min(count, len(allowed)), None


def _parse_list(text: str) -> set[int]:
    """`0-3,8` → {0, 1, 2, 3, 8}; what is not such a list gives nothing."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match:
            found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


# ---------------------------------------------------------------- memory and disk


def _memory(roots: Roots, trail: Trail, system: str, sysctl: Sysctl) -> tuple[int, int]:
    """(total, available) bytes, before any container limit."""
    if system == "linux":
        fields = dict(
            re.findall(r"^(\w+):\s+(\d+) kB", read_text(roots.proc / "meminfo") or "", re.M)
        )
        if "MemTotal" in fields:
            total = int(fields["MemTotal"]) * 1024
            free = fields.get("MemAvailable") or fields.get("MemFree") or "0"
            trail.say(f"{roots.proc}/meminfo", f"total {total} B, available {int(free) * 1024} B")
            return total, int(free) * 1024
    memory = psutil.virtual_memory()
    total, available = int(memory.total), int(memory.available)
    if system == "darwin" and (sysctl("hw.memsize") or "").isdigit():
        total = int(sysctl("hw.memsize") or 0)
        available = min(available, total)
        trail.say("sysctl hw.memsize", f"total {total} B, available {available} B (psutil)")
        return total, available
    trail.say("RAM", f"total {total} B, available {available} B", "psutil")
    return total, available


def _disk_free(models: Path, trail: Trail) -> int | None:
    """Of the disk that the folder is on, or will be on once it is made."""
    folder = models.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        trail.say(f"free space at {models}", f"{error.strerror}", "not known")
        return None
    trail.say(f"free space at {models}", f"{free} B", None if folder == models else f"at {folder}")
    return free


def cache_bytes(roots: Roots) -> int | None:
    """The largest CPU cache, bytes: a bandwidth test must be bigger than it."""
    sizes = []
    for entry in list_folder(roots.sys / "devices/system/cpu/cpu0/cache"):
        match = re.fullmatch(r"(\d+)([KMG]?)", read_text(entry / "size") or "")
        if match:
            sizes.append(
                int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[match[2]]
            )
    return max(sizes, default=None)
