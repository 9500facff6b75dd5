"""K* of a model-bound drafter, from what a tuning round measured."""

from __future__ import annotations

from collections.abc import Iterable

from specctl.bench.costs import on_lines
from specctl.bench.tune import K_MOST, Standing
from specctl.plan.speed import best_k


def suggested_k(
    method: str, standings: Iterable[Standing], k_most: int = K_MOST
) -> tuple[int, float] | None:
    """K* of a method by what its first Ks measured, and the speed-up to expect (an estimate).

    K* = argmax over k of (1 + Σ P_i) / C(k): P_i, that the first i tokens all stand, from the arm
    with the longest drafts; C(k) from the arms' mean cycles, C(0) a plain step, between them on a
    straight line. No k beyond the longest that was tried. None with fewer than two arms.
    """
    arms = {s.candidate.spec.k or 0: s for s in standings if s.candidate.spec.types == (method,)}
    known = {k: s for k, s in arms.items() if k and s.totals.drafted_cycles}
    if len(known) < 2:
        return None
    longest = known[max(known)]
    plain_rate = longest.speed.plain_rate
    if not plain_rate:
        return None
    costs = {0: 1 / plain_rate}
    costs |= {k: s.totals.seconds / s.totals.cycles for k, s in known.items()}
    stood = longest.totals.accepted_at
    cycles = longest.totals.drafted_cycles

    def accepted(k: int) -> float:
        return sum(stood[:k]) / cycles

    curve = sorted(costs.items())

    def line(k: int) -> float:
        return on_lines(curve, k)

    k = best_k(accepted, line, min(max(known), k_most))
    return (k, (1 + accepted(k)) / line(k) / plain_rate) if k else None
