"""The steps of the keys for K."""

from __future__ import annotations

K_LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def lower(k: int | None, k_max: int) -> int:
    """The next smaller cap than the one in force (`k`, or what drafters may by themselves)."""
    now = k or k_max
    return max((step for step in K_LADDER if step < now), default=K_LADDER[0])


def higher(k: int | None) -> int:
    """The next larger cap; 0 is no cap: above the last step, or where none is set."""
    return min((step for step in K_LADDER if k is not None and step > k), default=0)
