"""Memory and load of this machine just now, cheap enough to be read while a model runs.

The first reading finds the devices (as the machine snapshot does, CUDA's order and MIG slices
included) and starts NVML once; further ones ask only for figures. Nothing here raises: what cannot
be read is None.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil

from specctl.hardware.amd import read_amd
from specctl.hardware.cgroup import read_limits
from specctl.hardware.device import Roots, SystemMemory, Trail, normal_pci, read_int
from specctl.hardware.nvidia import load_nvml, read_nvidia
from specctl.hardware.sysfs import AMD, display_devices


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes, and a share 0 … 1; None where it cannot be read.

    RAM is what a container leaves of it. Of several GPUs it is the one whose memory is fullest:
    that is the one that spills first. Memory that a GPU shares with the processor is RAM.
    """

    ram_used: int | None = None
    ram_total: int | None = None
    vram_used: int | None = None
    vram_total: int | None = None
    gpu_load: float | None = None


_Memory = tuple[int | None, int | None, float | None]  # used, total, load of one GPU


class Meter:
    """Holds what readings need. The keyword arguments stand in for the outside world in tests."""

    def __init__(
        self,
        roots: Roots | None = None,
        environ: Mapping[str, str] = os.environ,
        load: Callable[[], Any | str] = load_nvml,
        system: str = sys.platform,
    ) -> None:
        self._roots = roots or Roots()
        self._linux = system == "linux"
        self._gpus: list[Callable[[], _Memory]] = []
        finders: list[Callable[[], list[Callable[[], _Memory]]]] = [
            lambda: self._nvidia(environ, load),
            self._amd,
        ]
        for find in finders:
            try:
                self._gpus += find()
            except Exception:  # drivers answer in ways nobody foresaw
                continue

    def read(self) -> Reading:
        """The figures now."""
        ram_used, ram_total = self._ram()
        gpus = [gpu() for gpu in self._gpus]
        used, total, load = max(gpus, key=_fullness, default=(None, None, None))
        return Reading(ram_used, ram_total, used, total, load)

    def _ram(self) -> tuple[int | None, int | None]:
        try:
            memory = psutil.virtual_memory()
            total, used = int(memory.total), int(memory.total - memory.available)
            limits = read_limits(self._roots, Trail()) if self._linux else None
        except Exception:
            return None, None
        if limits is None or limits.memory is None or limits.memory >= total:
            return used, total
        return limits.memory_used, limits.memory

    def _nvidia(
        self, environ: Mapping[str, str], load: Callable[[], Any | str]
    ) -> list[Callable[[], _Memory]]:
        nvml = load()
        if isinstance(nvml, str):
            return []
        none = SystemMemory(0, 0)  # what is shared with the processor is not read as VRAM
        selection = read_nvidia(Trail(), none, environ, self._roots, lambda: nvml, _no_command)
        if not selection.visible:
            return []
        nvml.nvmlInit()  # the snapshot has shut it down; this one stays for the process
        return [
            _nvml_gauge(nvml, device.uuid, device.unified)
            for device in selection.visible
            if device.uuid is not None
        ]

    def _amd(self) -> list[Callable[[], _Memory]]:
        if not self._linux:
            return []
        shared = {
            device.pci: device.unified for device in read_amd(Trail(), self._roots, ram_available=0)
        }
        return [
            _amd_gauge(card.folder, shared.get(normal_pci(card.address), True))
            for card in display_devices(self._roots)
            if card.vendor == AMD
        ]


def read_gauges() -> Reading:
    """The figures of this machine now; from the second call on it takes about a millisecond."""
    return _meter().read()


@lru_cache(maxsize=1)
def _meter() -> Meter:
    return Meter()


def _fullness(gpu: _Memory) -> tuple[float, float]:
    used, total, load = gpu
    return (used / total if used is not None and total else -1.0), load or 0.0


def _no_command(_command: Sequence[str]) -> str | None:
    return None


def _ask(nvml: Any, name: str, *arguments: Any) -> Any:
    try:
        return getattr(nvml, name)(*arguments)
    except Exception:
        return None


def _nvml_gauge(nvml: Any, uuid: str, unified: bool) -> Callable[[], _Memory]:
    handle = _ask(nvml, "nvmlDeviceGetHandleByUUID", uuid)

    def read() -> _Memory:
        if handle is None:
            return None, None, None
        memory = None if unified else _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
        rates = _ask(nvml, "nvmlDeviceGetUtilizationRates", handle)  # not told for MIG slices
        used = total = None
        if memory is not None:
            total = int(memory.total)
            used = total - int(memory.free)  # with what the driver reserves: it is not to be had
        return used, total, None if rates is None else int(rates.gpu) / 100

    return read


def _amd_gauge(folder: Path, unified: bool) -> Callable[[], _Memory]:
    def read() -> _Memory:
        busy = read_int(folder / "gpu_busy_percent")
        load = None if busy is None else busy / 100
        if unified:
            return None, None, load
        return (
            read_int(folder / "mem_info_vram_used"),
            read_int(folder / "mem_info_vram_total"),
            load,
        )

    return read
