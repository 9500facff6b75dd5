"""Plan for another machine than this one: `--vram`, `--ram`, `--gpu`. What is set is marked."""

from __future__ import annotations

import difflib
from dataclasses import replace

from specctl.errors import UsageError
from specctl.hardware.bandwidth import Card, cards, find_cards, lookup, median_bandwidth
from specctl.hardware.budget import primary_device
from specctl.hardware.device import Device
from specctl.hardware.machine import Machine
from specctl.units import GIB, format_bytes


def simulate(
    machine: Machine, vram: int | None = None, ram: int | None = None, gpu: str | None = None
) -> Machine:
    """The machine with the user's own figures; unchanged when there are none.

    `vram` and `ram` in bytes: the whole card, all of it free; `vram` 0 takes every GPU away. `gpu`
    is the index of a device here, a part of its name, or a card of the data-sheet table.

    Raises:
        UsageError: no such device or card, one that was sold with several memory sizes, or a size
            that makes no sense.
    """
    if vram is None and ram is None and gpu is None:
        return machine
    overrides: list[str] = []
    devices, host = machine.devices, machine.host
    wanted = vram
    if gpu is not None:
        chosen = _named(machine, gpu, vram)
        if isinstance(chosen, Card):
            if chosen.unified:  # its memory is that machine's RAM
                host = replace(host, ram_total=chosen.memory, ram_available=chosen.memory)
            if chosen.memory == vram:
                wanted = None
            chosen = _device_of(chosen)
        devices = (chosen,)
        overrides.append(f"--gpu {gpu}")
    if vram is not None:
        _check(vram, "--vram", least=0)
        overrides.append(f"--vram {format_bytes(vram)}")
    if wanted is not None:
        own = primary_device(replace(machine, devices=devices))
        keep = own is not None and (gpu is not None or _could_have(own, wanted))
        device = _resized(own, wanted) if own is not None and keep else _unnamed(wanted)
        devices = (device,) if wanted else ()
    if ram is not None:
        _check(ram, "--ram", least=GIB // 4)
        host = replace(host, ram_total=ram, ram_available=ram, ram_limit=None)
        devices = tuple(_within(device, ram) for device in devices)
        overrides.append(f"--ram {format_bytes(ram)}")
    devices = tuple(replace(device, index=index) for index, device in enumerate(devices))
    return replace(
        machine,
        host=host,
        devices=devices,
        simulated=True,
        overrides=(*machine.overrides, *overrides),
    )


def _check(size: int, flag: str, least: int) -> None:
    if not least <= size <= 1 << 50:
        raise UsageError(
            f"{flag} {format_bytes(size)} makes no sense", "a size like 8, 24G or 512M"
        )


def _within(device: Device, ram: int) -> Device:
    if not device.unified or device.memory_total is None:
        return device
    free = device.memory_total if device.memory_free is None else device.memory_free
    return replace(device, memory_total=min(device.memory_total, ram), memory_free=min(free, ram))


def _named(machine: Machine, gpu: str, vram: int | None) -> Device | Card:
    text = gpu.strip()
    if text.isdecimal() and int(text) < 100:
        if int(text) < len(machine.devices):
            return machine.devices[int(text)]
        have = "; ".join(f"{device.index}: {device.name}" for device in machine.devices)
        raise UsageError(f"--gpu {text}: no such device here", have or "no GPU was found here")
    here = [device for device in machine.devices if text and text.lower() in device.name.lower()]
    if here:
        return here[0]
    return _card(text, vram)


def _card(text: str, vram: int | None) -> Card:
    found = find_cards(text)
    names = list(dict.fromkeys(card.name for card in found))
    if not found:
        near = _similar(text)
        raise UsageError(
            f"--gpu {text!r}: not here, and not in the data-sheet table",
            (f"did you mean {', '.join(near)}? " if near else "")
            + "a card that is not listed: --vram SIZE",
        )
    if len(names) > 1:
        raise UsageError(f"--gpu {text!r} could be several cards", ", ".join(names[:8]))
    if len(found) == 1:
        return found[0]
    if vram is not None:
        return min(found, key=lambda card: abs(card.memory - vram))
    sizes = ", ".join(str(card.memory // GIB) for card in found)
    raise UsageError(
        f"--gpu {text}: the {names[0]} comes with {sizes} GiB", "say which: add --vram SIZE"
    )


def _similar(text: str) -> list[str]:
    names = {card.name.lower(): card.name for card in cards()}
    near = difflib.get_close_matches(text.lower(), names, n=3, cutoff=0.6)
    return [names[name] for name in near]


def _device_of(card: Card) -> Device:
    """A listed card as a device. Of Apple's memory the GPU may wire only a part (estimate)."""
    usable = card.memory
    if card.kind == "apple":
        usable = int(card.memory * (2 / 3 if card.memory <= 36 * GIB else 3 / 4))
    return Device(
        kind=card.kind,
        index=0,
        name=card.name,
        memory_total=usable,
        memory_free=usable,
        unified=card.unified,
        integrated=card.unified,
        bandwidth=card.bandwidth,
        bandwidth_source=f"data sheet ({card.name})",
        notes=("simulated",),
    )


def _resized(own: Device, vram: int) -> Device:
    """The same GPU with another memory size, all of it free."""
    card = lookup(own.kind, own.name, vram)
    if card is not None and not own.bandwidth_source.startswith("measured"):
        source = f"data sheet ({card.name})"
        own = replace(own, bandwidth=card.bandwidth, bandwidth_source=source)
    return replace(
        own,
        memory_total=vram,
        memory_free=vram,
        dedicated=vram if own.unified else 0,
        used_by=(),
        notes=("memory size set by --vram",),
    )


def _unnamed(vram: int) -> Device:
    """A card of which only the size is known: the median bandwidth of that size."""
    bandwidth, source = median_bandwidth(vram)
    return Device(
        kind="gpu",
        index=0,
        name=f"a {format_bytes(vram)} GPU",
        memory_total=vram,
        memory_free=vram,
        bandwidth=bandwidth,
        bandwidth_source=source,
        notes=("simulated",),
    )


def _could_have(device: Device, vram: int) -> bool:
    """A bigger size than this GPU has means another card."""
    return device.memory_total is None or vram <= device.memory_total * 1.1
