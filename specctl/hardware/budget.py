"""How many bytes a plan may use on a device or on the host: what is free, minus a stated headroom.

Memory of several GPUs is never added up here: unlike cards do not behave like one big one.
"""

from __future__ import annotations

from specctl.hardware.device import Device
from specctl.hardware.machine import Machine
from specctl.units import GIB, MIB, format_bytes


def primary_device(machine: Machine) -> Device | None:
    """The GPU to plan for first: discrete before integrated, then the larger, then the faster."""
    if not machine.devices:
        return None
    return max(
        machine.devices,
        key=lambda device: (
            not device.integrated,
            device.memory_total or 0,
            device.bandwidth or 0.0,
            -device.index,
        ),
    )


def memory_budget(machine: Machine, device: Device | None) -> tuple[int | None, str]:
    """Bytes a plan may use, and the sum behind it; `device` None is the host's RAM.

    None bytes: the driver does not tell the size, and the user must (`--vram SIZE`).
    """
    if device is None:
        return _host_budget(machine)
    if device.memory_total is None:
        return None, f"{device.name}: memory size not known, give --vram SIZE"
    if device.unified:
        return _unified_budget(machine, device)
    headroom = _card_headroom(machine, device.memory_total)
    free, words = device.memory_free, "free"
    if free is None:
        free, words = device.memory_total, "in all (what is free is not told)"
        headroom = max(headroom, GIB)
    return max(0, free - headroom), (
        f"{format_bytes(free)} {words} − {format_bytes(headroom)} headroom{_whom(machine, device)}"
    )


def _card_headroom(machine: Machine, total: int) -> int:
    """For the display, other programs' growth and fragmentation.

    1/32 of the card, at least 512 MiB; on Windows at least 1 GiB, where the driver silently moves
    memory to RAM before the card is full, and everything gets slower tenfold.
    """
    least = GIB if machine.host.system == "win32" or machine.host.wsl else 512 * MIB
    return max(least, total // 32)


def _ram_headroom(total: int) -> int:
    """For the system and everything else: a tenth of the RAM, from 1 GiB up to 8 GiB."""
    return min(max(GIB, total // 10), 8 * GIB)


def _host_budget(machine: Machine) -> tuple[int, str]:
    host = machine.host
    total = host.ram_limit or host.ram_total
    headroom = min(_ram_headroom(total), total // 4)
    return max(0, host.ram_available - headroom), (
        f"{format_bytes(host.ram_available)} available − {format_bytes(headroom)} headroom"
        + (f" (container limit {format_bytes(host.ram_limit)})" if host.ram_limit else "")
    )


def _unified_budget(machine: Machine, device: Device) -> tuple[int, str]:
    """The GPU's limit and what the system has available both hold; RAM is given once."""
    total = device.memory_total or 0
    free = device.memory_free if device.memory_free is not None else total
    headroom = _ram_headroom(machine.host.ram_total)
    by_ram = max(0, machine.host.ram_available - headroom)
    own = f"{format_bytes(device.dedicated)} set aside for it + " if device.dedicated else ""
    if free <= device.dedicated:
        return free, f"{format_bytes(free)} set aside for it"
    if free - device.dedicated <= by_ram:
        mapped = format_bytes(free - device.dedicated)
        return free, f"{own}{mapped} of unified memory, the limit of the GPU"
    return device.dedicated + by_ram, (
        f"{own}{format_bytes(machine.host.ram_available)} RAM available − "
        f"{format_bytes(headroom)} headroom (unified memory)"
    )


def _whom(machine: Machine, device: Device) -> str:
    """Who uses the rest, where it matters."""
    if machine.simulated or device.memory_total is None or device.memory_free is None:
        return ""
    used = device.memory_total - device.memory_free
    if used < GIB:
        return ""
    names = ", ".join(user.name.rsplit("/", 1)[-1] for user in device.used_by[:3])
    return f"; {format_bytes(used)} in use" + (f" by {names}" if names else "")
