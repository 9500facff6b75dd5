"""Apple silicon: one memory for CPU and GPU, of which Metal lets a program wire only a part.

The part is `recommendedMaxWorkingSetSize`, which only Metal itself can tell. `sysctl
iogpu.wired_limit_mb` overrides it; 0 or absent means the system's default. That default is
estimated here as two thirds of the memory up to 36 GiB and three quarters above, the rule that
llama.cpp's and MLX's users report; the engine's own device list, where it has Metal, is exact.
"""

from __future__ import annotations

from specctl.hardware.device import Device, Trail
from specctl.hardware.host import Sysctl
from specctl.units import GIB, MIB, format_bytes


def read_apple(trail: Trail, sysctl: Sysctl, ram_available: int) -> tuple[Device, ...]:
    """The GPU of an Apple chip; nothing on Intel Macs. `ram_available` in bytes."""
    if sysctl("hw.optional.arm64") != "1":
        trail.say("sysctl hw.optional.arm64", "not 1: no Apple GPU")
        return ()
    size = sysctl("hw.memsize") or ""
    if not size.isdecimal():
        trail.say("sysctl hw.memsize", size or "nothing", "memory not known")
        total = None
    else:
        total = int(size)
    limit, note = _limit(trail, sysctl, total)
    return (
        Device(
            kind="apple",
            index=0,
            name=sysctl("machdep.cpu.brand_string") or "Apple GPU",
            memory_total=limit,
            memory_free=None if limit is None else min(limit, ram_available),
            unified=True,
            integrated=True,
            driver="Metal",
            notes=(note,),
        ),
    )


def _limit(trail: Trail, sysctl: Sysctl, total: int | None) -> tuple[int | None, str]:
    said = sysctl("iogpu.wired_limit_mb") or ""
    if said.isdecimal() and int(said) > 0:
        limit = int(said) * MIB
        trail.say("sysctl iogpu.wired_limit_mb", said)
        return limit, f"limit set by iogpu.wired_limit_mb: {format_bytes(limit)}"
    if total is None:
        return None, "memory size not known: give --vram SIZE"
    share, words = (2 / 3, "two thirds") if total <= 36 * GIB else (3 / 4, "three quarters")
    trail.say("sysctl iogpu.wired_limit_mb", said or "not there", f"{words} of RAM (estimate)")
    limit = int(total * share)
    return limit, (
        f"working-set limit ≈ {format_bytes(limit)}, {words} of {format_bytes(total)} (estimate; "
        "sysctl iogpu.wired_limit_mb raises it)"
    )
