"""What a draft would bring: replayed matches and costs, by hand and against the formulas."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.bench.costs import MeasuredCosts, Timing
from specctl.bench.forecast import Replay, forecast, replay
from specctl.errors import UsageError
from specctl.plan.speed import acceptance_rate

T, F = True, False


def _costs(
    t_1: float = 10.0, row: float = 1.0, step: float = 2.0, rounds: int = 3
) -> MeasuredCosts:
    def timing(seconds: float) -> Timing:
        return Timing((seconds,) * rounds)

    passes = tuple((rows, timing(t_1 + row * (rows - 1))) for rows in (2, 9))
    return MeasuredCosts(100, timing(t_1), passes, timing(step), timing(step), timing(step + 1))


@pytest.mark.parametrize(
    ("matches", "k", "expected"),
    [
        ([T, T, F, T, T, T, F], 2, Replay(2, 4, 2)),  # TT+F, TT+T, then one is left: no cycle
        ([T, T, F, T, T, T, F], 3, Replay(2, 5, 1)),  # TT then the wrong one, TTT+F
        ([F, F, F], 1, Replay(2, 0, 0)),  # the third would run past the end
        ([T, T, T, T], 4, Replay(0, 0, 0)),  # a text of k tokens has no room for the target's own
        ([T, T, T, T, F], 4, Replay(1, 4, 1)),
        ([], 1, Replay(0, 0, 0)),
    ],
)
def test_replay_by_hand(matches: list[bool], k: int, expected: Replay) -> None:
    assert replay(matches, k) == expected


@given(st.lists(st.booleans(), max_size=80), st.integers(1, 9))
def test_replay_is_the_loop(matches: list[bool], k: int) -> None:
    """Against tokens: a draft that is wrong where the flag says so, checked one by one."""
    text = [2 * i for i in range(len(matches))]
    says = [token if right else token + 1 for token, right in zip(text, matches, strict=True)]
    at, counts = 0, Replay()
    while at + k + 1 <= len(text):
        accepted = 0
        for i in range(at, at + k):
            if says[i] != text[i]:
                break
            accepted += 1
        counts += Replay(1, accepted, int(accepted == k))
        at += accepted + 1
    assert replay(matches, k) == counts


@pytest.mark.parametrize("k", [1, 3, 6])
def test_independent_matches_are_the_formula(k: int) -> None:
    rng = random.Random(4)
    found = replay([rng.random() < 0.8 for _ in range(60_000)], k)
    assert found.per_cycle / k == pytest.approx(acceptance_rate(0.8, k), abs=0.01)


def test_figures_by_hand() -> None:
    """All right but every fifth, K 2: cycles TT+T, T+wrong, over and over."""
    said = forecast({"a": [T, T, T, T, F] * 20}, _costs(), [2])
    (one,) = said.lengths
    assert said.beta == 0.8
    assert said.positions == 100
    assert (one.accepted, one.whole) == pytest.approx((1.5, 0.5), abs=0.03)
    assert one.alpha == one.accepted / 2
    assert one.cycle_seconds == pytest.approx(12 + 2 * 2 + one.whole)
    assert one.break_even == pytest.approx(one.cycle_seconds / 10 - 1)
    assert one.speedup == pytest.approx((1 + one.accepted) * 10 / one.cycle_seconds)
    assert one.low == one.high == one.speedup
    assert one.noise == pytest.approx(0.02)  # rounds that agree: the floor
    assert said.best is one
    assert said.k_star == 2
    assert said.pays


def test_plain_is_a_candidate() -> None:
    said = forecast({"a": [F, T] * 40}, _costs(step=9.0), [1, 2, 3])
    assert said.k_star == 0
    assert not said.pays
    assert said.best.speedup < 1
    assert said.best.verdict == "slower"
    assert said.best.accepted < said.best.break_even


def test_the_best_length_is_found_among_those_asked_for() -> None:
    texts = {"a": [T] * 200}
    every = forecast(texts, _costs(), range(1, 9))
    assert (every.k_star, every.best.k) == (8, 8)
    assert all(a.speedup < b.speedup for a, b in pairwise(every.lengths))
    assert forecast(texts, _costs(), [1, 3]).k_star == 3


def test_prompts_that_differ_show_as_a_range() -> None:
    (one,) = forecast({"good": [T] * 100, "bad": [F] * 100}, _costs(), [4]).lengths
    assert one.low == pytest.approx(10 / (14 + 8))
    assert one.high == pytest.approx(5 * 10 / (14 + 8 + 1))
    assert one.low < one.speedup < one.high


def test_a_gain_inside_the_noise_does_not_pay() -> None:
    slow = Timing((2.0, 7.0, 12.0))
    costs = MeasuredCosts(9, Timing((10.0,) * 3), ((2, Timing((11.0,) * 3)),), slow)
    said = forecast({"a": [T] * 50}, costs, [1])
    assert said.best.speedup > 1.05
    assert said.best.verdict == "no difference shown"
    assert not said.pays


def test_one_round_has_an_assumed_noise() -> None:
    assert forecast({"a": [T] * 50}, _costs(rounds=1), [1]).best.noise == 0.10


def test_lengths_no_text_is_long_enough_for_are_left_out() -> None:
    said = forecast({"a": [T, T, F], "b": []}, _costs(), [1, 2, 3])
    assert [one.k for one in said.lengths] == [1, 2]
    with pytest.raises(UsageError, match="too few"):
        forecast({"a": [T]}, _costs(), [1, 2])
