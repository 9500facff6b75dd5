"""Budgets of made-up machines, for tests of `recommend`."""

from __future__ import annotations

from specctl.hardware.bandwidth import median_bandwidth
from specctl.plan.budget import Budget
from specctl.plan.speed import Pace
from specctl.units import GIB, MIB

SIZES = (4, 6, 8, 12, 16, 24, 32, 48, 80)
MACHINES = (*SIZES, "cpu")
RAM = 20 * GIB


def gpu_budget(gib: float, ram: int = RAM) -> Budget:
    """A card of that size, 1/32 or 512 MiB of headroom, at the median bandwidth of its size."""
    size = round(gib * GIB)
    room = size - max(512 * MIB, size // 32)
    pace = Pace("gpu", *median_bandwidth(size))
    cpu = Pace("cpu", 51.2e9, "assumed")
    return Budget(room, ram, pace, cpu, "free", "available", f"a {gib} GiB card", True)


def cpu_budget(gib: float = 20) -> Budget:
    cpu = Pace("cpu", 51.2e9, "assumed")
    return Budget(None, round(gib * GIB), None, cpu, "no GPU", "available", "a CPU")
