"""Display devices on the PCI bus as Linux lists them, and their names from pci.ids."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from specctl.hardware.device import Roots, list_folder, normal_pci, read_int, read_text

NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086
_DISPLAY = 0x03  # PCI base class


@dataclass(frozen=True, slots=True)
class DisplayDevice:
    """One PCI function of the display class. `drm` is its /sys/class/drm/cardN, when it has one."""

    address: str
    vendor: int
    device: int
    folder: Path
    drm: Path | None


def display_devices(roots: Roots) -> tuple[DisplayDevice, ...]:
    """In PCI order: through /sys/class/drm, and bare PCI functions that have no driver."""
    found: dict[str, DisplayDevice] = {}
    for card in list_folder(roots.sys / "class/drm"):
        if re.fullmatch(r"card\d+", card.name) and (card / "device/vendor").exists():
            folder = card / "device"
            address = _address(folder) or card.name
            found[address] = _read(address, folder, card)
    for folder in list_folder(roots.sys / "bus/pci/devices"):
        base = (read_int(folder / "class") or 0) >> 16
        address = normal_pci(folder.name) or folder.name
        if base == _DISPLAY and address not in found:
            found[address] = _read(address, folder, None)
    return tuple(found[address] for address in sorted(found))


def _address(folder: Path) -> str | None:
    for line in (read_text(folder / "uevent") or "").splitlines():
        if line.startswith("PCI_SLOT_NAME="):
            return normal_pci(line.partition("=")[2])
    return normal_pci(folder.resolve().name)


def _read(address: str, folder: Path, drm: Path | None) -> DisplayDevice:
    vendor, device = read_int(folder / "vendor"), read_int(folder / "device")
    return DisplayDevice(address, vendor or 0, device or 0, folder, drm)


def pci_name(roots: Roots, vendor: int, device: int) -> str | None:
    """The device's line in the system's pci.ids, where that file is installed."""
    for place in ("misc/pci.ids", "hwdata/pci.ids"):
        text = read_text(roots.share / place)
        if text is None:
            continue
        block = re.search(rf"^{vendor:04x}  .*\n((?:\t.*\n|#.*\n)*)", text + "\n", re.M)
        line = re.search(rf"^\t{device:04x}  (.+)$", block[1], re.M) if block else None
        if line:
            return line[1].strip()
    return None


def neighbours(roots: Roots, address: str) -> tuple[int, ...]:
    """Vendors of the other PCI functions in the same slot."""
    slot, _, own = address.rpartition(".")
    vendors = []
    for function in range(8):
        folder = roots.sys / "bus/pci/devices" / f"{slot}.{function}"
        vendor = read_int(folder / "vendor") if str(function) != own else None
        if vendor is not None:
            vendors.append(vendor)
    return tuple(vendors)
