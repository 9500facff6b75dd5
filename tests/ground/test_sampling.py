"""Logits to laws against a slow, plain reference; draws against the law they claim."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specctl.sampling import Law, Stream, best, law, penalise, residual, uniform
from specctl.settings import Sampling

ALL = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def sampling(**changes):
    values = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    return Sampling(**{**values, **changes})


def row(*values):
    return np.array(values, dtype=np.float32)


# ---------------------------------------------------------------- the reference


def slow_penalise(logits, history, s):
    """{token: logit}, written out as one would on paper."""
    values = {i: float(v) for i, v in enumerate(logits)}
    for token in sorted(set(history[-s.penalty_last_n :] if s.penalty_last_n else [])):
        seen = history[-s.penalty_last_n :].count(token)
        v = np.float32(values[token])
        v = v / np.float32(s.repeat_penalty) if v > 0 else v * np.float32(s.repeat_penalty)
        v = float(v) - seen * s.frequency_penalty - s.presence_penalty  # rounded once, at the end
        values[token] = float(np.float32(v))
    return values


def slow_law(logits, history, s):
    """{token: probability}, likewise."""
    values = slow_penalise(logits, history, s)
    ranked = sorted((t for t in values if values[t] > -math.inf), key=lambda t: (-values[t], t))
    if s.top_k:
        ranked = ranked[: s.top_k]
    top = values[ranked[0]]
    weights = [math.exp(values[t] - top) for t in ranked]
    probs = [w / math.fsum(weights) for w in weights]
    kept = ranked
    if s.top_p < 1:
        n, mass = 0, 0.0
        while n < len(ranked) and mass < s.top_p:
            mass += probs[n]
            n += 1
        kept = ranked[:n]
    if s.min_p > 0:
        kept = [t for t, p in zip(ranked, probs, strict=True) if p >= s.min_p * probs[0]][
            : len(kept)
        ]
    heated = {t: math.exp((values[t] - top) / s.temperature) for t in kept}
    total = math.fsum(heated.values())
    return {t: w / total for t, w in heated.items()}


def near_an_edge(logits, history, s):
    """Where rounding may legitimately keep one token more or fewer."""
    whole = slow_law(logits, history, sampling(top_k=s.top_k, **penalties(s)))
    probs = sorted(whole.values(), reverse=True)
    sums = np.cumsum(probs)
    top_p = s.top_p < 1 and any(abs(x - s.top_p) < 1e-9 for x in sums)
    min_p = s.min_p > 0 and any(abs(p - s.min_p * probs[0]) < 1e-9 for p in probs)
    return top_p or min_p


def penalties(s):
    names = ("repeat_penalty", "frequency_penalty", "presence_penalty", "penalty_last_n")
    return {name: getattr(s, name) for name in names}


settings = st.builds(
    Sampling,
    temperature=st.floats(0.05, 5),
    top_k=st.integers(0, 12),
    top_p=st.just(1.0) | st.floats(0.05, 1),
    min_p=st.just(0.0) | st.floats(0, 0.9),
    repeat_penalty=st.just(1.0) | st.floats(0.5, 2),
    frequency_penalty=st.just(0.0) | st.floats(-2, 2),
    presence_penalty=st.just(0.0) | st.floats(-2, 2),
    penalty_last_n=st.integers(0, 6),
)
# few different values, so that ties are common
logit = st.sampled_from([-math.inf, -3.0, -0.5, 0.0, 0.25, 1.0, 4.0]) | st.floats(-20, 20, width=32)
rows = st.lists(logit, min_size=1, max_size=12).filter(lambda x: max(x) > -math.inf)


@given(rows, settings, st.data())
def test_law_equals_the_reference(values, s, data):
    history = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=10))
    logits = row(*values)
    assume(not near_an_edge(logits, history, s))
    expected = slow_law(logits, history, s)
    got = law(logits, history, s)
    assert got.ids.tolist() == sorted(expected)
    assert got.probs.tolist() == pytest.approx([expected[t] for t in sorted(expected)], abs=1e-12)
    assert got.probs.sum() == pytest.approx(1, abs=1e-12)
    assert logits.tolist() == row(*values).tolist()  # the row is the context's own memory


@given(rows, settings, st.data())
def test_greedy_is_the_largest_after_penalties(values, s, data):
    history = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=10))
    cold = sampling(**penalties(s))
    expected = slow_penalise(row(*values), history, cold)
    assert best(row(*values), history, cold) == max(expected, key=lambda t: (expected[t], -t))


# ---------------------------------------------------------------- by hand


def test_penalties_by_hand():
    s = sampling(repeat_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25, penalty_last_n=4)
    # token 0 fell out of the last four; 1 seen twice, 2 once, 3 once (negative: times 2)
    got = penalise(row(3, 4, 1, -1, 7), [0, 1, 2, 1, 3], s)
    assert got.tolist() == [3, 4 / 2 - 2 * 0.5 - 0.25, 1 / 2 - 0.5 - 0.25, -2 - 0.5 - 0.25, 7]


def test_no_history_or_no_window_is_no_penalty():
    s = sampling(repeat_penalty=2.0)
    assert penalise(row(1, 2), [], s).tolist() == [1, 2]
    off = sampling(repeat_penalty=2.0, penalty_last_n=0)
    assert law(row(1, 2), [1], off).probs.tolist() == law(row(1, 2), [], ALL).probs.tolist()


def test_penalties_of_tokens_beyond_a_shorter_draft_vocabulary():
    assert penalise(row(1, 2), [1, 7], sampling(repeat_penalty=2.0)).tolist() == [1, 1]


def test_top_k_keeps_the_lower_ids_of_a_tie():
    got = law(row(1, 5, 1, 1, 5, 1), [], sampling(top_k=3))
    assert got.ids.tolist() == [0, 1, 4]
    assert law(row(2, 2, 2, 2), [], sampling(top_k=2)).ids.tolist() == [0, 1]


def test_minus_infinity_is_never_kept():
    inf = -math.inf
    for k in (0, 1, 3, 5, 9):
        got = law(row(inf, 1, inf, 0, inf), [], sampling(top_k=k))
        assert set(got.ids.tolist()) <= {1, 3}
    assert law(row(inf, inf, 3), [], ALL).probs.tolist() == [1.0]


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    logits = np.log(row(0.5, 0.3, 0.15, 0.05))
    kept = {p: law(logits, [], sampling(top_p=p)).ids.tolist() for p in (0.4, 0.6, 0.79, 0.9, 0.97)}
    assert kept == {0.4: [0], 0.6: [0, 1], 0.79: [0, 1], 0.9: [0, 1, 2], 0.97: [0, 1, 2, 3]}


def test_min_p_is_a_share_of_the_best():
    logits = np.log(row(0.5, 0.3, 0.15, 0.05))
    assert law(logits, [], sampling(min_p=0.25)).ids.tolist() == [0, 1, 2]
    assert law(logits, [], sampling(min_p=0.59)).ids.tolist() == [0, 1]


def test_truncation_looks_at_the_probabilities_before_the_temperature():
    """At temperature 100 all are near equal, and top-p 0.6 would keep three of four."""
    logits = np.log(row(0.5, 0.3, 0.15, 0.05))
    got = law(logits, [], sampling(top_p=0.6, temperature=100))
    assert got.ids.tolist() == [0, 1]
    assert got.probs[0] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("spread", [0.0, 0.05, 1.0, 3.0])
def test_top_p_over_a_large_vocabulary(spread):
    """Flat and peaked rows of 40 000 tokens, with many ties: the shortcut keeps the same tokens."""
    rng = np.random.default_rng(1)
    logits = (rng.standard_normal(40_000) * spread).round(2).astype(np.float32)
    for top_p in (0.1, 0.5, 0.95, 0.999):
        values = logits.astype(np.float64)
        probs = np.exp(values - values.max()) / np.exp(values - values.max()).sum()
        order = np.lexsort((np.arange(len(values)), -values))
        keep = int(probs[order].cumsum().searchsorted(top_p)) + 1
        got = law(logits, [], sampling(top_p=top_p))
        assert got.ids.tolist() == sorted(order[:keep].tolist())


@pytest.mark.parametrize("values", [(math.nan, 1.0), (1.0, math.nan, 2.0), (-math.inf,) * 3])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_rows_that_are_no_numbers_say_so(values, k):
    assert math.isnan(law(row(*values), [], sampling(top_k=k)).probs[0])


def test_huge_and_tiny_logits_do_not_overflow():
    got = law(row(3e38, -3e38, 0), [], sampling(temperature=0.05))
    assert got.probs.tolist() == [1, 0, 0]


# ---------------------------------------------------------------- draws


def make(probs):
    return Law(np.arange(len(probs)), np.array(probs, dtype=np.float64))


def test_draw_is_the_inverse_of_the_cumulated_probabilities():
    skewed = Law(np.array([3, 5, 9]), np.array([0.25, 0.5, 0.25]))
    below = np.nextafter(0.25, 0)
    assert [skewed.draw(x) for x in (0.0, below, 0.25, 0.5, 0.75, np.nextafter(1, 0))] == [
        3, 3, 5, 5, 9, 9
    ]  # fmt: skip


@given(st.lists(st.just(0.0) | st.floats(1e-9, 1), min_size=1, max_size=8), st.floats(0, 1))
def test_a_token_of_probability_zero_is_never_drawn(weights, number):
    assume(sum(weights) > 0)
    total = sum(weights)
    drawn = make([w / total for w in weights]).draw(min(number, np.nextafter(1, 0)))
    assert weights[drawn] > 0


def test_the_last_number_below_one_never_falls_on_a_trailing_zero():
    for n in range(1, 60):  # sums of n thirds, tenths … round in all ways
        probs = [1 / n] * n + [0.0, 0.0]
        assert make(probs).draw(float(np.nextafter(1, 0))) < n
        assert make(probs).draw(1.0) < n


def test_prob_of_a_token():
    some = Law(np.array([3, 5]), np.array([0.25, 0.75]))
    assert [some.prob(t) for t in (0, 3, 4, 5, 6)] == [0, 0.25, 0, 0.75, 0]


# ---------------------------------------------------------------- random numbers


def test_a_number_belongs_to_seed_position_and_stream():
    assert uniform(1, 2, Stream.TARGET) == uniform(1, 2, Stream.TARGET)
    keys = [(s, p, stream) for s in range(12) for p in range(50) for stream in Stream]
    numbers = {uniform(*key) for key in keys}
    assert len(numbers) == len(keys)
    assert len({uniform(1, 2, Stream.DRAFT, attempt) for attempt in range(100)}) == 100
    assert all(0 <= x < 1 for x in numbers)
    assert 0 <= uniform((1 << 64) - 1, 1 << 40, Stream.RESIDUAL) < 1


def chi_square(counts, expected):
    return sum((c - e) ** 2 / e for c, e in zip(counts, expected, strict=True))


@pytest.mark.parametrize("stream", list(Stream))
def test_numbers_are_uniform_and_independent_of_their_neighbours(stream):
    numbers = np.array([uniform(7, position, stream) for position in range(20_000)])
    # Kolmogorov–Smirnov, 0.1 % level: 1.95 / sqrt(n)
    ranks = np.arange(1, len(numbers) + 1) / len(numbers)
    assert np.abs(np.sort(numbers) - ranks).max() < 1.95 / math.sqrt(len(numbers))
    # pairs of neighbours over a 10 x 10 grid: chi-square with 99 degrees of freedom, 0.1 % level
    cells = (numbers * 10).astype(int)
    pairs = np.zeros((10, 10))
    for a, b in pairwise(cells):
        pairs[a, b] += 1
    expected = (len(numbers) - 1) / 100
    assert chi_square(pairs.ravel(), [expected] * 100) < 148.2


def test_streams_and_seeds_do_not_move_together():
    columns = [
        np.array([uniform(seed, position, stream) for position in range(4000)])
        for seed, stream in [(1, Stream.TARGET), (1, Stream.DRAFT), (1, Stream.ACCEPT), (2, 0)]
    ]
    correlation = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(correlation).max() < 3.3 / math.sqrt(4000)


# ---------------------------------------------------------------- the residual

weights = st.lists(st.just(0.0) | st.floats(1e-6, 1), min_size=6, max_size=6)


def normalised(values):
    return np.array(values) / np.sum(values)


def sparse(values):
    ids = np.flatnonzero(values)
    return Law(ids, values[ids])


def emitted_law(p, q, rest):
    """What the rule emits: accepted drafts, and what replaces rejected ones."""
    kept = np.minimum(p, q)
    out = kept.copy()
    out[rest.ids] += (1 - kept.sum()) * rest.probs
    return out


@given(weights, weights)
def test_rejection_sampling_emits_exactly_the_target_law(a, b):
    assume(sum(a) > 0)
    assume(sum(b) > 0)
    p, q = normalised(a), normalised(b)
    rest = residual(sparse(p), sparse(q))
    assert np.abs(emitted_law(p, q, rest) - p).max() < 1e-12
    assert rest.probs.sum() == pytest.approx(1, abs=1e-12)


def test_the_check_above_has_teeth():
    """Drawing a rejected token again from p itself, a common mistake, does not give p."""
    p, q = np.array([0.5, 0.5]), np.array([0.6, 0.4])
    assert np.abs(emitted_law(p, q, residual(sparse(p), sparse(q))) - p).max() < 1e-12
    assert np.abs(emitted_law(p, q, sparse(p)) - p).max() > 0.04


def test_residual_by_hand():
    rest = residual(make([0.5, 0.3, 0.2]), make([0.7, 0.1, 0.2]))
    assert rest.probs.tolist() == [0, 1, 0]
    same = make([0.5, 0.5])
    assert residual(same, same).probs.tolist() == [0.5, 0.5]
    apart = residual(make([1.0]), Law(np.array([4]), np.array([1.0])))
    assert (apart.ids.tolist(), apart.probs.tolist()) == ([0], [1])
