"""Drafts of llama.cpp's own code (the commit in llama-cpp-python 0.3.36), replayed.

`llama_cpp_drafts.json`: per session the settings and, per generation, the text that came to be, the
length of its prompt and every draft llama.cpp made on the way: the first one after one sampled
token, then after what was accepted of the draft and one token more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specctl.drafters.base import Drafter, Outcome
from specctl.drafters.ngram_map import NgramMapK, NgramMapK4V
from specctl.drafters.ngram_mod import NgramMod
from specctl.drafters.ngram_simple import NgramSimple
from specctl.settings import NgramModSettings, NgramSettings, Sampling

SESSIONS = json.loads((Path(__file__).parent / "llama_cpp_drafts.json").read_text())


def make(session: dict[str, Any]) -> Drafter:
    settings = session["settings"]
    if session["type"] == "ngram-mod":
        return NgramMod(NgramModSettings(**settings), compat=True)
    kinds = {"ngram-simple": NgramSimple, "ngram-map-k": NgramMapK, "ngram-map-k4v": NgramMapK4V}
    return kinds[session["type"]](NgramSettings(**settings), compat=True)


@pytest.mark.parametrize("number", range(len(SESSIONS)))
def test_compat_drafts_are_llama_cpps(number: int) -> None:
    session = SESSIONS[number]
    drafter = make(session)
    assert drafter.name == session["type"]
    for generation in session["generations"]:
        text, length = generation["text"], generation["prompt"]
        drafter.begin(text[:length], Sampling())
        length += 1
        for expected in generation["drafts"]:
            draft = drafter.propose(text[:length], 1000)
            assert list(draft.tokens) == expected
            after = text[length:]
            accepted = 0
            while accepted < min(len(expected), len(after)):
                if expected[accepted] != after[accepted]:
                    break
                accepted += 1
            emitted = tuple(after[: accepted + 1])
            length += accepted + 1
            drafter.settle(Outcome(draft, accepted, emitted, length))
    drafter.close()


def test_the_recording_holds_every_type_and_real_drafts() -> None:
    drafted = dict.fromkeys(["ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod"], 0)
    for session in SESSIONS:
        for generation in session["generations"]:
            drafted[session["type"]] += sum(map(bool, generation["drafts"]))
    assert min(drafted.values()) >= 30
