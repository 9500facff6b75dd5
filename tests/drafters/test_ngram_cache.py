from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specctl.drafters.ngram_cache import NgramCache
from specctl.settings import Sampling

SAMPLING = Sampling()
TOKENS = st.lists(st.integers(0, 2), max_size=40)
MIN_SAMPLES, MIN_SHARE = (2, 2, 1, 1), (0.66, 0.5, 0.5, 0.5)


def brute(text: list[int], k: int) -> list[tuple[set[int], float]]:
    """Per step the tokens that may be drafted and their share; the draft follows the first."""
    counts: dict[tuple[int, ...], Counter[int]] = {}
    for at, token in enumerate(text):
        for n in range(1, 5):
            if n <= at:
                counts.setdefault(tuple(text[at - n : at]), Counter())[token] += 1
    steps: list[tuple[set[int], float]] = []
    for n in range(min(4, len(text)), 0, -1):
        seen = counts.get(tuple(text[-n:]), Counter())
        total, top = sum(seen.values()), max(seen.values(), default=0)
        if top and total >= MIN_SAMPLES[n - 1] and top >= MIN_SHARE[n - 1] * total:
            steps.append(({t for t, c in seen.items() if c == top}, top / total))
            break
    return steps[:k]


@given(st.lists(TOKENS, min_size=1, max_size=3), st.integers(1, 9))
def test_the_first_token_equals_brute_force_after_any_begins(
    texts: list[list[int]], limit: int
) -> None:
    cache = NgramCache(6, False)
    for text in texts:
        cache.begin(text[: len(text) // 2], SAMPLING)
        for length in range(len(text) // 2, len(text) + 1):
            draft = cache.propose(text[:length], limit)
            assert len(draft.tokens) <= min(6, limit)
            expected = brute(text[:length], 1) if length >= 2 else []
            assert bool(draft) == bool(expected)
            if expected:
                tokens, share = expected[0]
                assert draft.tokens[0] in tokens
                assert draft.confidences is not None
                assert draft.confidences[0] == share


@given(st.lists(TOKENS, min_size=1, max_size=3))
def test_begin_leaves_what_a_fresh_one_would_know(texts: list[list[int]]) -> None:
    cache = NgramCache(8, False)
    for text in texts:
        cache.begin(text, SAMPLING)
        fresh = NgramCache(8, False)
        fresh.begin(text, SAMPLING)
        assert cache._counts == fresh._counts


@settings(max_examples=25)
@given(st.lists(st.integers(0, 30), min_size=60, max_size=200), st.lists(TOKENS, max_size=2))
def test_sums_kept_for_busy_ngrams_stay_true(text: list[int], others: list[list[int]]) -> None:
    text = [token for each in text for token in (50, each)]  # 50 has many continuations
    cache = NgramCache(3, False)
    for said in (text, text[:90], *others, text):
        cache.begin(said[:40], SAMPLING)
        for length in range(40, len(said) + 1, 3):
            cache.propose(said[:length], 3)
            for key, (total, top, token) in cache._busy.items():
                counts = cache._counts[key]
                assert (total, top) == (sum(counts.values()), max(counts.values()))
                assert token == [t for t in counts if counts[t] == top][-1]


def test_ties_go_to_what_was_seen_last() -> None:
    def after(*followers: int) -> tuple[int, ...]:
        text = [t for at, each in enumerate(followers) for t in (100 + at, 1, 2, 3, each)]
        return NgramCache(1, False).propose([*text, 99, 1, 2, 3], 1).tokens

    assert after(8, 9) == (9,)
    assert after(9, 8) == (8,)
    assert after(8, 9, 9, 8) == (8,)


def test_thresholds() -> None:
    def first(text: list[int]) -> tuple[int, ...]:
        return NgramCache(1, False).propose(text, 1).tokens

    assert first([1, 5, 1]) == ()  # one token of context must have been seen twice
    assert first([1, 5, 2, 1, 5, 3, 1]) == (5,)
    assert first([1, 5, 2, 1, 6, 3, 1]) == ()  # half is below 66 %
    assert first([1, 2, 3, 4, 9, 1, 2, 3]) == (4,)  # three tokens once will do


def test_compat_loses_ngrams_across_updates_and_keeps_old_text() -> None:
    """As llama.cpp's update, which is handed only the new tokens (checked against its code)."""
    text = [1, 2, 3, 4, 5, 6, 7]
    cache = NgramCache(30, True)
    assert cache.needs.k_max == 8
    for length in range(2, len(text) + 1):
        cache.propose(text[:length], 8)
    assert cache.propose([*text, 1, 2, 3], 8).tokens == ()  # only 1 → 2 was ever counted
    old = NgramCache(30, True)
    old.propose([*range(20, 40)], 8)
    old.begin([1, 20, 21], SAMPLING)
    assert old.propose([1, 20, 21, 22], 8).tokens == tuple(range(23, 31))
    ours = NgramCache(30, False)
    ours.propose([*range(20, 40)], 8)
    ours.begin([1, 20, 21], SAMPLING)
    assert not ours.propose([1, 20, 21, 22], 8)


@pytest.mark.parametrize("compat", [False, True])
def test_close_forgets(compat: bool) -> None:
    cache = NgramCache(8, compat)
    assert cache.propose([1, 2, 3, 4, 1, 2, 3], 4).tokens == (4, 1, 2, 3)
    cache.close()
    cache.close()
    assert not cache.propose([1, 2, 3], 4)
