"""Greedy text is token for token plain decoding's, whatever drafts; and the check has teeth."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from lossless_kit import (
    ALL_TYPES,
    K_MAX,
    PLAIN,
    collect,
    differs,
    run,
    spec_of,
    specs,
    start,
)

import specctl.engine.loop
from specctl.engine.judge import Verdict
from specctl.engine.session import Session
from specctl.engine.steptime import CALIBRATION_STEPS, REFRESH_AFTER
from specctl.settings import DraftSettings, Request

pytestmark = pytest.mark.native

JITTER = ("jitter", "jitter-qwen3", "jitter-swa")
WORDS = st.integers(tiny.FIRST_WORD, tiny.SIZE - 1)
# few different words and repeated parts, so that look-ups have something to find
PROMPTS = st.lists(WORDS, min_size=1, max_size=6).flatmap(
    lambda some: st.lists(st.sampled_from(some) | st.integers(0, 255), min_size=1, max_size=40)
)


@pytest.fixture(scope="module")
def sessions(tiny_models) -> Iterator[dict[str, tuple[Session, Session]]]:
    """Per model: one that only ever decodes plainly, and one that everything is tried in."""
    made = {
        name: (start(tiny_models[name]), start(tiny_models[name], tiny_models["jitter-draft"]))
        for name in JITTER
    }
    yield made
    for pair in made.values():
        for session in pair:
            session.close()


def prompt_of(seed: int, length: int = 24) -> list[int]:
    return [
        int(t) for t in np.random.default_rng(seed).integers(tiny.FIRST_WORD, tiny.SIZE, length)
    ]


@functools.cache
def plain_of(reference: Session, seed: int) -> tuple[int, ...]:
    """Plain decoding's 70 tokens after a prompt that is said twice."""
    return run(reference, PLAIN, prompt_of(seed) * 2, 70).tokens


# ---------------------------------------------------------------- identity


@pytest.mark.parametrize("types", ALL_TYPES, ids=",".join)
@pytest.mark.parametrize("model", JITTER)
def test_each_drafter_drafts_is_accepted_and_rejected_and_changes_nothing(sessions, model, types):
    reference, tried = sessions[model]
    totals = []
    for seed, k in enumerate((1, 3, 9)):
        prompt = prompt_of(seed) * 2
        plain = plain_of(reference, seed)
        got = run(tried, spec_of(*types, n=1, k=k), prompt, len(plain))
        assert differs(reference, prompt, plain, got.tokens) == ""
        totals.append(got.totals)
    accepted = sum(t.accepted for t in totals)
    if "auto" not in types:  # which drafts as it pays on the machine at hand
        assert 0 < accepted < sum(t.drafted for t in totals)  # both ends of the rule were walked


@pytest.mark.parametrize("model", JITTER)
def test_any_prompt_any_drafter_any_length(sessions, model):
    reference, tried = sessions[model]

    @settings(max_examples=50)
    @given(PROMPTS, specs(), st.integers(1, 50))
    def check(prompt, spec, n):
        # neither session is reset: prompts that share a prefix reuse the KV cache
        plain = run(reference, PLAIN, prompt, n).tokens
        got = run(tried, spec, prompt, n)
        assert differs(reference, prompt, plain, got.tokens) == ""
        assert got.finished.emitted_tokens == len(got.tokens)
        for cycle in got.cycles:
            assert len(cycle.drafted) <= cycle.limit <= K_MAX
            assert cycle.emitted == (*cycle.drafted[: cycle.accepted], cycle.emitted[-1])

    check()


@settings(max_examples=12)
@given(seed=st.integers(0, 9), changes=st.lists(specs(), min_size=1, max_size=4))
def test_switching_drafters_between_cycles_changes_nothing(sessions, seed, changes):
    reference, tried = sessions["jitter"]
    prompt = prompt_of(seed)
    plain = run(reference, PLAIN, prompt, 60).tokens
    tried.use(changes[0])

    def switching():
        waiting = list(changes[1:])
        for index, record in enumerate(tried.generate(Request(tuple(prompt), 60))):
            yield record
            if index % 9 == 8 and waiting:
                tried.use(waiting.pop())

    assert differs(reference, prompt, plain, collect(switching()).tokens) == ""


def test_a_conversation_that_grows_reuses_the_cache_and_changes_nothing(sessions):
    """Turn by turn: what a rejected draft left behind would show in the next turn."""
    reference, tried = sessions["jitter-qwen3"]
    spec = spec_of("draft-simple", "ngram-simple", k=7)
    history = prompt_of(5)
    for turn in range(5):
        reference.reset()
        plain = run(reference, PLAIN, history, 37).tokens
        got = run(tried, spec, history, 37)
        assert differs(reference, history, plain, got.tokens) == ""
        history += [*plain, *prompt_of(turn, 5)]


def test_up_to_the_last_token_of_the_context(tiny_models):
    """With no limit but the context, both stop at the same token."""
    prompt = prompt_of(1)
    with start(tiny_models["jitter"], tiny_models["jitter-draft"], n_ctx=256) as session:
        plain = run(session, PLAIN, prompt, None)
        got = run(session, spec_of("draft-simple", k=K_MAX), prompt, None)
        assert plain.finished.reason == got.finished.reason == "context"
        assert differs(session, prompt, plain.tokens, got.tokens) == ""
        assert len(prompt) + len(plain.tokens) == session.n_ctx + 1


# ---------------------------------------------------------------- stops inside a draft


def clock_drafted(tiny_models, name):
    """A clock that drafts for itself: every draft is accepted, so stops fall inside drafts."""
    return start(tiny_models[name], tiny_models[name])


def test_end_of_generation_inside_a_draft(tiny_models):
    clock = tiny.clock_eog()
    with clock_drafted(tiny_models, "clock-eog") as session:
        for seed in range(12):
            prompt = prompt_of(seed)
            truth = clock.greedy(prompt[-1], 200)
            until = truth[: truth.index(tiny.IM_END)]
            for k in (1, 5, K_MAX):
                got = run(session, spec_of("draft-simple", k=k), prompt, 200, ignore_eog=False)
                assert got.tokens == tuple(until)
                assert got.finished.reason == "eog"
        on = run(session, spec_of("draft-simple", k=K_MAX), prompt, 200)
        assert on.tokens == tuple(truth)
        assert on.totals.acceptance_rate == 1.0


def test_stop_strings_inside_a_draft(tiny_models):
    with clock_drafted(tiny_models, "clock") as session:
        for seed in range(8):
            prompt = prompt_of(seed)
            text = run(session, PLAIN, prompt, 80).text
            for stop in (text[100:109], text[60:61], "never said"):
                plain = run(session, PLAIN, prompt, 80, stop=(stop,))
                got = run(session, spec_of("draft-simple", k=9), prompt, 80, stop=(stop,))
                assert got.tokens == plain.tokens
                assert got.text == plain.text == text.partition(stop)[0]
                assert got.finished.reason == plain.finished.reason


def test_an_emoji_in_four_tokens_across_cycles(tiny_models):
    with clock_drafted(tiny_models, "clock-emoji") as session:
        prompt = [tiny.word("amber")]
        for k in range(1, 8):
            got = run(session, spec_of("draft-simple", k=k), prompt, 150)
            assert got.text.count(tiny.EMOJI) == 2
            assert "\N{REPLACEMENT CHARACTER}" not in got.text
            assert all(tiny.EMOJI in c.text or c.text.isascii() for c in got.cycles)


# ---------------------------------------------------------------- designed acceptance


@pytest.mark.parametrize("k", [1, 2, 3, 4, 8, 12])
@pytest.mark.parametrize("n", [1, 2, 50, 301])
def test_the_clock_pair_counts_exactly_as_designed(tiny_models, k, n):
    with start(tiny_models["clock"], tiny_models["clock-draft"]) as session:
        prompt = prompt_of(k)
        designed = tiny.walk(prompt[-1], n, k, calibrate=CALIBRATION_STEPS, refresh=REFRESH_AFTER)
        got = run(session, spec_of("draft-simple", k=k), prompt, n)
    assert got.tokens == designed.tokens
    counted = (got.totals.cycles, got.totals.drafted, got.totals.accepted)
    assert counted == (designed.cycles, designed.drafted, designed.accepted)
    assert got.totals.emitted == n


def test_a_draft_dropped_for_its_length_leaves_no_trace(tiny_models):
    """The first of a chain drops a short draft and the second drafts: the first must forget."""
    spec = spec_of(
        "draft-simple", "ngram-simple", n=2, k=6, draft=DraftSettings(n_max=6, n_min=5, p_min=0.5)
    )
    with start(tiny_models["clock"], tiny_models["clock-draft-unsure"]) as session:
        prompt = tiny.clock_target().greedy(tiny.word("amber"), 130)
        assert run(session, spec, prompt, 120).tokens == tuple(
            tiny.clock_target().greedy(prompt[-1], 120)
        )
        draft = session._opened.draft_context
        assert draft is not None
        shared = min(len(draft.tokens), len(prompt) + 119)
        whole = [*prompt, *tiny.clock_target().greedy(prompt[-1], 120)]
        assert draft.tokens[:shared] == whole[:shared]


# ---------------------------------------------------------------- teeth


def failures(tiny_models, model: str, off_by: int = 0) -> int:
    """How many of six prompts the check rejects, with the target cut `off_by` cells too late."""
    found = 0
    with (
        start(tiny_models[model]) as reference,
        start(tiny_models[model], tiny_models["jitter-draft"]) as tried,
    ):
        cut = tried.context.cut
        tried.context.cut = lambda length: cut(length + off_by)  # type: ignore[method-assign]
        for seed in range(6):
            prompt = prompt_of(seed)
            tried.context.clear()
            plain = run(reference, PLAIN, prompt, 60).tokens
            got = run(tried, spec_of("draft-simple", k=4), prompt, 60).tokens
            found += differs(reference, prompt, plain, got) != ""
    return found


@pytest.mark.parametrize("model", JITTER)
def test_teeth_the_unbroken_engine_passes(tiny_models, model):
    assert failures(tiny_models, model) == 0


@pytest.mark.parametrize("model", JITTER)
def test_teeth_one_stale_cell_after_a_rejection_is_noticed(tiny_models, model):
    assert failures(tiny_models, model, off_by=1) >= 5


@pytest.mark.parametrize("model", JITTER)
def test_teeth_one_cell_cut_too_many_is_noticed(tiny_models, model):
    assert failures(tiny_models, model, off_by=-1) >= 5


def test_teeth_one_wrong_token_accepted_is_noticed(tiny_models, monkeypatch):
    judge = specctl.engine.loop.judge

    def lenient(rows, draft, tokens, *rest):
        """Lets the first rejected token of a draft pass."""
        verdict = judge(rows, draft, tokens, *rest)
        if verdict.accepted < len(draft.tokens):
            at = verdict.accepted + 1
            return Verdict(at, int(rows[at].argmax()))
        return verdict

    monkeypatch.setattr(specctl.engine.loop, "judge", lenient)
    assert failures(tiny_models, "jitter") == 6


def test_teeth_the_row_next_door_is_noticed(tiny_models, monkeypatch):
    """Judging each drafted token by the row after it: an off-by-one that still often agrees."""
    judge = specctl.engine.loop.judge

    def shifted(rows, draft, tokens, *rest):
        return judge(np.concatenate([rows[1:], rows[-1:]]), draft, tokens, *rest)

    monkeypatch.setattr(specctl.engine.loop, "judge", shifted)
    assert failures(tiny_models, "jitter") == 6
