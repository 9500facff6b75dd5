"""The formulas of plan/speed.py against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.plan.speed import (
    EFFICIENCY,
    LAYER_SECONDS,
    MOE_LAYER_SECONDS,
    ROW_COST,
    Load,
    Pace,
    acceptance_rate,
    best_k,
    draft_seconds,
    expected_tokens,
    from_speedup,
    middle,
    pass_seconds,
    per_token_rate,
    predict,
    touched_share,
)

GPU = Pace("gpu", 1000e9, "a card of 1000 GB/s")


def test_tokens_per_pass_by_hand() -> None:
    assert expected_tokens(0.7, 5) == pytest.approx(2.941, abs=1e-3)  # not 1 + 0.7 · 5 = 4.5
    assert expected_tokens(0.5, 1) == 1.5
    assert expected_tokens(0.5, 3) == 1 + 0.5 + 0.25 + 0.125
    assert expected_tokens(0.0, 4) == 1
    assert expected_tokens(1.0, 4) == 5
    assert expected_tokens(0.9, 0) == pytest.approx(1)


def test_acceptance_rate_by_hand() -> None:
    assert acceptance_rate(0.5, 2) == pytest.approx((0.5 + 0.25) / 2)
    assert per_token_rate((0.5 + 0.25) / 2, 2) == pytest.approx(0.5)


@given(st.floats(0, 1), st.integers(1, 64))
def test_the_two_rates_are_inverses(beta: float, k: int) -> None:
    assert acceptance_rate(per_token_rate(acceptance_rate(beta, k), k), k) == pytest.approx(
        acceptance_rate(beta, k), abs=1e-9
    )


def test_touched_experts_by_hand() -> None:
    assert touched_share(128, 8, 1) == pytest.approx(8 / 128)
    assert touched_share(4, 1, 2) == pytest.approx(1 - (3 / 4) ** 2)  # 1.75 experts of 4
    assert touched_share(4, 4, 1) == 1
    assert touched_share(0, 0, 5) == 0
    assert touched_share(256, 8, 1000) == pytest.approx(1)


def test_a_dense_pass_by_hand() -> None:
    """20 GB at 1000 GB/s and 50 layers; efficiency and launch cost as stated in the module."""
    fast, slow = pass_seconds([(Load(dense=20e9, n_layer=50), GPU)])
    assert fast == pytest.approx(0.020 / EFFICIENCY["gpu"][1] + 50 * LAYER_SECONDS["gpu"][0])
    assert slow == pytest.approx(0.020 / EFFICIENCY["gpu"][0] + 50 * LAYER_SECONDS["gpu"][1])


def test_more_rows_cost_what_the_row_cost_says() -> None:
    parts = [(Load(dense=20e9), GPU)]
    one, five = pass_seconds(parts), pass_seconds(parts, 5)
    assert five[0] / one[0] == pytest.approx(1 + 4 * ROW_COST["gpu"][0])
    assert five[1] / one[1] == pytest.approx(1 + 4 * ROW_COST["gpu"][1])


def test_a_moe_pass_reads_more_experts_with_more_rows() -> None:
    load = Load(dense=1e9, experts=32e9, n_expert=128, n_expert_used=8, n_layer=48)
    assert load.read(1) == pytest.approx(1e9 + 2e9)
    assert load.read(4) == pytest.approx(1e9 + 32e9 * (1 - (1 - 1 / 16) ** 4))
    fast, _ = pass_seconds([(load, GPU)])
    assert fast == pytest.approx(0.003 / EFFICIENCY["gpu"][1] + 48 * MOE_LAYER_SECONDS["gpu"][0])
    dense = Load(dense=3e9, n_layer=48)
    grows = [pass_seconds([(x, GPU)], 5)[0] / pass_seconds([(x, GPU)])[0] for x in (load, dense)]
    assert grows[0] > 1.5 > 1.2 > grows[1]


def test_the_kv_cache_and_low_bit_quants_cost() -> None:
    plain = pass_seconds([(Load(dense=10e9), GPU)])
    full = pass_seconds([(Load(dense=10e9, kv=5e9), GPU)])
    assert full[0] == pytest.approx(plain[0] * 1.5)
    low = pass_seconds([(Load(dense=10e9, low_bit=True), GPU)])
    assert low[0] == plain[0]
    assert low[1] > plain[1]


def test_two_places_work_one_after_another() -> None:
    ram = Pace("cpu", 50e9, "two channels")
    apart = pass_seconds([(Load(dense=2e9), GPU), (Load(dense=1e9), ram)])
    each = pass_seconds([(Load(dense=2e9), GPU)]), pass_seconds([(Load(dense=1e9), ram)])
    assert apart == pytest.approx(tuple(sum(side) for side in zip(*each, strict=True)))


def test_drafting_costs_k_passes_or_one_block_or_nothing() -> None:
    draft = [(Load(dense=1e9), GPU)]
    one = pass_seconds(draft)
    assert draft_seconds(draft, 4) == pytest.approx((4 * one[0], 4 * one[1]))
    whole = lambda _: 16  # noqa: E731
    assert draft_seconds(draft, 1, whole) == draft_seconds(draft, 9, whole)
    assert draft_seconds(draft, 4, whole) == pass_seconds(draft, 16)
    assert draft_seconds(draft, 4, lambda k: k + 1) == pass_seconds(draft, 5)
    assert draft_seconds(draft, 0, whole) == (0, 0)
    assert draft_seconds((), 4) == (0, 0)
    assert draft_seconds(draft, 0) == (0, 0)


def test_best_k_by_hand() -> None:
    """Free verification, draft step a tenth of a pass, β 0.5: (1 + 0.5 + …) / (1 + 0.1 k)."""
    gains = [expected_tokens(0.5, k) / (1 + 0.1 * k) for k in range(9)]
    assert gains.index(max(gains)) == 2
    assert best_k(lambda k: expected_tokens(0.5, k) - 1, lambda k: 1 + 0.1 * k, 8) == 2


def test_best_k_is_zero_where_drafting_loses() -> None:
    """Verify cost t(k + 1) = 1 + 0.25 k, draft 0.2 a token, acceptance 0.3: never pays."""
    cycle = lambda k: 1 + 0.45 * k  # noqa: E731
    assert best_k(lambda k: expected_tokens(0.3, k) - 1, cycle, 8) == 0


def test_predict_puts_it_together() -> None:
    target, draft = [(Load(dense=20e9), GPU)], [(Load(dense=1e9), GPU)]
    got = predict(target, draft, (0.6, 0.6), 4)
    tokens = expected_tokens(0.6, 4)
    low, high = ROW_COST["gpu"]
    cheap, dear = 1 + 4 * low + 4 / 20, 1 + 4 * high + 4 / 20
    assert got.tokens_per_pass == pytest.approx((tokens, tokens))
    assert got.speedup == pytest.approx((tokens / dear, tokens / cheap))
    assert got.break_even == pytest.approx((cheap - 1, dear - 1))
    assert got.plain == pytest.approx((0.6 * 50, 0.85 * 50))
    assert got.spec == pytest.approx((got.plain[0] * tokens / dear, got.plain[1] * tokens / cheap))
    assert got.typical == pytest.approx(math.sqrt(got.spec[0] * got.spec[1]))


def test_predict_without_a_draft_is_plain() -> None:
    got = predict([(Load(dense=20e9), GPU)], (), (0.0, 0.0), 0)
    assert got.spec == got.plain
    assert got.speedup == (1, 1)
    assert got.break_even == (0, 0)


def test_predict_chooses_k_and_knows_when_not_to() -> None:
    target = [(Load(dense=20e9), GPU)]
    assert predict(target, [(Load(dense=1e9), GPU)], (0.7, 0.9), None).k >= 3
    assert predict(target, [(Load(dense=18e9), GPU)], (0.4, 0.6), None).k == 0


def test_a_measured_speedup_is_kept() -> None:
    got = from_speedup([(Load(dense=20e9), GPU)], (1.3, 1.6), 4)
    assert got.speedup == (1.3, 1.6)
    assert got.spec == pytest.approx((got.plain[0] * 1.3, got.plain[1] * 1.6))
    assert got.tokens_per_pass is None


def test_recurrent_layers_do_not_batch_on_a_cpu() -> None:
    cpu = Pace("cpu", 500e9, "a server")
    hybrid = predict([(Load(dense=5e9, hybrid=True), cpu)], (), (0.8, 0.9), 1)
    dense = predict([(Load(dense=5e9), cpu)], (), (0.8, 0.9), 1)
    assert middle(hybrid.speedup) < 1 < middle(dense.speedup)


def test_the_rows_that_the_factors_were_taken_from_lie_inside() -> None:
    """RTX 4080, 717 GB/s: 27B UD-IQ3_XXS 45.3 tok/s, 35B-A3B UD-IQ3_S 136.4 tok/s."""
    card = Pace("gpu", 717e9, "data sheet")
    dense = predict([(Load(dense=11_506_493_344, n_layer=64), card)], (), (0, 0), 0)
    assert dense.plain[0] <= 45.3 <= dense.plain[1]
    size = 13_583_383_168
    moe = Load(size * 0.12, 0.0, size * 0.88, 256, 8, 40)
    got = predict([(moe, card)], (), (0, 0), 0)
    assert got.plain[0] <= 136.4 <= got.plain[1]
