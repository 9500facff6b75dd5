"""draft-eagle3: lossless, accepted as designed, in step with the target whatever happens to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import tiny
from lossless_kit import (
    PLAIN,
    Run,
    collect,
    differs,
    run,
    spec_of,
    start,
    transition_tail,
)

import specctl.llama.layerdraft
from specctl.engine.session import Session, open_session
from specctl.engine.steptime import CALIBRATION_STEPS, REFRESH_AFTER
from specctl.enginefacts import LAYER_TAPS, LAYER_TAPS_LAST
from specctl.errors import ModelError, PairError, UsageError
from specctl.llama.api import library
from specctl.llama.eagle3 import BATCH, Eagle3
from specctl.llama.trail import Trail
from specctl.sampling import law
from specctl.settings import DraftSettings, EngineSettings, Request, Sampling, SpecSettings

pytestmark = pytest.mark.native

EAGLE = spec_of("draft-eagle3", k=4)
CHAIN = spec_of("ngram-suffix", "draft-eagle3", n=1, k=4)
DRIFT = 0.05  # logits: rounding, carried on from step to step by random layers (seen: 0.021)
OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def prompt_of(seed: int, length: int = 90) -> list[int]:
    rng = np.random.default_rng(seed)
    return [int(t) for t in rng.integers(tiny.FIRST_WORD, tiny.SIZE, length)]


def begin(models, target: str, draft: str, *specs: SpecSettings, **how: int) -> Session:
    chosen = EngineSettings(**{"n_ctx": 1024, "threads": 1, **how})
    return open_session(models[target], models[draft], specs or (EAGLE,), chosen)


@pytest.fixture(params=["jitter", "hybrid"])
def trio(request, tiny_models) -> Iterator[tuple[Session, Session, Session]]:
    """One session that only decodes plainly, one in which things are tried, one kept fresh."""
    with (
        start(tiny_models[request.param]) as plain,
        begin(tiny_models, request.param, "eagle-loud") as tried,
        begin(tiny_models, request.param, "eagle-loud") as fresh,
    ):
        yield plain, tried, fresh


# ---------------------------------------------------------------- designed acceptance


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ("clock", "eagle-draft"),
        ("clock", "eagle-draft-d2t"),
        ("hybrid-clock", "eagle-draft"),
        ("hybrid-clock", "eagle-last"),
    ],
)
@pytest.mark.parametrize("k", [1, 5])
def test_it_counts_exactly_as_designed(tiny_models, target, draft, k):
    """It is right only with g of the token before: layers, encoder, boundary and chaining."""
    prompt, spec = prompt_of(k), spec_of("draft-eagle3", k=k)
    designed = tiny.walk(prompt[-1], 120, k, calibrate=CALIBRATION_STEPS, refresh=REFRESH_AFTER)
    with begin(tiny_models, target, draft, spec) as session:
        got = run(session, spec, prompt, 120)
    assert got.tokens == designed.tokens
    counted = (got.totals.cycles, got.totals.drafted, got.totals.accepted)
    assert counted == (designed.cycles, designed.drafted, designed.accepted)


def right_share(tiny_models, k: int = 4) -> float:
    with begin(tiny_models, "clock", "eagle-borrow", spec_of("draft-eagle3", k=k)) as session:
        got = run(session, spec_of("draft-eagle3", k=k), prompt_of(k), 120)
    assert got.totals.drafted > 50
    return got.totals.acceptance_rate


@pytest.mark.parametrize("k", [1, 4])
def test_one_that_borrows_the_targets_tensors(tiny_models, k):
    assert right_share(tiny_models, k) == 1.0


def test_the_targets_context_may_be_opened_again(tiny_models):
    """What is borrowed is reached through it."""
    with begin(tiny_models, "clock", "eagle-borrow") as session:
        prompt = [*prompt_of(1), *run(session, EAGLE, prompt_of(1), 20).tokens]
        wide = spec_of("draft-eagle3", k=9)
        assert "reopened" in " ".join(session.use(wide))
        assert run(session, wide, prompt, 80).totals.acceptance_rate == 1.0


# ---------------------------------------------------------------- drafts of a fresh head


def stale(fresh: Session, prompt: Sequence[int], got: Run, least: int = 3) -> int:
    """In how many cycles the draft is not that of a head that has just read the text."""
    whole = [*prompt, *got.tokens]
    fresh._feed()
    heads = fresh._opened.heads
    assert heads is not None
    found = seen = 0
    for cycle in got.cycles:
        if cycle.source != "draft-eagle3":
            continue
        fresh.context.clear()
        fresh.context.follow(whole[: cycle.n_past])
        unread = whole[len(heads.tokens) : cycle.n_past + 1]
        for token in cycle.drafted:
            row = heads.extend(unread)
            if row.max() - row[token] > DRIFT:
                found += 1
                break
            unread = [token]
        seen += 1
    assert seen >= least
    return found


def wrong_drafts(trio, spec: SpecSettings = EAGLE) -> int:
    plain, tried, fresh = trio
    wrong = 0
    for seed in range(2):
        prompt = prompt_of(seed, 40) * 2
        got = run(tried, spec, prompt, 50)
        assert differs(plain, prompt, run(plain, PLAIN, prompt, 50).tokens, got.tokens) == ""
        wrong += stale(fresh, prompt, got)
    return wrong


@pytest.mark.parametrize("k", [1, 6])
def test_every_draft_is_a_fresh_heads(trio, k):
    assert wrong_drafts(trio, spec_of("draft-eagle3", k=k)) == 0


def test_and_after_cycles_that_look_ups_drafted(trio):
    assert wrong_drafts(trio, spec_of("ngram-suffix", "draft-eagle3", n=3, k=4)) == 0


def test_and_through_a_conversation_with_edits(trio):
    plain, tried, fresh = trio
    history = prompt_of(5, 30)
    for turn in range(5):
        text = run(plain, PLAIN, history, 20).tokens
        got = run(tried, EAGLE, history, 20)
        assert differs(plain, history, text, got.tokens) == ""
        assert stale(fresh, history, got) == 0
        whole = [*history, *text]
        history = [
            [*whole, *prompt_of(turn, 5)],
            [*whole[:3], tiny.word("flint"), *whole[4:]],
            whole[: len(history) - 4],
            [*whole, *prompt_of(9, 300)],
            whole[:20],
        ][turn]


def test_and_with_batches_smaller_than_anything(tiny_models):
    small = {"n_batch": 7, "n_ubatch": 3}
    with (
        start(tiny_models["jitter"]) as plain,
        begin(tiny_models, "jitter", "eagle-loud", **small) as tried,
        begin(tiny_models, "jitter", "eagle-loud") as fresh,
    ):
        assert wrong_drafts((plain, tried, fresh)) == 0


def test_and_after_another_drafter_was_in_use(trio):
    _, tried, fresh = trio
    prompt = prompt_of(2)
    run(tried, PLAIN, prompt, 10)
    assert tried.context._tap is None
    got = run(tried, EAGLE, prompt, 40)
    assert stale(fresh, prompt, got) == 0


# ---------------------------------------------------------------- lossless


def test_one_token_of_prompt_and_one_seed(trio):
    plain, tried, _ = trio
    for seed in range(2):
        sampling = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
        for prompt in (prompt_of(seed, 1), prompt_of(seed, 2), prompt_of(seed)):
            text = run(plain, PLAIN, prompt, 30, sampling).tokens
            got = run(tried, CHAIN, prompt, 30, sampling)
            assert differs(plain, prompt, text, got.tokens, sampling) == ""


def test_sampled_drafts_follow_the_targets_law(tiny_models):
    """With a vocabulary of its own, whose other tokens are -inf."""
    spec = spec_of("draft-eagle3", k=3, draft=DraftSettings(n_max=3, sampling="sampled"))
    laws, pairs, accepted = {}, [], 0
    for token in range(tiny.SIZE):
        found = law(np.log(tiny.clock_target().law(token)).astype(np.float32), [], OPEN)
        laws[token] = np.zeros(tiny.SIZE)
        laws[token][found.ids] = found.probs
    with begin(tiny_models, "clock", "eagle-draft-d2t", spec, n_ctx=256) as session:
        for seed in range(12):
            prompt = [tiny.FIRST_WORD, tiny.FIRST_WORD + seed]
            sampling = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
            got = run(session, spec, prompt, 200, sampling)
            pairs += list(zip([prompt[-1], *got.tokens[:-1]], got.tokens, strict=True))
            accepted += got.totals.accepted
    assert accepted > 300
    assert transition_tail(pairs, laws) > 1e-4


def test_auto_runs_with_it(tiny_models):
    auto = spec_of("auto", k=4)
    with (
        start(tiny_models["jitter"]) as plain,
        begin(tiny_models, "jitter", "eagle-loud", auto) as tried,
    ):
        assert tried._opened.uses_heads(auto)
        prompt = prompt_of(1)
        text = run(plain, PLAIN, prompt, 60).tokens
        assert differs(plain, prompt, text, run(tried, auto, prompt, 60).tokens) == ""
        assert tried.context._tap is tried._opened.heads


@pytest.mark.parametrize("where", ["target", "head"])
def test_stopped_inside_a_pass_then_gone_on_with(trio, where):
    plain, tried, fresh = trio
    lib, prompt = library(), prompt_of(3, 40)
    text = run(plain, PLAIN, prompt, 50).tokens
    tried.use(EAGLE)
    for node in (3, 11):
        tried.reset()
        records = tried.generate(Request(tuple(prompt), 50, ignore_eog=True))
        first = [next(records) for _ in range(8)]  # Started, PromptDone and six cycles
        native = (tried.context if where == "target" else tried._opened.heads).handle
        seen = [0]

        def poll(_: object, seen=seen, node=node) -> bool:
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
        rest = run(tried, EAGLE, begun, 50 - len(stopped.tokens))
        assert differs(plain, prompt, text, (*stopped.tokens, *rest.tokens)) == ""
        assert stale(fresh, begun, rest) == 0


# ---------------------------------------------------------------- memory, refusals


def test_no_logits_for_a_whole_batch(tiny_models):
    with begin(tiny_models, "clock", "eagle-draft", n_batch=512, n_ubatch=512) as session:
        handle = session._opened.heads.handle
        assert library().llama_n_batch(handle) == library().llama_n_ubatch(handle) == BATCH


@pytest.mark.parametrize(
    ("target", "draft", "said"),
    [
        ("jitter-swa", "eagle-draft", "what the layers of gemma3 read"),
        ("clock", "eagle-wide", "made for a target 352 wide"),
        ("clock", "eagle-layer", "reads layer 3, the target has 2"),
        ("clock", "eagle-last", "what leaves the last layer of llama"),
        ("clock", "eagle-two", "2 layers instead of three"),
        ("clock", "eagle-blocks", "2 layers instead of one"),
        ("clock", "eagle-d2t-i32", "not 64-bit"),
        ("clock", "eagle-d2t-range", "names token 320"),
        ("clock", "eagle-d2t-no-output", "no output tensor"),
        ("clock", "eagle-token", "cannot draft for"),
    ],
)
def test_heads_that_cannot_draft_are_refused(tiny_models, target, draft, said):
    for spec in (EAGLE, CHAIN, spec_of("auto")):
        with pytest.raises(PairError, match=said):
            begin(tiny_models, target, draft, spec)


def test_wrong_files_are_told(tiny_models):
    with pytest.raises(ModelError, match="does not load"):
        begin(tiny_models, "clock", "eagle-no-fc")
    with pytest.raises(UsageError, match="needs an EAGLE-3 head made for the target"):
        begin(tiny_models, "clock", "clock-draft")
    with pytest.raises(UsageError, match="which draft-simple cannot use"):
        begin(tiny_models, "clock", "eagle-draft", spec_of("draft-simple"))
    with pytest.raises(UsageError, match="heads of the target"):
        begin(tiny_models, "mtp", "eagle-draft", spec_of("draft-mtp"))
    with pytest.raises(ModelError, match="not a whole model"):
        begin(tiny_models, "eagle-draft", "eagle-draft")


def test_a_build_without_the_functions_is_told(tiny_models, monkeypatch):
    monkeypatch.setattr(specctl.llama.layerdraft, "layer_inputs", lambda: None)
    with pytest.raises(PairError, match="does not give out"):
        begin(tiny_models, "clock", "eagle-draft")


def test_what_leaves_the_last_layer_is_had_where_layers_are():
    assert LAYER_TAPS_LAST < LAYER_TAPS


def test_block_drafts_are_never_opened_as_heads(tiny_models):
    with pytest.raises(UsageError, match=r"needs an EAGLE-3 head, and .* is a DFlash draft"):
        begin(tiny_models, "clock", "dflash-draft")


# ---------------------------------------------------------------- teeth


def test_teeth_rows_of_the_token_itself(tiny_models, monkeypatch):
    rows = Trail.rows
    monkeypatch.setattr(
        Trail, "rows", lambda self, at, n: np.roll(rows(self, at, n), 1, axis=0) * (n > 1)
    )
    assert right_share(tiny_models) < 0.9


def test_teeth_the_chain_is_another_rows(tiny_models, monkeypatch):
    """Asked for fewer outputs than a pass has rows, llama.cpp gives those of the first ones."""
    keep = Eagle3._keep
    monkeypatch.setattr(Eagle3, "_keep", lambda self, count: keep(self, 1))
    assert right_share(tiny_models) < 0.9


def _stale_cells(patch: pytest.MonkeyPatch) -> None:
    """Rejected cells stay in the native memory."""
    decode = Eagle3._decode

    def decoding(self, tokens, cell, batch):
        self._cells = min(self._cells, cell)
        decode(self, tokens, cell, batch)

    patch.setattr(Eagle3, "_decode", decoding)


def test_teeth_a_head_out_of_step_is_noticed(trio, monkeypatch):
    _, tried, fresh = trio
    prompt = prompt_of(0, 40) * 2
    with monkeypatch.context() as patch:
        _stale_cells(patch)
        got = run(tried, EAGLE, prompt, 50)
    assert stale(fresh, prompt, got) > 0
