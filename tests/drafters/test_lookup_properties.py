"""What every look-up drafter promises, whatever the text."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specctl.drafters.base import Drafter, Outcome, TargetPass
from specctl.drafters.chain import Chain
from specctl.drafters.ngram_cache import NgramCache
from specctl.drafters.ngram_map import NgramMapK, NgramMapK4V
from specctl.drafters.ngram_mod import NgramMod
from specctl.drafters.ngram_simple import NgramSimple
from specctl.drafters.suffix import NgramSuffix
from specctl.settings import NgramModSettings, NgramSettings, Sampling

NGRAM = NgramSettings(size_n=2, size_m=5, min_hits=1)
MOD = NgramModSettings(n_match=2, n_max=6, n_min=1)
MAKERS: dict[str, Callable[[], Drafter]] = {
    f"{name}{' compat' if compat else ''}": maker
    for compat in (False, True)
    for name, maker in {
        "ngram-simple": lambda compat=compat: NgramSimple(NGRAM, compat),
        "ngram-map-k": lambda compat=compat: NgramMapK(NGRAM, compat),
        "ngram-map-k4v": lambda compat=compat: NgramMapK4V(NGRAM, compat),
        "ngram-mod": lambda compat=compat: NgramMod(MOD, compat),
        "ngram-cache": lambda compat=compat: NgramCache(7, compat),
    }.items()
}
MAKERS["ngram-suffix"] = lambda: NgramSuffix(7)
MAKERS["ngram-suffix whole path"] = lambda: NgramSuffix(7, threshold=0)
MAKERS["ngram-suffix bounded"] = lambda: NgramSuffix(7, threshold=0, most_tokens=20)
MAKERS["chain"] = lambda: Chain([NgramSimple(NGRAM, False), NgramSuffix(7)])

TURN = st.tuples(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 30), st.booleans())


def run(drafter: Drafter, turns: list[tuple[list[int], int, bool]], limit: int) -> list[object]:
    """Generations in which the target says what the text says; every promise checked."""
    seen: list[object] = []
    text: list[int] = []
    heard: set[int] = set()  # a drafter may remember earlier generations, never invent
    for new, prompt, goes_on in turns:
        text = text + new if goes_on else list(new)
        length = min(prompt, len(text))
        drafter.begin(text[:length], Sampling())
        while True:
            given_tokens = text[:length]
            draft = drafter.propose(given_tokens, limit)
            assert given_tokens == text[:length]
            assert len(draft.tokens) <= min(limit, drafter.needs.k_max)
            heard.update(given_tokens)
            assert heard.issuperset(draft.tokens)
            if draft.confidences is not None:
                assert len(draft.confidences) == len(draft.tokens)
                assert all(0 < confidence <= 1 for confidence in draft.confidences)
            seen.append(draft)
            if length >= len(text):
                break
            accepted = 0
            for token, said in zip(draft.tokens, text[length:], strict=False):
                if token != said:
                    break
                accepted += 1
            drafter.observe(TargetPass(draft.tokens, max(0, length - 1)))
            emitted = tuple(text[length : length + accepted + 1])
            length += accepted + 1
            drafter.settle(Outcome(draft, accepted, emitted, length))
    drafter.close()
    return seen


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=40)
@given(st.lists(TURN, min_size=1, max_size=3), st.integers(1, 9))
def test_promises(name: str, turns: list[tuple[list[int], int, bool]], limit: int) -> None:
    first = run(MAKERS[name](), turns, limit)
    assert run(MAKERS[name](), turns, limit) == first


@pytest.mark.parametrize("name", MAKERS)
def test_a_run_of_one_token_and_a_begin_that_was_never_called(name: str) -> None:
    drafter = MAKERS[name]()
    for length in (0, 1, 2, 300, 301, 300, 2, 0):
        assert set(drafter.propose([3] * length, 4).tokens) <= {3}
    if name != "ngram-simple compat":  # there the copy would be shorter than n
        assert set(drafter.propose([3] * 400, 4).tokens) == {3}
    drafter.close()
    drafter.close()


def test_look_ups_need_no_engine() -> None:
    modules = ["chain", "ngram_cache", "ngram_map", "ngram_mod", "ngram_simple", "suffix"]
    code = "".join(f"import specctl.drafters.{module}\n" for module in modules)
    code += "import sys; print([m for m in ('numpy', 'llama_cpp') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
