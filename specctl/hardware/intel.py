"""Intel devices through the sysfs files of the xe and i915 drivers.

Neither tells an ordinary user how much is in use, so what is free is not known; older kernels do
not tell the size either, and then it is asked for rather than taken as zero.
"""

from __future__ import annotations

from dataclasses import replace

from specctl.hardware.device import (
    Device,
    Roots,
    SystemMemory,
    Trail,
    list_folder,
    normal_pci,
    read_int,
    read_text,
)
from specctl.hardware.sysfs import INTEL, DisplayDevice, display_devices, pci_name

_PROCESSOR_GRAPHICS = "0000:00:02.0"  # where every Intel processor has its own


def read_intel(trail: Trail, roots: Roots, memory: SystemMemory) -> tuple[Device, ...]:
    """Intel devices in PCI order."""
    found = [
        _device(card, trail, roots, memory)
        for card in display_devices(roots)
        if card.vendor == INTEL
    ]
    trail.say(f"{roots.sys} Intel devices", f"{len(found)} found")
    return tuple(found)


def _device(card: DisplayDevice, trail: Trail, roots: Roots, memory: SystemMemory) -> Device:
    name = pci_name(roots, INTEL, card.device) or f"GPU {card.device:04x}"
    device = Device(
        kind="intel",
        index=0,
        name=name if name.lower().startswith("intel") else f"Intel {name}",
        pci=normal_pci(card.address),
        driver=_driver(card),
    )
    size, source = _local_memory(card)
    if size:
        trail.say(source, f"{size} B")
        return replace(device, memory_total=size)
    if card.address == _PROCESSOR_GRAPHICS:
        trail.say(f"Intel {card.address}", "no memory of its own", "MemAvailable of the system")
        return replace(
            device,
            memory_total=memory.total,
            memory_free=memory.available,
            unified=True,
            integrated=True,
            notes=("integrated: it uses the machine's RAM, what is available counts",),
        )
    trail.say(f"Intel {card.address} memory", "no size file", "not known")
    return replace(device, notes=("memory size not told by this driver: give --vram SIZE",))


def _local_memory(card: DisplayDevice) -> tuple[int | None, str]:
    """Bytes and the file they are from: xe has one file per tile, i915 one per card."""
    tiles = [
        (folder, read_int(folder / "physical_vram_size_bytes"))
        for folder in list_folder(card.folder)
        if folder.name.startswith("tile")
    ]
    known = [size for _, size in tiles if size]
    if known:
        return sum(known), f"{tiles[0][0].parent}/tile*/physical_vram_size_bytes"
    for base in (card.drm, card.folder):
        size = read_int(base / "lmem_total_bytes") if base is not None else None
        if size:
            return size, f"{base}/lmem_total_bytes"
    return None, ""


def _driver(card: DisplayDevice) -> str | None:
    for line in (read_text(card.folder / "uevent") or "").splitlines():
        if line.startswith("DRIVER="):
            return line.partition("=")[2]
    return None
