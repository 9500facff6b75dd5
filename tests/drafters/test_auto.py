"""The controller against scripted texts and costs: what it wins and risks, how fast it turns."""

from __future__ import annotations

import random

import pytest
from auto_sim import (
    T_1,
    Clock,
    FakeModel,
    compute_bound,
    copying_text,
    make,
    memory_bound,
    on_clock,
    run,
)
from hypothesis import given
from hypothesis import strategies as st

from specctl.drafters.auto import DARE, INCOME, STAKE
from specctl.drafters.base import Outcome
from specctl.drafters.costs import KNOTS, CostCurve
from specctl.drafters.model_source import ModelSource
from specctl.drafters.suffix import NgramSuffix
from specctl.settings import Sampling


@pytest.fixture(autouse=True)
def _still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller counts its own time; a busy machine must not change what is tested."""
    on_clock(monkeypatch, Clock())


def novel(length: int, seed: int = 5) -> list[int]:
    """A text in which nothing repeats but by chance."""
    chance = random.Random(seed)
    return [chance.randrange(50_000) for _ in range(length)]


def test_a_copy_is_fast_and_new_text_is_not_slower() -> None:
    prompt, answer = copying_text([0.97], 300)
    assert run(make(), prompt, answer).speed > 2.5
    assert run(make(), prompt, novel(300)).speed > 0.99


@pytest.mark.parametrize("cost", [memory_bound, compute_bound])
def test_it_follows_a_change_of_text_and_back(cost: object) -> None:
    prompt, answer = copying_text([0.95, 0.1, 0.95], 100)
    result = run(make(), prompt, answer, cost)  # type: ignore[arg-type]
    bad = result.between(100, 200)
    spent = sum(cost(drafted + 1, 0) for _, drafted, _, _ in bad)  # type: ignore[operator]
    assert sum(accepted + 1 for _, _, accepted, _ in bad) / spent > 0.91
    early = sum(drafted for _, drafted, _, _ in result.between(60, 100))
    late = sum(drafted for at, drafted, _, _ in bad if at >= 130)
    assert late / 70 < 0.4 * early / 40  # drafted rows per token: off but for a cheap try
    if cost is memory_bound:
        again = [at for at, drafted, accepted, _ in result.between(200, 300) if accepted >= 4]
        assert again[0] < 235  # on again within some thirty


def test_it_beats_every_fixed_length_of_the_same_drafter_on_mixed_text() -> None:
    prompt, answer = copying_text([0.95, 0.15, 0.9, 0.3, 0.95], 80, seed=4)
    auto = run(make(), prompt, answer).speed
    fixed = {k: run(NgramSuffix(k), prompt, answer).speed for k in (2, 4, 8, 16, 48)}
    assert auto > max(fixed.values()) * 0.95  # the best in hindsight, of this text alone
    assert auto > 1.2


def test_drafts_get_shorter_as_passes_get_dearer_with_the_context() -> None:
    prompt, answer = copying_text([0.9], 900)

    def growing(rows: int, done: int) -> float:
        return 1.0 + (rows - 1) * (0.05 + done / 600)

    result = run(make(), prompt, answer, growing)
    early = [drafted for at, drafted, _, _ in result.between(20, 120) if drafted]
    late = [drafted for at, drafted, _, _ in result.between(800, 900)]
    assert sum(early) / len(early) > 3 * sum(late) / len(late)
    tail = result.between(800, 900)
    spent = sum(growing(drafted + 1, at) for at, drafted, _, _ in tail)
    assert sum(accepted + 1 for _, _, accepted, _ in tail) / spent > 0.93


def test_costs_measured_in_a_slow_moment_do_not_keep_it_off() -> None:
    prompt, answer = copying_text([0.97], 300)
    slow = iter([5.0] * 4)  # the first drafted passes take five times as long

    def cost(rows: int, done: int) -> float:
        return memory_bound(rows) * (next(slow, 1.0) if rows > 1 else 1.0)

    assert run(make(), prompt, answer, cost).speed > 1.8


def test_trying_again_costs_little_where_no_draft_pays() -> None:
    prompt, answer = copying_text([0.9], 400)

    def hopeless(rows: int, done: int) -> float:
        return 1.0 + 1.5 * (rows - 1)

    costs = CostCurve()
    first = run(make(costs=costs), prompt, answer, hopeless).speed
    again = run(make(costs=costs), prompt, answer, hopeless).speed
    assert first > 0.92  # it has to find out, once a session
    assert again > 0.97


def test_no_text_costs_more_than_the_capital() -> None:
    """An adversary: the answer copies the prompt, but never where something was drafted."""
    costs = CostCurve()
    for rows in KNOTS[1:] * 60:
        costs.learn(rows, memory_bound(rows))
    auto = make(costs=costs)
    chance = random.Random(2)
    prompt = chance.sample(range(50_000), 600)
    tokens, at, lost = list(prompt), 0, 0.0
    auto.begin(tokens, Sampling())
    for done in range(400):
        draft = auto.propose(tokens, 48)
        paid = memory_bound(len(draft.tokens) + 1)
        if draft:
            at = (at + chance.randrange(1, 499)) % 500
            left = STAKE + INCOME * done - lost
            assert left > 0
            assert len(draft.tokens) == 1 or paid - 1.0 <= DARE * left + 1e-6
            assert prompt[at] != draft.tokens[0]
        lost += paid - 1.0
        tokens.append(prompt[at])
        at = (at + 1) % 500
        auto.settle(Outcome(draft, 0, (tokens[-1],), len(tokens), paid * T_1, T_1))
        assert auto.capital == pytest.approx(STAKE + INCOME * (done + 1) - lost, abs=1e-6)
    assert STAKE < lost <= DARE * (STAKE + INCOME * 400)


def test_a_little_capital_is_enough_to_try_again() -> None:
    """Costs were believed to be so high that not even one token could be afforded."""
    prompt, answer = copying_text([0.97], 300)
    costs = CostCurve()
    for rows in KNOTS[1:] * 60:
        costs.learn(rows, 1.0 + 20.0 * (rows - 1))
    assert run(make(costs=costs), prompt, answer, memory_bound).speed > 1.5


def test_a_drafter_with_nothing_to_say_costs_nothing() -> None:
    answer = novel(200)
    result = run(make(), [1], answer)
    assert all(drafted == 0 for _, drafted, _, _ in result.cycles[:20])
    reasons = {decision.reason for *_, decision in result.cycles if decision is not None}
    assert "off: nothing to propose" in reasons


def test_the_reason_gives_needed_and_expected() -> None:
    prompt, answer = copying_text([0.3], 300)
    result = run(make(), prompt, answer, compute_bound)
    off = [
        decision
        for _, drafted, _, decision in result.cycles
        if decision is not None and not drafted and decision.expected is not None
    ]
    assert off
    for decision in off:
        assert decision.action == "plain"
        assert decision.needed is not None
        assert f"needs {decision.needed:.2f}" in decision.reason
        assert f"would get {decision.expected:.2f}" in decision.reason


def test_never_more_than_the_limit_and_k() -> None:
    prompt, answer = copying_text([1.0], 100)
    auto = make(k=5)
    auto.begin(prompt, Sampling())
    assert auto.needs.k_max == 5
    assert len(auto.propose([*prompt, *answer[:20]], 3).tokens) <= 3
    assert all(drafted <= 5 for _, drafted, _, _ in run(make(k=5), prompt, answer).cycles)


def test_two_generations_share_costs_but_no_text() -> None:
    costs = CostCurve()
    prompt, answer = copying_text([0.95], 200)
    run(make(costs=costs), prompt, answer, compute_bound)
    assert costs.ratio(5) > 3.0
    fresh = make(costs=costs)
    fresh.begin([1, 2, 3], Sampling())
    assert not fresh.propose([*answer[10:30]], 20)


class TestWithModel:
    """With a draft model of known acceptance on a simulated clock."""

    def auto(
        self,
        monkeypatch: pytest.MonkeyPatch,
        answer: list[int],
        chance: object,
        step: float = 0.1,
        honest: bool = True,
    ) -> tuple[object, FakeModel, Clock]:
        clock = Clock()
        on_clock(monkeypatch, clock)
        model = FakeModel(answer, chance, clock, step, honest)  # type: ignore[arg-type]
        return make(ModelSource(model, CostCurve())), model, clock  # type: ignore[arg-type]

    def test_a_good_model_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        text = novel(301)
        auto, _, clock = self.auto(monkeypatch, text, lambda _: 0.9)
        assert run(auto, text[:1], text[1:], memory_bound, clock).speed > 1.8  # type: ignore[arg-type]

    def test_a_useless_model_is_switched_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        text = novel(401)
        auto, model, clock = self.auto(monkeypatch, text, lambda _: 0.05)
        result = run(auto, text[:1], text[1:], memory_bound, clock)  # type: ignore[arg-type]
        assert result.speed > 0.96
        assert model.steps_taken < 40

    def test_a_slow_model_is_switched_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        text = novel(401)
        auto, _, clock = self.auto(monkeypatch, text, lambda _: 0.7, step=1.2)
        assert run(auto, text[:1], text[1:], memory_bound, clock).speed > 0.92  # type: ignore[arg-type]

    def test_it_comes_back_when_the_text_suits_it_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = novel(601)
        auto, _, clock = self.auto(monkeypatch, text, lambda at: 0.05 if at < 250 else 0.9)
        result = run(auto, text[:1], text[1:], memory_bound, clock)  # type: ignore[arg-type]
        late = result.between(450, 600)
        assert sum(accepted for _, _, accepted, _ in late) > 60

    def test_a_model_too_sure_of_itself_is_found_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        text = novel(501)
        auto, _, clock = self.auto(monkeypatch, text, lambda _: 0.3, honest=False)
        result = run(auto, text[:1], text[1:], compute_bound, clock)  # type: ignore[arg-type]
        assert result.speed > 0.93

    def test_copying_beats_the_model_where_the_text_repeats(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        prompt, answer = copying_text([0.98], 200)
        auto, model, clock = self.auto(monkeypatch, [*prompt, *answer], lambda _: 0.8)
        result = run(auto, prompt, answer, memory_bound, clock)  # type: ignore[arg-type]
        assert result.speed > 2.5
        assert model.steps_taken < 150


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(1, 12))
def test_any_text_any_length(text: list[int], k: int) -> None:
    """Small alphabets repeat all the time; drafts must stay within limits and never raise."""
    result = run(make(k=k), text[:1], [*text, *text])
    assert result.tokens == 2 * len(text)
    assert all(drafted <= k for _, drafted, _, _ in result.cycles)


class TestCostCurve:
    def test_measured_knots_and_what_lies_between(self) -> None:
        curve = CostCurve(0.5)
        assert curve.ratio(1) == 1
        assert curve.ratio(3) == pytest.approx(2.0)
        curve.learn(3, 1.5)
        assert 1.75 < curve.ratio(3) < 2.0  # two further rows against a guess that counts as four
        for _ in range(30):
            curve.learn(3, 1.5)
        assert curve.ratio(3) == pytest.approx(1.5, abs=0.01)
        assert curve.ratio(17) == pytest.approx(1 + 16 * 0.27, abs=0.2)  # what it knows, mostly
        for _ in range(30):
            curve.learn(16, 1 + 15 * 0.75)
        assert curve.ratio(16) == pytest.approx(1 + 15 * 0.75, rel=0.05)
        assert 0.25 < (curve.ratio(8) - 1) / 7 < 0.75

    def test_one_hiccup_moves_it_little(self) -> None:
        curve = CostCurve()
        for _ in range(20):
            curve.learn(5, 2.0)
        curve.learn(5, 500.0)
        assert curve.ratio(5) < 2.8
        for _ in range(12):
            curve.learn(5, 2.0)
        assert curve.ratio(5) == pytest.approx(2.0, abs=0.1)
