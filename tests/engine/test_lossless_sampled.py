"""Sampled text: plain decoding's own for point-mass drafts, the target's law for sampled ones.

The clock pair computes its laws exactly, so what the engine emits can be held against them per
last token, up to 20 000 draws a case: two cases through llama.cpp, all of them through the same
loop, judge and drafters with tables in place of the two models. Seeds are fixed; by chance a sound
engine would fail a case once in ten thousand.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from lossless_kit import (
    ALL_TYPES,
    PLAIN,
    Run,
    chi_square_tail,
    differs,
    run,
    run_tables,
    spec_of,
    specs,
    start,
    transition_tail,
)

import specctl.drafters.small_model
import specctl.engine.judge
from specctl.drafters.auto import Auto
from specctl.drafters.base import Draft, Needs
from specctl.drafters.costs import CostCurve
from specctl.drafters.model_source import ModelSource
from specctl.drafters.small_model import SmallModel
from specctl.drafters.suffix import NgramSuffix
from specctl.engine.session import Session
from specctl.sampling import Law, Stream, law, uniform
from specctl.settings import DraftSettings, Sampling, SpecSettings

pytestmark = pytest.mark.native

DRAWS = 20_000
LEVEL = 1e-4
LENGTH = 200  # tokens per generation: a short context is a fast one
OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)

PROMPTS = st.lists(st.integers(tiny.FIRST_WORD, tiny.FIRST_WORD + 9), min_size=1, max_size=30)
CHAIN = st.builds(
    Sampling,
    temperature=st.floats(0.3, 2.0),
    top_k=st.sampled_from([0, 3, 40]),
    top_p=st.sampled_from([1.0, 0.97]),
    min_p=st.sampled_from([0.0, 0.02]),
    repeat_penalty=st.sampled_from([1.0, 1.3]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    seed=st.integers(0, 1 << 40),
)


# ---------------------------------------------------------------- one seed, one text


@pytest.fixture(scope="module", params=["jitter", "clock"])
def pair(request, tiny_models) -> Iterator[tuple[Session, Session]]:
    """One session that only decodes plainly, one in which everything is tried."""
    model, draft = tiny_models[request.param], tiny_models[f"{request.param}-draft"]
    with start(model) as reference, start(model, draft) as tried:
        yield reference, tried


@pytest.mark.parametrize("types", ALL_TYPES, ids=",".join)
def test_one_seed_is_one_text_whatever_drafts(pair, types):
    reference, tried = pair
    accepted = drafted = 0
    for seed in range(3):
        prompt = tiny.clock_target().greedy(tiny.word("amber") + seed, 70)
        sampling = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
        plain = run(reference, PLAIN, prompt, 70, sampling).tokens
        got = run(tried, spec_of(*types, n=1, k=2 + seed), prompt, 70, sampling)
        assert differs(reference, prompt, plain, got.tokens, sampling) == ""
        accepted, drafted = accepted + got.totals.accepted, drafted + got.totals.drafted
    assert 0 < accepted < drafted or "auto" in types


def test_any_sampler_chain_any_drafter(pair):
    reference, tried = pair

    @settings(max_examples=50)
    @given(PROMPTS, specs(), CHAIN)
    def check(prompt, spec, sampling):
        plain = run(reference, PLAIN, prompt, 40, sampling).tokens
        got = run(tried, spec, prompt, 40, sampling)
        assert differs(reference, prompt, plain, got.tokens, sampling) == ""

    check()


def test_another_seed_is_another_text(pair):
    _, tried = pair
    spec = spec_of("ngram-simple", n=1)
    texts = {
        run(tried, spec, [tiny.word("amber")], 60, Sampling(1.0, seed=s)).tokens for s in range(5)
    }
    assert len(texts) == 5


# ---------------------------------------------------------------- the law of sampled drafts


Generate = Callable[[Sequence[int], Sampling], Run]


def draws(generate: Generate, sampling: Sampling, count: int = DRAWS) -> list[tuple[int, int]]:
    """(last token, next token) of `count` tokens that the engine emitted."""
    pairs: list[tuple[int, int]] = []
    for seed in range(count // LENGTH):
        prompt = [tiny.FIRST_WORD + seed % len(tiny.WORDS)]
        got = generate(prompt, dataclasses.replace(sampling, seed=1000 + seed))
        pairs += pairwise([*prompt, *got.tokens])
    assert len(pairs) == count
    return pairs


def by_tables(spec: SpecSettings) -> Generate:
    """The draft is unsure after a third of the words: there p-min 0.5 cuts."""
    target, draft = tiny.clock_target(), tiny.clock_draft_unsure()
    return lambda prompt, sampling: run_tables(target, draft, spec, prompt, LENGTH, sampling)


def laws_of(clock: tiny.Clock, sampling: Sampling) -> dict[int, np.ndarray]:
    """The exact law after each token, through the same sampler chain."""
    out = {}
    for token in range(tiny.SIZE):
        found = law(np.log(clock.law(token)).astype(np.float32), [], sampling)
        out[token] = np.zeros(tiny.SIZE)
        out[token][found.ids] = found.probs
    return out


def sampled(*types: str, k: int, p_min: float = 0.0) -> SpecSettings:
    return spec_of(*types, n=1, k=k, draft=DraftSettings(n_max=k, p_min=p_min, sampling="sampled"))


TARGET_LAWS = laws_of(tiny.clock_target(), OPEN)
NARROW = Sampling(0.7, top_k=6, top_p=0.99, min_p=0.0)
LIKELY = Sampling(1.6, top_k=0, top_p=1.0, min_p=0.3)
CASES = [
    pytest.param(PLAIN, OPEN, DRAWS // 4, id="plain"),
    pytest.param(sampled("draft-simple", k=1), OPEN, DRAWS // 2, id="k 1"),
    pytest.param(sampled("draft-simple", k=5), OPEN, DRAWS, id="k 5"),
    pytest.param(sampled("draft-simple", k=4, p_min=0.5), OPEN, DRAWS, id="p-min 0.5"),
    pytest.param(sampled("ngram-simple", "draft-simple", k=3), OPEN, DRAWS, id="look-up, draft"),
    pytest.param(
        sampled("draft-simple", "ngram-mod", k=3, p_min=0.5), OPEN, DRAWS, id="p-min 0.5, look-up"
    ),
    pytest.param(sampled("draft-simple", k=4), NARROW, DRAWS // 2, id="top-k, top-p"),
    pytest.param(sampled("draft-simple", k=4), LIKELY, DRAWS // 2, id="min-p"),
]


@pytest.mark.parametrize(("spec", "sampling", "count"), CASES)
def test_what_is_emitted_follows_the_targets_law(spec, sampling, count):
    pairs = draws(by_tables(spec), sampling, count)
    assert transition_tail(pairs, laws_of(tiny.clock_target(), sampling)) > LEVEL


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        pytest.param(sampled("draft-simple", k=5), 4_000, id="draft-simple"),
        pytest.param(
            sampled("draft-simple", "ngram-simple", k=3, p_min=0.5), DRAWS, id="chain, p-min 0.5"
        ),
    ],
)
def test_what_is_emitted_follows_the_targets_law_with_real_models(tiny_models, spec, count):
    draft = tiny_models["clock-draft-unsure"]
    with start(tiny_models["clock"], draft, n_ctx=256) as session:
        pairs = draws(lambda prompt, how: run(session, spec, prompt, LENGTH, how), OPEN, count)
    assert transition_tail(pairs, TARGET_LAWS) > LEVEL


def test_acceptance_of_sampled_drafts_is_the_designed_one():
    """Σ min(p, q): 0.9 where the draft ranks the two likeliest as the target does, else 0.6."""
    target, draft, wrong = tiny.clock_target(), tiny.clock_draft(), tiny.disagreeing()
    counted = {True: [0, 0], False: [0, 0]}  # the draft disagrees → accepted, drafted
    for seed in range(4):
        prompt = [tiny.FIRST_WORD + seed]
        sampling = dataclasses.replace(OPEN, seed=seed)
        got = run_tables(target, draft, sampled("draft-simple", k=1), prompt, 3000, sampling)
        text = [*prompt, *got.tokens]
        for cycle in got.cycles:
            if cycle.drafted and text[cycle.n_past] >= tiny.FIRST_WORD:
                cell = counted[text[cycle.n_past] in wrong]
                cell[0] += cycle.accepted
                cell[1] += 1
    right = next(v for v in range(tiny.FIRST_WORD, tiny.SIZE) if v not in wrong)
    for disagrees, word in ((True, min(wrong)), (False, right)):
        accepted, drafted = counted[disagrees]
        designed = tiny.clock_acceptance(word)
        assert designed == pytest.approx(0.6 if disagrees else 0.9)
        assert drafted > 800
        spread = (designed * (1 - designed) / drafted) ** 0.5
        assert abs(accepted / drafted - designed) < 4 * spread


class Mixed:
    """Two looked-up tokens, then tokens drawn from the draft's law: both kinds in one draft."""

    name = "mixed"
    needs = Needs(k_max=4, gives_laws=True)

    def __init__(self) -> None:
        self.target, self.draft = tiny.clock_target(), tiny.clock_draft()
        self.drawn = 0

    def begin(self, tokens, sampling):
        self.seed = sampling.seed

    def propose(self, tokens, limit):
        last = tokens[-1]
        drafted: list[int] = []
        laws: list[Law | None] = []
        for index in range(limit):
            if index < 2:
                last = int((self.target.second if index else self.target.first)[last])
                laws.append(None)
            else:
                self.drawn += 1
                laws.append(Law(np.arange(tiny.SIZE), self.draft.law(last)))
                number = uniform(self.seed, len(tokens) + index, Stream.DRAFT, self.drawn)
                last = laws[-1].draw(number)
            drafted.append(last)
        return Draft(tuple(drafted), self.name, laws=tuple(laws))

    def observe(self, target_pass):
        pass

    settle = close = observe


def test_auto_where_drafts_cost_nothing(monkeypatch):
    """Then it drafts whenever it can, and goes on from (short, sure) look-ups with drawn tokens."""
    look_up = NgramSuffix.propose

    def short(self, tokens, limit):
        draft = look_up(self, tokens, min(limit, 2))
        return dataclasses.replace(draft, confidences=(0.97,) * len(draft.tokens))

    monkeypatch.setattr(NgramSuffix, "propose", short)
    monkeypatch.setattr(CostCurve, "ratio", lambda self, rows: 1.0)
    monkeypatch.setattr(ModelSource, "step_cost", lambda self, t_1: 0.0)
    monkeypatch.setattr(Auto, "_needed", lambda self, cost, spread: 0.0)
    monkeypatch.setattr(Auto, "_affordable", lambda self, cost: True)
    spec = sampled("auto", k=6)
    sources: Counter[str | None] = Counter()

    def generate(prompt, how):
        got = by_tables(spec)(prompt, how)
        sources.update(cycle.source for cycle in got.cycles)
        return got

    assert transition_tail(draws(generate, OPEN), TARGET_LAWS) > LEVEL
    assert sources["ngram-suffix+draft-simple"] > 500
    assert sources["draft-simple"] > 500


def test_looked_up_and_drawn_tokens_in_one_draft():
    target, draft = tiny.clock_target(), tiny.clock_draft()

    def generate(prompt, how):
        return run_tables(target, draft, PLAIN, prompt, LENGTH, how, Mixed())

    assert transition_tail(draws(generate, OPEN), TARGET_LAWS) > LEVEL


# ---------------------------------------------------------------- teeth


def test_chi_square_tail_against_tables():
    table = [(3.841, 1, 0.05), (10.828, 1, 0.001), (148.23, 99, 0.001), (99.33, 99, 0.47)]
    for x, freedom, tail in table:
        assert chi_square_tail(x, freedom) == pytest.approx(tail, rel=0.02)
    assert chi_square_tail(0, 3) == 1.0
    assert chi_square_tail(1e4, 10) < 1e-300


def test_transition_tail_tells_laws_apart():
    rng = np.random.default_rng(4)
    right, wrong = np.array([0.7, 0.2, 0.1]), np.array([0.66, 0.24, 0.1])
    pairs = [(0, int(t)) for t in rng.choice(3, 5000, p=right)]
    assert transition_tail(pairs, {0: right}) > LEVEL
    assert transition_tail(pairs, {0: wrong}) < LEVEL
    assert transition_tail([(0, 2)], {0: np.array([0.5, 0.5, 0.0])}) == 0.0


def tail(spec: SpecSettings) -> float:
    return transition_tail(draws(by_tables(spec), OPEN, DRAWS // 2), TARGET_LAWS)


def test_teeth_a_residual_that_is_p_itself(monkeypatch):
    monkeypatch.setattr(specctl.engine.judge, "residual", lambda p, q: p)
    assert tail(sampled("draft-simple", k=3)) < LEVEL


def test_teeth_sampled_drafts_taken_for_point_masses(monkeypatch):
    """min(1, p) instead of min(1, p / q)."""

    class Certain:
        def __init__(self, law):
            self.ids, self.probs = law.ids, law.probs

        def prob(self, token):
            return 1.0

    propose = SmallModel.propose

    def claiming(self, tokens, limit):
        draft = propose(self, tokens, limit)
        laws = draft.laws and tuple(Certain(law) for law in draft.laws)
        return type(draft)(draft.tokens, draft.source, laws)

    monkeypatch.setattr(SmallModel, "propose", claiming)
    assert tail(sampled("draft-simple", k=3)) < LEVEL


def test_teeth_p_min_asked_of_the_drawn_token(monkeypatch):
    """The tempting rule: draw first, stop if the drawn token is improbable."""

    steps = SmallModel.steps

    def tempting(self, tokens, **how):
        p_min = self._settings.p_min
        return itertools.takewhile(
            lambda step: step[1].prob(step[0]) >= p_min, steps(self, tokens, **how)
        )

    monkeypatch.setattr(SmallModel, "steps", tempting)
    assert tail(sampled("draft-simple", k=3, p_min=0.5)) < LEVEL


def test_teeth_one_number_for_two_decisions(monkeypatch):
    """Accepting with the number that also drew the draft."""
    one = {Stream.ACCEPT: Stream.DRAFT}
    for module in (specctl.engine.judge, specctl.drafters.small_model):
        monkeypatch.setattr(
            module,
            "uniform",
            lambda seed, at, stream, *_: uniform(seed, at, one.get(stream, stream)),
        )
    assert tail(sampled("draft-simple", k=3)) < LEVEL
