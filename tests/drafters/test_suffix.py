from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.drafters.base import Draft, Outcome
from specctl.drafters.hits import AGREED, ALONE, DISPUTED, MAJORITY, SPLIT, Hits, cell
from specctl.drafters.suffix import NgramSuffix
from specctl.settings import Sampling

SAMPLING = Sampling()
TOKENS = st.lists(st.integers(0, 2), max_size=40)
POEM = list(range(100, 130))


def begun(text: list[int], **kwargs: float) -> NgramSuffix:
    drafter = NgramSuffix(64, **kwargs)  # type: ignore[arg-type]
    drafter.begin(text, SAMPLING)
    return drafter


def longest(text: list[int]) -> int:
    """Length of the longest suffix that also occurs earlier."""
    best = 0
    for length in range(1, len(text)):
        tail = text[-length:]
        if any(text[i : i + length] == tail for i in range(len(text) - length)):
            best = length
    return best


def first_choice(text: list[int]) -> int | None:
    """Most occurrences after the longest match, the latest one counting twice."""
    length = longest(text)
    while length >= 2:
        tail = text[-length:]
        followers = [
            text[i + length] for i in range(len(text) - length) if text[i : i + length] == tail
        ]
        if followers:
            weights = {t: followers.count(t) + (t == followers[-1]) for t in followers}
            recent = {t: i for i, t in enumerate(followers)}
            return max(weights, key=lambda t: (weights[t], recent[t]))
        length -= 1
    return None


@given(TOKENS)
def test_match_and_first_token_equal_brute_force(text: list[int]) -> None:
    drafter = NgramSuffix(8, threshold=0)
    drafter.begin(text[: len(text) // 2], SAMPLING)
    for length in range(len(text) // 2, len(text) + 1):
        said = text[:length]
        draft = drafter.propose(said, 8)
        expected = first_choice(said)
        assert draft.tokens[:1] == (() if expected is None else (expected,))
        if draft:
            assert draft.detail == f"match {longest(said)}"


@given(TOKENS, st.integers(1, 12))
def test_the_path_goes_on_as_if_it_had_been_said(text: list[int], limit: int) -> None:
    """Where everything that follows is certain, token by token asking gives the same."""
    draft = begun(text, threshold=0).propose(text, limit)
    assert len(draft.tokens) <= limit
    doubled = [*text, *text]
    if len(set(text)) == len(text) > 2:
        assert begun(doubled, threshold=0).propose(doubled, limit).tokens == tuple(
            text[i % len(text)] for i in range(limit)
        )


def test_frequency_and_recency() -> None:
    def first(*followers: int) -> int:
        text = [token for each in followers for token in (1, 2, each)]
        return begun([*text, 1, 2], threshold=0).propose([*text, 1, 2], 1).tokens[0]

    assert first(7) == 7
    assert first(7, 8) == 8  # the latest of two
    assert first(7, 7, 8) == 8  # two against the latest, counted twice: the latest
    assert first(7, 7, 7, 8) == 7  # more frequent than that


def test_matches_of_one_token_are_for_those_who_ask() -> None:
    text = [1, 2, 3, 1]
    assert not begun(text, threshold=0).propose(text, 2)
    assert begun(text, threshold=0, shortest=1).propose(text, 2).tokens == (2, 3)


def test_agreement_is_worth_confidence() -> None:
    def sure(*followers: int) -> float:
        text = [token for each in followers for token in (1, 2, each)]
        draft = begun([*text, 1, 2], threshold=0).propose([*text, 1, 2], 1)
        assert draft.confidences is not None
        return draft.confidences[0]

    assert sure(7, 7, 7) > sure(7, 8, 7, 7) > sure(6, 7, 8, 9)


def test_a_copy_goes_on_with_itself() -> None:
    text = [1, 2, 3] * 3
    assert begun(text, threshold=0).propose(text, 7).tokens == (1, 2, 3, 1, 2, 3, 1)
    assert begun([5] * 9, threshold=0).propose([5] * 9, 6).tokens == (5,) * 6


def test_shorter_contexts_back_a_single_occurrence_or_dispute_it() -> None:
    def confidence(text: list[int]) -> float:
        draft = begun(text, threshold=0).propose(text, 1)
        assert draft.tokens == (3,)
        assert draft.confidences is not None
        return draft.confidences[0]

    alone = confidence([1, 2, 3, 90, 1, 2])
    backed = confidence([8, 2, 3, 91, 9, 2, 3, 92, 1, 2, 3, 90, 1, 2])
    disputed = confidence([8, 2, 7, 91, 9, 2, 7, 92, 1, 2, 3, 90, 1, 2])
    assert disputed < alone < backed


def test_confidences_stop_the_draft() -> None:
    text = [*POEM, 1, *POEM[:3]]
    full = begun(text, threshold=0).propose(text, 20)
    cut = begun(text).propose(text, 20)
    assert full.confidences is not None
    assert len(full.tokens) == 20
    assert 0 < len(cut.tokens) < 20
    assert full.tokens[: len(cut.tokens)] == cut.tokens
    products = [1.0]
    for confidence in full.confidences:
        products.append(products[-1] * confidence)
    assert products[len(cut.tokens)] >= 0.4 > products[len(cut.tokens) + 1]
    # longer matches are trusted more
    assert all(a <= b for a, b in pairwise(full.confidences))


def outcome(draft: Draft, accepted: int, own: int, before: int) -> Outcome:
    emitted = (*draft.tokens[:accepted], own)
    return Outcome(draft, accepted, emitted, before + len(emitted))


def test_it_learns_from_its_drafts() -> None:
    text = [*POEM, 1, *POEM[:3]]
    good, bad, idle = begun(text), begun(text), begun(text)
    before = len(idle.propose(text, 20).tokens)
    for drafter, right in ((good, True), (bad, False)):
        for _ in range(6):
            draft = drafter.propose(text, 20)
            accepted = len(draft.tokens) if right else 0
            own = POEM[3 + accepted] if right else 9
            drafter.settle(outcome(draft, accepted, own, len(text)))
    assert len(good.propose(text, 20).tokens) > before
    assert len(bad.propose(text, 20).tokens) < before


def test_it_learns_where_it_did_not_draft() -> None:
    """A plain cycle, or another drafter's, tells whether the path would have been right."""
    text = [*POEM, 1, *POEM[:2]]
    shy = begun(text, threshold=0.9)
    assert not shy.propose(text, 20)
    for _ in range(40):
        shy.propose(text, 20)
        other = Draft((POEM[2], POEM[3]), "draft-simple")
        shy.settle(outcome(other, 2, POEM[4], len(text)))
    assert shy.propose(text, 20).tokens[:1] == (POEM[2],)


def test_full_accepts_are_censored_and_stale_paths_teach_nothing() -> None:
    text = [*POEM, 1, *POEM[:3]]
    drafter = begun(text, threshold=0)
    learned: list[bool] = []
    drafter._hits.learn = lambda at, right: learned.append(right)  # type: ignore[method-assign]
    draft = drafter.propose(text, 4)
    drafter.settle(outcome(draft, 4, 9, len(text)))
    assert learned == [True] * 4  # nothing about a fifth token
    drafter.settle(outcome(draft, 4, 9, len(text)))  # not proposed again since
    assert learned == [True] * 4
    draft = drafter.propose(text, 4)
    drafter.settle(outcome(draft, 1, 9, len(text)))
    assert learned == [True] * 5 + [False]  # what came after the difference is unknown
    drafter.propose(text, 4)
    other = Draft((POEM[3], 9, POEM[5], POEM[6]), "draft-simple")
    drafter.settle(outcome(other, 4, POEM[7], len(text)))
    assert learned == [True] * 5 + [False, True, False]


def test_a_later_turn_keeps_an_answer_that_the_prompt_dropped() -> None:
    prompt = [1, 2, 3, *range(10, 20)]
    drafter = begun(prompt, threshold=0)
    drafter.propose([*prompt, *POEM], 4)
    turn = [*prompt, 4, 5, *range(30, 50), *POEM[:3]]
    drafter.begin(turn, SAMPLING)
    assert drafter.propose(turn, 4).tokens == tuple(POEM[3:7])
    # the dropped answer ends where it ended
    assert drafter.propose([*turn, *POEM[3:]], 4).tokens == ()
    # a match may reach back over the seam
    drafter.begin([*turn, 6], SAMPLING)
    seam = [*turn, 6, *prompt[-2:], 4]
    assert drafter.propose(seam, 2).tokens == (5, 30)


@pytest.mark.parametrize("again", [[1, 2, 3, *range(10, 20)], [7, 8, *range(60, 90)]])
def test_the_same_prompt_again_or_another_conversation_starts_anew(again: list[int]) -> None:
    """Else a repeated benchmark would be drafted from its own answer."""
    drafter = begun([1, 2, 3, *range(10, 20)])
    drafter.propose([1, 2, 3, *range(10, 20), *POEM], 4)
    drafter.begin(again, SAMPLING)
    assert not drafter.propose([*again, *POEM[:5]], 4)


def test_memory_is_bounded_and_the_recent_half_stays() -> None:
    drafter = NgramSuffix(8, threshold=0, most_tokens=200)
    text = [*POEM]
    drafter.begin(text, SAMPLING)
    for token in range(1000, 1500):
        text.append(token)
        drafter.propose(text, 8)
        assert len(drafter._automaton.text) <= 200
    assert not drafter.propose([*text, *POEM[:5]], 4)
    text += POEM[:5]
    assert drafter.propose([*text, 1450, 1451], 2).tokens == (1452, 1453)


def test_close_forgets_and_a_shrunken_list_is_no_surprise() -> None:
    text = [*POEM, 1, *POEM[:3]]
    drafter = begun(text, threshold=0)
    assert drafter.propose(text, 3)
    assert not drafter.propose(POEM[:20], 3)
    assert drafter.propose([*POEM[:20], *POEM[:3]], 2).tokens == tuple(POEM[3:5])
    drafter.close()
    drafter.close()
    assert not drafter.propose(POEM[:3], 3)


def test_cells_and_priors() -> None:
    hits = Hits()
    by_length = [hits.chance(cell(length, ALONE)) for length in (1, 2, 3, 4, 6, 9, 17, 33)]
    assert by_length == sorted(by_length)
    assert cell(1, ALONE) == 0
    assert cell(40, SPLIT) == cell(33, SPLIT) == 39
    ordered = [SPLIT, MAJORITY, DISPUTED, ALONE, AGREED]
    assert [hits.chance(cell(4, a)) for a in ordered] == sorted(
        hits.chance(cell(4, a)) for a in ordered
    )


def test_hits_follow_the_text_within_a_few_dozen_trials() -> None:
    hits, at = Hits(), cell(6, ALONE)
    neighbour = cell(17, ALONE)
    start = hits.chance(neighbour)
    for right, low, high in ((True, 0.85, 1.0), (False, 0.0, 0.25), (True, 0.75, 1.0)):
        for _ in range(40):
            hits.learn(at, right)
            assert 0 < hits.chance(at) < 1
        assert low < hits.chance(at) < high
        if not right:
            assert hits.chance(neighbour) < start  # bad news travels
