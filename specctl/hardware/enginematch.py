"""Which of llama.cpp's devices is which of ours: by PCI address, else by order or name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specctl.enginefacts import EngineDevice, EngineFacts
from specctl.hardware.device import Device, Kind, Trail, normal_pci

_GPU_KINDS = ("gpu", "igpu")
_MAKERS: tuple[tuple[str, Kind], ...] = (
    ("nvidia", "nvidia"),
    ("geforce", "nvidia"),
    ("amd", "amd"),
    ("radeon", "amd"),
    ("intel", "intel"),
    ("apple", "apple"),
)


def gpus(facts: EngineFacts) -> tuple[EngineDevice, ...]:
    """The GPUs this build can use here, without remote ones."""
    return tuple(
        device
        for device in facts.devices
        if device.kind in _GPU_KINDS and not device.name.startswith("RPC")
    )


def match_engine(found: Sequence[Device], facts: EngineFacts, trail: Trail) -> list[Device]:
    """Our devices with their engine names; what only llama.cpp sees is added.

    NVIDIA devices that all match take CUDA's order from the engine, which knows it for certain.
    """
    listed = gpus(facts)
    taken: set[str] = set()
    matched: list[Device] = []
    for device in found:
        order = sum(1 for other in matched if other.kind == device.kind)
        same = [entry for entry in listed if _same(device, entry, order)]
        taken.update(entry.name for entry in same)
        matched.append(_merged(device, same[0], trail) if same else device)
    extra = [_from_engine(entry) for entry in listed if entry.name not in taken]
    for device in extra:
        trail.say(f"llama.cpp {device.engine}", device.name, "listed by the engine only")
    return _in_engine_order(matched, listed) + extra


def _same(device: Device, entry: EngineDevice, order: int) -> bool:
    ours, theirs = device.pci, normal_pci(entry.device_id)
    if ours and theirs:
        return ours == theirs
    if device.kind == "apple":
        return entry.name.startswith(("MTL", "Metal"))
    if device.kind == "nvidia" and entry.name.startswith("CUDA"):
        return entry.name == f"CUDA{order}"
    return entry.description.lower() == device.name.lower()


def _merged(device: Device, entry: EngineDevice, trail: Trail) -> Device:
    trail.say(f"llama.cpp {entry.name}", f"{entry.description} = {device.name}")
    device = replace(device, engine=entry.name)
    if device.kind in ("amd", "intel") and entry.description:
        device = replace(device, name=entry.description)  # sysfs has no marketing names
    if device.kind == "apple" and entry.memory_total > 0:
        free = min(device.memory_free or entry.memory_total, entry.memory_total)
        note = "working-set limit as Metal tells the engine"
        device = replace(device, memory_total=entry.memory_total, memory_free=free, notes=(note,))
    if device.memory_total is None and entry.memory_total > 0:
        device = replace(
            device,
            memory_total=entry.memory_total,
            memory_free=entry.memory_free,
            notes=("memory size as llama.cpp tells it",),
        )
    return device


def _from_engine(entry: EngineDevice) -> Device:
    words = f"{entry.name} {entry.description}".lower()
    kind: Kind = next((kind for word, kind in _MAKERS if word in words), "gpu")
    return Device(
        kind=kind,
        index=0,
        name=entry.description or entry.name,
        pci=normal_pci(entry.device_id),
        memory_total=entry.memory_total or None,
        memory_free=entry.memory_free if entry.memory_total else None,
        unified=entry.kind == "igpu",
        integrated=entry.kind == "igpu",
        engine=entry.name,
        notes=("known from llama.cpp's device list only",),
    )


def _in_engine_order(devices: list[Device], listed: Sequence[EngineDevice]) -> list[Device]:
    place = {entry.name: index for index, entry in enumerate(listed)}
    cards = [device for device in devices if device.kind == "nvidia"]
    if len(cards) > 1 and all(card.engine is not None for card in cards):
        cards.sort(key=lambda card: place[card.engine or ""])
        return cards + [device for device in devices if device.kind != "nvidia"]
    return devices
