"""Which NVIDIA devices CUDA shows to this process, and in which order.

NVML lists all cards; CUDA lists those of `CUDA_VISIBLE_DEVICES`, numbered by `CUDA_DEVICE_ORDER`.
Rules (CUDA C++ Programming Guide, environment variables): entries are indices or unique prefixes of
UUIDs; the first invalid entry ends the list; an empty list or -1 hides everything. A list that
names a device twice shows none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specctl.hardware.device import Device


@dataclass(frozen=True, slots=True)
class Card:
    """One physical card as NVML lists it; `slices` are its MIG devices, when it is split.

    `speed` is only for ordering: cores x clock, None where the driver does not tell.
    """

    device: Device
    speed: float | None = None
    slices: tuple[Device, ...] = ()

    @property
    def usable(self) -> tuple[Device, ...]:
        """What a program can run on: the slices of a split card, else the card."""
        return self.slices or (self.device,)


@dataclass(frozen=True, slots=True)
class Selection:
    """Devices in CUDA's order, those it hides, and what is worth saying."""

    visible: tuple[Device, ...]
    hidden: tuple[Device, ...] = ()
    notes: tuple[str, ...] = ()


def select(cards: Sequence[Card], environ: Mapping[str, str]) -> Selection:
    """The view of a CUDA program in this environment."""
    ordered, order_note = _ordered(cards, environ.get("CUDA_DEVICE_ORDER", ""))
    notes = [order_note] if order_note else []
    every = [device for card in ordered for device in card.usable]
    if sum(len(card.slices) for card in ordered) > 1:
        notes.append(
            "CUDA uses one MIG slice per process: name one in CUDA_VISIBLE_DEVICES to choose it"
        )
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return Selection(tuple(every), (), tuple(notes))
    visible, note = _chosen(ordered, value)
    hidden = tuple(device for device in every if device not in visible)
    if note:
        notes.append(note)
    if hidden:
        notes.append(f"CUDA_VISIBLE_DEVICES={value!r} hides {len(hidden)} of {len(every)}")
    return Selection(tuple(visible), hidden, tuple(notes))


def _ordered(cards: Sequence[Card], order: str) -> tuple[list[Card], str | None]:
    """CUDA's numbering: by default the card it thinks fastest is 0, the rest keep their order."""
    by_pci = sorted(cards, key=lambda card: card.device.pci or "")
    alike = len({card.device.name for card in cards}) <= 1
    if order.upper() == "PCI_BUS_ID" or alike:
        return by_pci, None
    fastest = max(by_pci, key=lambda card: card.speed or 0.0)
    if not fastest.speed:
        return by_pci, (
            "CUDA's order of these unlike cards is not known, PCI order is shown; "
            "CUDA_DEVICE_ORDER=PCI_BUS_ID makes it so"
        )
    rest = [card for card in by_pci if card is not fastest]
    return [fastest, *rest], (
        "order of unlike cards is CUDA's fastest-first, estimated from cores x clock; "
        "CUDA_DEVICE_ORDER=PCI_BUS_ID makes it certain"
    )


def _chosen(ordered: Sequence[Card], value: str) -> tuple[list[Device], str | None]:
    chosen: list[Device] = []
    for entry in (part.strip() for part in value.split(",")):
        device = _find(ordered, entry)
        if device is None:
            quiet = entry in ("", "-1")
            return (
                chosen,
                None if quiet else f"CUDA_VISIBLE_DEVICES: no device {entry!r}, list ends",
            )
        if device in chosen:
            return [], f"CUDA_VISIBLE_DEVICES names {entry!r} twice: CUDA then shows no device"
        chosen.append(device)
    return chosen, None


def _find(ordered: Sequence[Card], entry: str) -> Device | None:
    if entry.isdecimal():
        index = int(entry)
        return ordered[index].usable[0] if index < len(ordered) else None
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    slices = [device for card in ordered for device in card.slices]
    whole = [card.device for card in ordered]
    pool = slices if entry.startswith("MIG-") else whole
    found = [device for device in pool if (device.uuid or "").startswith(entry)]
    if len(found) != 1:
        return None
    card = next((card for card in ordered if card.device is found[0]), None)
    return card.usable[0] if card else found[0]
