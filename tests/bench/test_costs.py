"""Costs measured on scripted memories: every pass takes an exactly known time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from specctl.bench.costs import MeasuredCosts, Timing, measure_costs, run
from specctl.errors import UsageError

STEP, ROW, DRAFT, READ = 10.0, 2.0, 3.0, 0.5
TEXT = tuple(range(40))


class Watch:
    def __init__(self) -> None:
        self.now = 0.0
        self.slow = 1.0  # every pass takes so many times as long
        self.cold = 0  # passes at the start that take a hundred times as long

    def __call__(self) -> float:
        return self.now


class Memory:
    """A target or a draft: the first row costs `step`, each further one `row`."""

    def __init__(self, watch: Watch, step: float, row: float) -> None:
        self.watch, self.step, self.row = watch, step, row
        self.n_ctx = 64
        self.tokens: list[int] = []
        self.calls: list[tuple[str, int]] = []

    def follow(self, tokens: Sequence[int]) -> int:
        self.watch.now += 1000.0  # going back is not part of any pass
        self.tokens = list(tokens)
        return 0

    def _decode(self, what: str, tokens: Sequence[int]) -> None:
        assert tuple(tokens) == TEXT[len(self.tokens) : len(self.tokens) + len(tokens)]
        self.tokens += tokens
        self.calls.append((what, len(tokens)))
        pace = 100.0 if self.watch.cold > 0 else self.watch.slow
        self.watch.cold -= 1
        self.watch.now += pace * (self.step + self.row * (len(tokens) - 1))

    def verify(self, tokens: Sequence[int]) -> np.ndarray:
        self._decode("verify", tokens)
        return np.zeros((len(tokens), 4), np.float32)

    def extend(self, tokens: Sequence[int]) -> np.ndarray:
        self._decode("extend", tokens)
        return np.zeros(4, np.float32)


def _pair() -> tuple[Watch, Memory, Memory]:
    watch = Watch()
    return watch, Memory(watch, STEP, ROW), Memory(watch, DRAFT, READ)


def test_every_pass_is_told_apart() -> None:
    watch, target, draft = _pair()
    costs = run(measure_costs(target, draft, TEXT, 20, (4, 1, 2), rounds=3, clock=watch))
    assert costs.t_1 == STEP
    assert [(rows, timing.seconds) for rows, timing in costs.passes] == [
        (2, STEP + ROW), (3, STEP + 2 * ROW), (5, STEP + 4 * ROW),
    ]  # fmt: skip
    assert costs.pass_seconds(4) == STEP + 3 * ROW  # between two measured ones
    assert costs.pass_seconds(9) == STEP + 8 * ROW  # beyond the last
    assert costs.draft_seconds(1) == DRAFT
    assert costs.draft_seconds(3) == 3 * DRAFT
    assert costs.draft_seconds(3, whole=1.0) == 3 * DRAFT + READ
    assert costs.draft_seconds(0) == 0
    assert costs.cycle_seconds(2, whole=0.5) == 2 * DRAFT + READ / 2 + STEP + 2 * ROW
    assert costs.cycle_seconds(0) == costs.t_1
    assert costs.break_even(2) == pytest.approx((2 * DRAFT + 2 * ROW) / STEP)
    assert costs.step_ratio == DRAFT / STEP
    assert costs.rounds == 3
    assert target.tokens == draft.tokens == list(TEXT[:20])


def test_one_k_has_both_kinds_of_start() -> None:
    watch, target, draft = _pair()
    costs = run(measure_costs(target, draft, TEXT, 20, (1,), rounds=2, clock=watch))
    assert costs.first is not None
    assert costs.pair is not None
    assert costs.pair.seconds - costs.first.seconds == READ
    assert costs.next is None
    assert costs.draft_seconds(2) == 2 * DRAFT  # the best that is known


def test_without_a_draft_cycles_cost_the_pass() -> None:
    watch, target, _ = _pair()
    costs = run(measure_costs(target, None, TEXT, 20, (3,), rounds=1, clock=watch))
    assert costs.cycle_seconds(3) == STEP + 3 * ROW
    assert costs.step_ratio is None


def test_the_first_round_does_not_count_and_slow_rounds_stay_together() -> None:
    watch, target, draft = _pair()
    watch.cold = 11  # the passes of one round: five plain ones, two cycles of K = 2
    steps = measure_costs(target, draft, TEXT, 20, (2,), rounds=3, clock=watch)
    assert [next(steps).index, next(steps).index] == [1, 2]
    watch.slow = 2.0
    assert next(steps).eta == 0
    with pytest.raises(StopIteration) as end:
        next(steps)
    costs: MeasuredCosts = end.value.value
    assert costs.plain.rounds == (STEP, STEP, 2 * STEP)
    assert costs.t_1 == STEP
    assert costs.plain.spread == 1.0
    ratios = [costs.in_round(i).break_even(2) for i in range(3)]
    assert ratios == pytest.approx([costs.break_even(2)] * 3)  # the pace is in both


@pytest.mark.parametrize(
    ("length", "n_past", "ks", "rounds"), [(25, 20, (8,), 3), (40, 1, (2,), 3), (40, 20, (0,), 3),
                                           (40, 20, (2,), 0)]
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(
    length: int, n_past: int, ks: tuple[int, ...], rounds: int
) -> None:
    watch, target, draft = _pair()
    with pytest.raises(UsageError):
        run(measure_costs(target, draft, TEXT[:length], n_past, ks, rounds=rounds, clock=watch))


def test_a_timing_speaks_of_its_median() -> None:
    timing = Timing((3.0, 1.0, 2.0))
    assert timing.seconds == 2.0
    assert timing.spread == 1.0
