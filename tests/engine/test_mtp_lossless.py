"""draft-mtp: lossless, greedy and sampled, and after an answer was stopped inside a pass."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from lossless_kit import PLAIN, collect, differs, run, spec_of, start, transition_tail
from mtp_kit import CHAIN, MTP, PAIRS, begin, prompt_of, stale

from specctl.llama.api import library
from specctl.sampling import law
from specctl.settings import DraftSettings, Request, Sampling

pytestmark = pytest.mark.native

OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def test_any_prompt_any_length(trio):
    plain, tried, _ = trio

    @settings(max_examples=15)
    @given(
        st.lists(st.integers(tiny.FIRST_WORD, tiny.SIZE - 1), min_size=1, max_size=90),
        st.sampled_from(
            [("draft-mtp",), ("ngram-suffix", "draft-mtp"), ("draft-mtp", "ngram-mod")]
        ),
        st.integers(1, 6),
        st.sampled_from([0.0, 0.4]),
        st.integers(1, 40),
    )
    def check(prompt, types, k, p_min, n):
        text = run(plain, PLAIN, prompt, n).tokens
        draft = DraftSettings(n_max=k, p_min=p_min)
        got = run(tried, spec_of(*types, n=1, k=k, draft=draft), prompt, n)
        assert differs(plain, prompt, text, got.tokens) == ""

    check()


@pytest.mark.parametrize("name", ["mtp-clock-draft", "chain", "assistant"])
def test_up_to_the_last_token_of_the_context(tiny_models, name):
    prompt = prompt_of(1)
    with begin(tiny_models, name, MTP, n_ctx=256) as session:
        plain = run(session, PLAIN, prompt, None)
        got = run(session, MTP, prompt, None)
        assert plain.finished.reason == got.finished.reason == "context"
        assert differs(session, prompt, plain.tokens, got.tokens) == ""
        assert len(prompt) + len(plain.tokens) == session.n_ctx + 1


@pytest.mark.parametrize("pair", ["chain-step35", "assistant"])
def test_an_edit_far_before_the_sliding_window(tiny_models, pair):
    """llama.cpp grants the cut also where a cache as wide as the window holds nothing there."""
    with (
        start(tiny_models[PAIRS.get(pair, (pair, None))[0]]) as plain,
        begin(tiny_models, pair, n_batch=64, n_ubatch=16) as tried,
    ):
        wrong = 0
        for seed in range(3):
            long = prompt_of(seed, 700)
            run(tried, MTP, long, 10)
            edited = [*long[:150], *prompt_of(seed + 9, 5)]
            plain.reset()
            text = run(plain, PLAIN, edited, 40).tokens
            wrong += differs(plain, edited, text, run(tried, MTP, edited, 40).tokens) != ""
    assert wrong == 0


def test_one_seed_is_one_text(trio):
    plain, tried, _ = trio
    for seed in range(3):
        sampling = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
        prompt = prompt_of(seed)
        text = run(plain, PLAIN, prompt, 60, sampling).tokens
        got = run(tried, CHAIN, prompt, 60, sampling)
        assert differs(plain, prompt, text, got.tokens, sampling) == ""


def test_sampled_drafts_follow_the_targets_law(tiny_models):
    spec = spec_of("draft-mtp", k=4, draft=DraftSettings(n_max=4, sampling="sampled"))
    laws, pairs, accepted, drafted = {}, [], 0, 0
    for token in range(tiny.SIZE):
        found = law(np.log(tiny.clock_target().law(token)).astype(np.float32), [], OPEN)
        laws[token] = np.zeros(tiny.SIZE)
        laws[token][found.ids] = found.probs
    with begin(tiny_models, "mtp-clock-draft", spec, n_ctx=256) as session:
        for seed in range(25):
            prompt = [tiny.FIRST_WORD + seed]
            got = run(session, spec, prompt, 200, dataclasses.replace(OPEN, seed=seed))
            pairs += pairwise([*prompt, *got.tokens])
            accepted, drafted = accepted + got.totals.accepted, drafted + got.totals.drafted
    assert 0.5 < accepted / drafted < 0.9
    assert transition_tail(pairs, laws) > 1e-4


@pytest.mark.parametrize("where", ["target", "heads"])
def test_stopped_inside_a_pass_then_gone_on_with(trio, where):
    plain, tried, fresh = trio
    lib = library()
    for seed in range(4):
        prompt = prompt_of(seed)
        text = run(plain, PLAIN, prompt, 60).tokens
        tried.reset()
        tried.use(MTP)
        records = tried.generate(Request(tuple(prompt), 60, ignore_eog=True))
        first = [next(records) for _ in range(8)]  # Started, PromptDone and six cycles
        native = (tried.context if where == "target" else tried._opened.heads).handle
        seen = [0]

        def poll(_: object, seen=seen, node=4 + 5 * seed) -> bool:
            seen[0] += 1
            if seen[0] > node:
                tried.cancel.set()
            return seen[0] > node

        callback = lib.ggml_abort_callback(poll)
        lib.llama_set_abort_callback(native, callback, None)
        first += list(records)
        tried.cancel.attach(lib, native)
        stopped = collect(first)
        assert stopped.finished.reason == "cancelled"
        begun = [*prompt, *stopped.tokens]
        rest = run(tried, MTP, begun, 60 - len(stopped.tokens))
        assert differs(plain, prompt, text, (*stopped.tokens, *rest.tokens)) == ""
        assert stale(fresh, begun, rest) == 0
