from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specctl.drafters.base import Draft, Outcome
from specctl.drafters.ngram_map import NgramMapK, NgramMapK4V
from specctl.settings import NgramSettings, Sampling

SAMPLING = Sampling()
TEXT = [1, 2, *range(10, 30), 1, 2]


def settings(**values: int) -> NgramSettings:
    return NgramSettings(**({"size_n": 2, "size_m": 8, "min_hits": 1} | values))


def settle(drafter: NgramMapK | NgramMapK4V, draft: Draft, accepted: int) -> None:
    drafter.settle(Outcome(draft, accepted, (*draft.tokens[:accepted], 99), 1))


def lengths(drafter: NgramMapK | NgramMapK4V, accepts: list[int], limit: int = 8) -> list[int]:
    out = []
    for accepted in accepts:
        draft = drafter.propose(TEXT, limit)
        out.append(len(draft.tokens))
        settle(drafter, draft, accepted)
    return out


def test_a_key_learns_how_long_its_drafts_may_be() -> None:
    # cut to 3, cut to nothing (1 remains), then doubled for each draft accepted in full
    assert lengths(NgramMapK(settings(), False), [3, 0, 1, 2, 4, 8]) == [8, 3, 1, 2, 4, 8]
    assert lengths(NgramMapK4V(settings(), False), [3, 0, 1, 2, 4, 8]) == [8, 3, 1, 2, 4, 8]


def test_a_draft_cut_by_the_limit_does_not_shorten_the_next() -> None:
    drafter = NgramMapK(settings(), False)
    assert lengths(drafter, [2], limit=2) == [2]
    assert lengths(drafter, [8]) == [8]


def test_other_keys_and_other_drafters_are_not_concerned() -> None:
    drafter = NgramMapK(settings(), False)
    drafter.settle(Outcome(Draft((10, 11), "ngram-simple"), 0, (9,), 30))
    draft = drafter.propose(TEXT, 8)
    drafter.settle(Outcome(Draft((10, 11), "ngram-simple"), 0, (9,), 30))
    assert len(drafter.propose(TEXT, 8).tokens) == 8
    settle(drafter, draft, 1)
    assert len(drafter.propose(TEXT, 8).tokens) == 1
    assert len(drafter.propose([*TEXT, 10, 11], 8).tokens) == 8


def test_values_vote() -> None:
    def k4v(*values: list[int]) -> tuple[int, ...]:
        text = [token for value in values for token in (1, 2, *value)]
        return NgramMapK4V(settings(size_m=3), False).propose([*text, 1, 2], 8).tokens

    assert k4v([5, 6, 7]) == (5, 6, 7)
    assert k4v([5, 6, 7], [8, 6, 7]) == ()  # one against one
    assert k4v([5, 6, 7], [5, 6, 8]) == (5, 6)  # agreed so far
    assert k4v([5, 6, 7], [5, 6, 8], [5, 6, 7]) == (5, 6, 7)  # two against one
    assert k4v([5, 6, 7], [8, 6, 7], [5, 6, 9]) == (5, 6)


def test_min_hits_counts_occurrences() -> None:
    for kind in (NgramMapK, NgramMapK4V):
        assert not kind(settings(min_hits=2), False).propose(TEXT, 8)
        assert kind(settings(min_hits=2), False).propose([*TEXT, 10, 1, 2], 8)


def test_what_was_learned_survives_begin_but_not_close() -> None:
    drafter = NgramMapK(settings(), False)
    assert lengths(drafter, [2]) == [8]
    drafter.begin([3, *TEXT[:-2]], SAMPLING)
    assert len(drafter.propose([3, *TEXT], 8).tokens) == 2
    drafter.close()
    assert len(drafter.propose(TEXT, 8).tokens) == 8


def test_memory_of_learned_lengths_is_bounded() -> None:
    drafter = NgramMapK(settings(size_n=1, size_m=2), False)
    text: list[int] = []
    for token in range(5000):
        text += [token, 7_000, token]
        draft = drafter.propose(text, 2)
        settle(drafter, draft, 0)
        text.append(8_000)
    assert 2048 <= len(drafter._lengths) <= 4096


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 3), st.integers(1, 6))
def test_a_vote_of_one_is_a_copy(text: list[int], n: int, m: int) -> None:
    """Whenever the key occurred once before, both kinds draft the same."""
    k, k4v = (kind(settings(size_n=n, size_m=m), False) for kind in (NgramMapK, NgramMapK4V))
    one, other = k.propose(text, 8), k4v.propose(text, 8)
    gram = text[len(text) - n :]
    if sum(text[i : i + n] == gram for i in range(len(text) - n)) == 1:
        assert one.tokens == other.tokens != ()
