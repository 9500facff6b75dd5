from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specctl.drafters.ngram_index import NgramIndex
from specctl.drafters.ngram_simple import NgramSimple
from specctl.settings import NgramSettings, Sampling

TOKENS = st.lists(st.integers(0, 2), max_size=40)
SAMPLING = Sampling()


def starts(text: list[int], n: int, start: int) -> list[int]:
    gram = text[start : start + n]
    return [i for i in range(start) if text[i : i + n] == gram]


def drafter(compat: bool = False, **settings: int) -> NgramSimple:
    return NgramSimple(NgramSettings(**settings), compat)


@given(st.lists(TOKENS, min_size=1, max_size=4), st.integers(1, 5), st.sampled_from([3, 1 << 61]))
def test_index_equals_brute_force_after_any_begins(
    texts: list[list[int]], n: int, modulus: int
) -> None:
    index = NgramIndex(n, modulus)
    for text in texts:
        index.follow(text[: len(text) // 2], begin=True)
        index.follow(text)
        assert index.text == text
        for start in range(len(text) - n + 1):
            expected = starts(text, n, start)
            assert index.previous(start) == (expected[-1] if expected else -1)
            assert index.earlier(start) == len(expected)


def test_a_list_that_broke_its_promise_is_reindexed() -> None:
    index = NgramIndex(2)
    index.follow([1, 2, 3, 1, 2])
    index.follow([1, 2, 1, 2])
    assert index.text == [1, 2, 1, 2]
    assert index.previous(2) == 0


def brute(text: list[int], n: int, m: int, min_hits: int) -> list[int]:
    if len(text) <= n:
        return []
    found = starts(text, n, len(text) - n)
    if len(found) < min_hits:
        return []
    longer = list(text)
    period = len(text) - (found[-1] + n)
    for _ in range(m):
        longer.append(longer[-period])
    return longer[len(text) :]


def llama_cpp(history: list[int], sampled: int, n: int, m: int) -> list[int]:
    """What common_ngram_simple_draft answers, by search."""
    length = len(history)
    if length <= n + m + 1:
        return []
    pattern = [*history, sampled][-n:]
    for j in range(length - n - 1, 0, -1):
        if history[j : j + n] == pattern:
            copy = history[j + n : j + n + m]
            return copy if len(copy) >= n else []
    return []


@given(
    st.lists(TOKENS, min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(1, 2),
    st.integers(1, 8),
)
def test_default_drafts_equal_brute_force(
    texts: list[list[int]], n: int, m: int, min_hits: int, limit: int
) -> None:
    simple = drafter(size_n=n, size_m=m, min_hits=min_hits)
    for text in texts:
        simple.begin(text[: len(text) // 3], SAMPLING)
        for length in range(len(text) // 3, len(text) + 1):
            draft = simple.propose(text[:length], limit)
            assert list(draft.tokens) == brute(text[:length], n, m, min_hits)[:limit]


@given(
    st.lists(TOKENS, min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(1, 8),
)
def test_compat_drafts_equal_llama_cpp(texts: list[list[int]], n: int, m: int, limit: int) -> None:
    simple = drafter(compat=True, size_n=n, size_m=m)
    for text in texts:
        simple.begin(text[:1], SAMPLING)
        for length in range(1, len(text) + 1):
            draft = simple.propose(text[:length], limit)
            expected = llama_cpp(text[: length - 1], text[length - 1], n, m)
            assert list(draft.tokens) == expected[:limit]


def test_defaults_find_what_compat_gives_up() -> None:
    text = [1, 2, 3, 4, 5, 1, 2, 3]
    assert drafter(size_n=3, size_m=8).propose(text, 4).tokens == (4, 5, 1, 2)
    assert drafter(compat=True, size_n=3, size_m=8).propose(text, 4).tokens == ()
    # the copy overlaps its own end: a run goes on as long as the draft may be
    assert drafter(size_n=2, size_m=8).propose([7, 7, 7], 8).tokens == (7,) * 8


def test_min_hits_counts_earlier_occurrences() -> None:
    twice = drafter(size_n=2, size_m=2, min_hits=2)
    assert not twice.propose([1, 2, 3, 1, 2], 2)
    assert twice.propose([1, 2, 3, 1, 2, 4, 1, 2], 2).tokens == (4, 1)


def test_what_it_declares_and_says() -> None:
    simple = drafter(size_n=2, size_m=5)
    assert simple.name == "ngram-simple"
    assert (simple.needs.k_max, simple.needs.draft_model) == (5, False)
    draft = simple.propose([1, 2, 3, 1, 2], 9)
    assert (draft.source, draft.detail) == ("ngram-simple", "match 2")
    simple.close()
    simple.close()
