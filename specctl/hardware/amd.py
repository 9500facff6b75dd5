"""AMD devices through amdgpu's sysfs files: VRAM, and for APUs the system memory they may map.

An APU's "VRAM" is a carve-out that the BIOS sets, 512 MiB on one machine and 96 GiB on the next;
the rest of what it can use is GTT, ordinary RAM. A discrete card's GTT is not counted: it is
slower than its VRAM by a factor of ten or more.
"""

from __future__ import annotations

from specctl.hardware.device import Device, Roots, Trail, normal_pci, read_int, read_text
from specctl.hardware.sysfs import AMD, DisplayDevice, display_devices, neighbours, pci_name
from specctl.units import GIB, format_bytes

_CPU_VENDOR = 0x1022  # AMD's processors: an APU shares its PCI slot with their functions
# PCI ids of APUs whose names people know; the slot rule finds the others.
_APUS = {
    0x1586: "Radeon 8060S / 8050S (Strix Halo)",
    0x150E: "Radeon 890M / 880M (Strix Point)",
    0x15BF: "Radeon 780M / 760M (Phoenix)",
    0x1900: "Radeon 780M / 760M (Hawk Point)",
    0x1681: "Radeon 680M / 660M (Rembrandt)",
    0x164E: "Radeon Graphics (Raphael)",
    0x13C0: "Radeon Graphics (Granite Ridge)",
    0x163F: "Van Gogh (Steam Deck)",
    0x1638: "Radeon Graphics (Cezanne)",
    0x1636: "Radeon Graphics (Renoir)",
}


def read_amd(trail: Trail, roots: Roots, ram_available: int) -> tuple[Device, ...]:
    """AMD devices in PCI order. `ram_available` in bytes caps what GTT can really give."""
    found = [
        _device(card, trail, roots, ram_available)
        for card in display_devices(roots)
        if card.vendor == AMD
    ]
    trail.say(f"{roots.sys} AMD devices", f"{len(found)} found")
    return tuple(found)


def _device(card: DisplayDevice, trail: Trail, roots: Roots, ram_available: int) -> Device:
    def number(name: str) -> int | None:
        return read_int(card.folder / name)

    vram, used = number("mem_info_vram_total"), number("mem_info_vram_used")
    gtt, gtt_used = number("mem_info_gtt_total"), number("mem_info_gtt_used")
    trail.say(
        f"amdgpu {card.address}",
        f"vram {vram}, used {used}, gtt {gtt}, used {gtt_used} (bytes)",
        None if vram is not None else "memory not known",
    )
    integrated, why = _integrated(card, roots, vram, gtt)
    name = (
        read_text(card.folder / "product_name")
        or _APUS.get(card.device)
        or pci_name(roots, AMD, card.device)
        or f"AMD GPU {card.device:04x}"
    )
    total, free, dedicated, notes = vram, None, 0, list[str]()
    if vram is not None:
        free = max(0, vram - (used or 0))
        if used is None:
            notes.append("use of VRAM not told: all of it taken as free")
    if integrated and vram is not None:
        total, dedicated = vram + (gtt or 0), free or 0
        free = dedicated + min(max(0, (gtt or 0) - (gtt_used or 0)), ram_available)
        notes.append(
            f"integrated ({why}): {format_bytes(vram)} set aside by the BIOS + "
            f"{format_bytes(gtt or 0)} of RAM it may map (GTT)"
        )
    if vram is None:
        loaded = card.drm is not None
        notes.append(
            "memory size not told by the driver: give --vram SIZE"
            if loaded
            else "no amdgpu driver is bound to it: memory not known, give --vram SIZE"
        )
    return Device(
        kind="amd",
        index=0,
        name=name if name.lower().startswith("amd") else f"AMD {name}",
        uuid=read_text(card.folder / "unique_id"),
        pci=normal_pci(card.address),
        memory_total=total,
        memory_free=free,
        unified=integrated,
        integrated=integrated,
        dedicated=dedicated,
        driver="amdgpu" if vram is not None else None,
        notes=tuple(notes),
    )


def _integrated(
    card: DisplayDevice, roots: Roots, vram: int | None, gtt: int | None
) -> tuple[bool, str]:
    """Is it an APU, and how do we know."""
    if card.device in _APUS:
        return True, "known PCI id"
    beside = neighbours(roots, card.address)
    if beside:
        return _CPU_VENDOR in beside, "shares its PCI slot with the processor"
    small = vram is not None and vram <= GIB and (gtt or 0) >= 4 * vram
    return small, "guessed: little VRAM, much GTT"
