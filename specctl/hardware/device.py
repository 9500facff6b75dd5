"""The values a machine snapshot is made of: devices, and what each probe asked and heard."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

Kind = Literal["nvidia", "amd", "intel", "apple", "gpu"]  # "gpu": simulated, of no known make


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the operating system tells about itself; tests put folders of their own here."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    wsl: Path = Path("/usr/lib/wsl/lib")
    share: Path = Path("/usr/share")  # misc/pci.ids or hwdata/pci.ids


@dataclass(frozen=True, slots=True)
class Probe:
    """What was asked, what it said, and what was fallen back to (None: the answer was used)."""

    asked: str
    said: str
    fell_back: str | None = None


@dataclass(frozen=True, slots=True)
class User:
    """A process that holds memory of a device; bytes None where the driver does not tell."""

    pid: int
    name: str
    memory: int | None


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. Memory in bytes, None where it is not known; bandwidth in bytes per second.

    `index` is its place in the machine's list, which is what `--gpu` takes; NVIDIA devices come in
    CUDA order. `unified`: its memory is the machine's RAM, but for `dedicated` free bytes that the
    BIOS set aside. `engine` is its name in llama.cpp's own list (CUDA0, Vulkan1) where the
    installed build has it.
    """

    kind: Kind
    index: int
    name: str
    uuid: str | None = None
    pci: str | None = None
    memory_total: int | None = None
    memory_free: int | None = None
    unified: bool = False
    integrated: bool = False
    dedicated: int = 0
    used_by: tuple[User, ...] = ()
    driver: str | None = None
    bandwidth: float | None = None
    bandwidth_source: str = "not known"
    engine: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SystemMemory:
    """The machine's RAM in bytes, which is also the GPU's on unified boards."""

    total: int
    available: int


def unified(device: Device, memory: SystemMemory, why: str) -> Device:
    """The device with the machine's RAM as its memory; free is what is available, not the total."""
    return replace(
        device,
        memory_total=memory.total,
        memory_free=memory.available,
        unified=True,
        integrated=True,
        notes=(*device.notes, f"unified memory ({why}): available RAM counts, an estimate"),
    )


@dataclass
class Trail:
    """Collects probes while a snapshot is taken; the only thing here that changes."""

    probes: list[Probe] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def say(self, asked: str, said: object, fell_back: str | None = None) -> None:
        """Remember one question and its answer."""
        self.probes.append(Probe(asked, str(said), fell_back))


def read_text(path: Path) -> str | None:
    """A small file of /sys or /proc without its last newline, or None: absent or not readable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """A number in a file of its own, or None."""
    text = read_text(path)
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        return None


def list_folder(path: Path) -> list[Path]:
    """The entries of a folder, sorted by name with numbers in order; empty where there is none."""
    try:
        names = os.listdir(path)
    except OSError:
        return []
    return [path / name for name in sorted(names, key=lambda name: (len(name), name))]


def normal_pci(address: str | None) -> str | None:
    """One spelling of a PCI address: `00000000:01:00.0` and `0000:01:00.0` → `0000:01:00.0`."""
    match = re.fullmatch(
        r"(?:([0-9a-f]+):)?([0-9a-f]+):([0-9a-f]+)\.([0-7])", (address or "").strip().lower()
    )
    if match is None:
        return None
    domain, bus, slot = (int(part or "0", 16) for part in match.groups()[:3])
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{match[4]}"
