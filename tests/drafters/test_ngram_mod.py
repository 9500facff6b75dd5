from __future__ import annotations

import random

from specctl.drafters.base import Draft, Outcome
from specctl.drafters.ngram_mod import NgramMod
from specctl.settings import NgramModSettings, Sampling

SAMPLING = Sampling()
POEM = list(range(100, 140))


def drafter(compat: bool = False, most: int = 1 << 18, **settings: int) -> NgramMod:
    values = {"n_match": 4, "n_max": 8, "n_min": 2} | settings
    return NgramMod(NgramModSettings(**values), compat, most)


def low(mod: NgramMod, text: list[int], times: int) -> None:
    for _ in range(times):
        draft = mod.propose(text, 8)
        assert draft
        mod.settle(Outcome(draft, 0, (1,), len(text) + 1))


def test_the_pool_outlives_a_prompt() -> None:
    for compat in (False, True):
        mod = drafter(compat)
        mod.begin(POEM, SAMPLING)
        mod.begin([7, 8, 9, *POEM[:6]], SAMPLING)
        assert mod.propose([7, 8, 9, *POEM[:6], POEM[6]], 8).tokens == tuple(POEM[7:15])


def test_the_default_knows_the_text_up_to_its_end() -> None:
    text = [*POEM[:10], 1, 2, *POEM[:5]]
    ours, llama_cpp = drafter(), drafter(compat=True)
    ours.begin([0], SAMPLING)
    llama_cpp.begin([0], SAMPLING)
    assert ours.propose(text, 8).tokens == (*POEM[5:10], 1, 2, POEM[0])
    assert not llama_cpp.propose(text, 8)  # fewer than 32 new tokens: not in its table yet


def test_short_drafts_are_dropped_but_a_limit_is_no_reason() -> None:
    text = [*POEM, 1, *POEM[-6:-2]]
    assert drafter(n_min=3).propose(text, 8).tokens[:2] == tuple(POEM[-2:])
    ends = [*POEM, 1, *POEM]  # the walk reaches a place where two continuations meet
    assert len(drafter(n_min=8).propose(ends[: -len(POEM) + 4], 3).tokens) == 3
    lonely = drafter(n_min=3, n_match=4)
    lonely.begin(POEM[:7], SAMPLING)
    assert not lonely.propose([9, *POEM[:6]], 8)  # one token known: shorter than n_min


def test_five_low_drafts_forget_other_conversations_only() -> None:
    mod = drafter()
    mod.begin(POEM, SAMPLING)
    present = [1, 2, 3, 4, 5, 6, *POEM[:4]]
    mod.begin(present, SAMPLING)
    low(mod, present, 4)
    assert mod.propose(present, 8)
    low(mod, present, 1)
    assert not mod.propose(present, 8)  # the poem is gone
    assert mod.propose([*present, 1, 2, 3, 4], 8).tokens[:2] == (5, 6)  # the present text is not


def test_a_good_draft_ends_the_streak_and_others_do_not_count() -> None:
    mod = drafter()
    mod.begin(POEM, SAMPLING)
    text = [1, *POEM[:4]]
    low(mod, text, 4)
    draft = mod.propose(text, 8)
    mod.settle(Outcome(draft, 2, (1, 2, 3), 8))  # a quarter of 8 is not low
    low(mod, text, 4)
    other = Draft((1, 2), "draft-simple")
    mod.settle(Outcome(other, 0, (3,), 9))
    assert mod.propose(text, 8)


def test_the_pool_is_bounded_and_the_newest_stays() -> None:
    mod = drafter(most=200)
    rng = random.Random(1)
    for _ in range(20):
        mod.begin([rng.randrange(50_000) for _ in range(60)], SAMPLING)
        assert len(mod._pool._entries) <= 200
    mod.begin(POEM, SAMPLING)
    assert mod.propose([1, *POEM[:4]], 4).tokens == tuple(POEM[4:8])


def test_two_instances_share_nothing_and_close_forgets() -> None:
    one, two = drafter(), drafter()
    one.begin(POEM, SAMPLING)
    two.begin([1], SAMPLING)
    assert one.propose([1, *POEM[:4]], 8)
    assert not two.propose([1, *POEM[:4]], 8)
    one.close()
    one.close()
    assert not one.propose([1, *POEM[:4]], 8)
