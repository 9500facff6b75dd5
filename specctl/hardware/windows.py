"""AMD and Intel cards on Windows, from the display adapters' registry keys (NVIDIA: NVML)."""

from __future__ import annotations

import sys
from collections.abc import Callable

from specctl.hardware.device import Device, Trail
from specctl.units import GIB, MIB

Registry = Callable[[], tuple[tuple[str, int | None, int | None], ...]]


def read_windows(trail: Trail, registry: Registry) -> tuple[Device, ...]:
    """AMD and Intel cards on Windows: (name, 64-bit size, 32-bit size) of each display adapter.

    Only the 64-bit size can tell 4 GiB or more; the 32-bit one stops short of 4 GiB, so close to it
    the size is not known.
    """
    found = []
    for name, wide, narrow in registry():
        lowered = name.lower()
        if "nvidia" in lowered or not any(word in lowered for word in ("amd", "radeon", "intel")):
            continue
        size = wide or (narrow if narrow and narrow < 4 * GIB - 256 * MIB else None)
        trail.say(
            f"registry: {name}",
            f"64-bit size {wide}, 32-bit size {narrow}",
            None if wide else ("32-bit size" if size else "memory not known"),
        )
        found.append(
            Device(
                kind="intel" if "intel" in lowered else "amd",
                index=0,
                name=name,
                memory_total=size,
                notes=() if size else ("memory size not known: give --vram SIZE",),
            )
        )
    return tuple(found)


_CLASS = r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"


def registry_adapters() -> tuple[tuple[str, int | None, int | None], ...]:
    """(description, qwMemorySize, MemorySize) of each adapter; nothing on other systems."""
    found: list[tuple[str, int | None, int | None]] = []
    if sys.platform == "win32":
        import winreg

        for number in range(32):
            try:
                with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, rf"{_CLASS}\{number:04d}") as key:

                    def value(name: str, key: winreg.HKEYType = key) -> object:
                        try:
                            return winreg.QueryValueEx(key, name)[0]
                        except OSError:
                            return None

                    description = value("DriverDesc")
                    wide = _number(value("HardwareInformation.qwMemorySize"))
                    narrow = _number(value("HardwareInformation.MemorySize"))
            except OSError:
                continue
            if description:
                found.append((str(description), wide, narrow))
    return tuple(found)


def _number(value: object) -> int | None:
    """The registry holds sizes as numbers or as little-endian bytes."""
    if isinstance(value, bytes):
        return int.from_bytes(value, "little")
    return value if isinstance(value, int) else None
