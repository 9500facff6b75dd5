"""A machine made of temporary folders and a scripted NVML: what the probes are tested on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from specctl.enginefacts import EngineDevice, EngineFacts
from specctl.hardware.device import Roots

GIB = 1024**3
MIB = 1024**2


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


@dataclass
class FakeCard:
    """One card. A value that is an int below 0 stands for the NVML error of that number."""

    name: Any = "NVIDIA GeForce RTX 3090"
    uuid: Any = "GPU-aaaa1111-0000"
    bus: Any = "00000000:01:00.0"
    total: int = 24 * GIB
    free: int = 23 * GIB
    mig: Any = (0, 0)
    slices: tuple[FakeCard, ...] = ()
    compute: tuple[tuple[int, int | None], ...] = ()
    graphics: tuple[tuple[int, int | None], ...] = ()
    width: int = 384
    memory_clock: int = 9751
    cores: int = 10496
    clock: int = 2100
    handle_error: int = 0


@dataclass
class FakeNvml:
    """The functions of pynvml that specctl calls."""

    cards: tuple[FakeCard, ...] = ()
    init_error: int = 0
    driver: Any = "580.95"
    names: dict[int, Any] = field(default_factory=dict)
    shut_down: bool = False
    NVMLError = NVMLError

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init_error:
            raise NVMLError(self.init_error)

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.shut_down = True

    def nvmlSystemGetDriverVersion(self) -> Any:  # noqa: N802
        return self.driver

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeCard:  # noqa: N802
        card = self.cards[index]
        if card.handle_error:
            raise NVMLError(card.handle_error)
        return card

    def nvmlDeviceGetName(self, card: FakeCard) -> Any:  # noqa: N802
        return _value(card.name)

    def nvmlDeviceGetUUID(self, card: FakeCard) -> Any:  # noqa: N802
        return _value(card.uuid)

    def nvmlDeviceGetPciInfo(self, card: FakeCard) -> Any:  # noqa: N802
        return SimpleNamespace(busId=_value(card.bus))

    def nvmlDeviceGetMemoryInfo(self, card: FakeCard) -> Any:  # noqa: N802
        return SimpleNamespace(total=_value(card.total), free=card.free, used=0)

    def nvmlDeviceGetMigMode(self, card: FakeCard) -> Any:  # noqa: N802
        return _value(card.mig)

    def nvmlDeviceGetMaxMigDeviceCount(self, card: FakeCard) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: FakeCard, index: int) -> FakeCard:  # noqa: N802
        if index >= len(card.slices):
            raise NVMLError(6)
        return card.slices[index]

    def nvmlDeviceGetComputeRunningProcesses(self, card: FakeCard) -> Any:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in card.compute]

    def nvmlDeviceGetGraphicsRunningProcesses(self, card: FakeCard) -> Any:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in card.graphics]

    def nvmlSystemGetProcessName(self, pid: int) -> Any:  # noqa: N802
        if pid not in self.names:
            raise NVMLError(6)
        return self.names[pid]

    def nvmlDeviceGetMemoryBusWidth(self, card: FakeCard) -> Any:  # noqa: N802
        return _value(card.width)

    def nvmlDeviceGetMaxClockInfo(self, card: FakeCard, kind: int) -> Any:  # noqa: N802
        return _value(card.memory_clock if kind == 2 else card.clock)

    def nvmlDeviceGetNumGpuCores(self, card: FakeCard) -> Any:  # noqa: N802
        return _value(card.cores)


def _value(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        raise NVMLError(-value)
    return value


def no_nvml() -> FakeNvml:
    """The usual state of a machine without NVIDIA: the library is not there."""
    return FakeNvml(init_error=12)


class FakeMachine:
    """Folders that stand for /sys, /proc and the cgroup mount."""

    def __init__(self, folder: Path) -> None:
        self.roots = Roots(
            sys=folder / "sys",
            proc=folder / "proc",
            cgroup=folder / "cgroup",
            wsl=folder / "wsl",
            share=folder / "share",
        )
        self.meminfo(32 * GIB, 24 * GIB)
        self.proc("version", "Linux version 6.8.0 (gcc)")

    def proc(self, name: str, text: str) -> None:
        write(self.roots.proc / name, text)

    def sys(self, name: str, text: object) -> None:
        write(self.roots.sys / name, f"{text}\n")

    def cgroup(self, name: str, text: object) -> None:
        write(self.roots.cgroup / name, f"{text}\n")

    def meminfo(self, total: int, available: int) -> None:
        self.proc(
            "meminfo",
            f"MemTotal:       {total // 1024} kB\nMemFree:   1 kB\n"
            f"MemAvailable:   {available // 1024} kB\n",
        )

    def cpus(self, siblings: list[str], fast: str | None = None) -> None:
        """`siblings[i]` is the thread_siblings_list of CPU i; `fast` the list of fast CPUs."""
        self.sys("devices/system/cpu/online", f"0-{len(siblings) - 1}")
        for cpu, text in enumerate(siblings):
            self.sys(f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", text)
        if fast is not None:
            self.sys("devices/cpu_core/cpus", fast)

    def pci(self, address: str, vendor: int, device: int, base: int = 0x03) -> None:
        """A PCI function without a driver."""
        for name, value in (("vendor", vendor), ("device", device), ("class", base << 16)):
            self.sys(f"bus/pci/devices/{address}/{name}", hex(value))

    def card(self, number: int, address: str, vendor: int, device: int, **files: object) -> None:
        """A card with a DRM driver; keyword names are its files (`__` is a folder's slash)."""
        self.pci(address, vendor, device)
        base = f"class/drm/card{number}/device"
        self.sys(f"{base}/vendor", hex(vendor))
        self.sys(f"{base}/device", hex(device))
        self.sys(f"{base}/uevent", f"PCI_SLOT_NAME={address}")
        for name, value in files.items():
            self.sys(f"{base}/{name.replace('__', '/')}", value)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def engine(
    backends: tuple[str, ...] = ("CPU",), devices: tuple[EngineDevice, ...] = ()
) -> EngineFacts:
    return EngineFacts(
        version="0.3.36",
        backends=backends,
        devices=devices,
        architectures=frozenset({"llama", "qwen2"}),
        gpu_offload=any(device.kind in ("gpu", "igpu") for device in devices),
        system_info="CPU : AVX2 = 1",
    )


def engine_device(
    name: str, description: str, pci: str | None = None, kind: str = "gpu", total: int = 8 * GIB
) -> EngineDevice:
    return EngineDevice(name, description, kind, total // 2, total, pci)
