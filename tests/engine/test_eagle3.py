"""draft-eagle3: lossless, accepted as designed, in step with the target whatever happens to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

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
from specctl.settings import (
    DraftSettings,
    EngineSettings,
    ModelSettings,
    Request,
    Sampling,
    SpecSettings,
)

Trio = tuple[Session, Session, Session]
Rows = list[np.ndarray]

pytestmark = pytest.mark.native

EAGLE = spec_of("draft-eagle3", k=4)
CHAIN = spec_of("ngram-suffix", "draft-eagle3", n=1, k=4)
# Flash attention and F16 cells round by how many rows a pass has, which random layers make as much
# as 0.05 logits of. Without both, a draft's logits are those of a fresh head but for 4e-5 at most
# (seen); what the teeth below break moves them by 0.5 and more.
F32 = ModelSettings(kv_type_k="f32", kv_type_v="f32")
EXACT = {"flash_attn": "off", "target": F32, "draft": F32}
ROUNDING = 1e-3
OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def prompt_of(seed: int, length: int = 90) -> list[int]:
    rng = np.random.default_rng(seed)
    return [int(t) for t in rng.integers(tiny.FIRST_WORD, tiny.SIZE, length)]


def begin(models, model: str, head: str | None, *specs: SpecSettings, **how: Any) -> Session:
    chosen = EngineSettings(**{"n_ctx": 1024, "threads": 1, **how})
    draft = models[head] if head is not None else None
    return open_session(models[model], draft, specs or (EAGLE if head else PLAIN,), chosen)


@contextmanager
def three(models, model: str, head: str, **how: Any) -> Iterator[Trio]:
    with (
        begin(models, model, None, **EXACT) as plain,
        begin(models, model, head, **EXACT, **how) as tried,
        begin(models, model, head, **EXACT) as fresh,
    ):
        yield plain, tried, fresh


@pytest.fixture(
    params=[("jitter", "eagle-heard"), ("jitter", "eagle-loud"), ("hybrid", "eagle-loud")],
    ids="-".join,
)
def trio(request, tiny_models) -> Iterator[Trio]:
    """One session that only decodes plainly, one in which things are tried, one kept fresh."""
    with three(tiny_models, *request.param) as sessions:
        yield sessions


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


def watched(
    session: Session, spec: SpecSettings, prompt: Sequence[int], n: int
) -> tuple[Run, Rows]:
    """A run, and the logits that each drafted token was chosen by."""
    heads, rows = session._opened.heads, []
    extend = heads.extend

    def logging(tokens):
        rows.append(extend(tokens).copy())
        return rows[-1]

    heads.extend = logging
    try:
        return run(session, spec, prompt, n), rows
    finally:
        del heads.extend


def worst(fresh: Session, prompt: Sequence[int], got: tuple[Run, Rows], least: int = 3) -> float:
    """How far the logits of its drafts are from those of a head that has just read the text."""
    cycles, rows = got[0].cycles, iter(got[1])
    whole = [*prompt, *got[0].tokens]
    fresh._feed()
    heads = fresh._opened.heads
    assert heads is not None
    found, drafts = 0.0, 0
    for cycle in cycles:
        if cycle.source != "draft-eagle3":
            continue
        fresh.context.clear()
        fresh.context.follow(whole[: cycle.n_past])
        unread = whole[len(heads.tokens) : cycle.n_past + 1]
        for token in cycle.drafted:
            found = max(found, float(np.abs(heads.extend(unread) - next(rows)).max()))
            unread = [token]
        drafts += 1
    assert drafts >= least
    return found


def off(trio: Trio, spec: SpecSettings = EAGLE) -> float:
    """`worst` of two prompts; their texts are plain decoding's."""
    plain, tried, fresh = trio
    found = 0.0
    for seed in range(2):
        prompt = prompt_of(seed, 40) * 2
        got = watched(tried, spec, prompt, 50)
        assert differs(plain, prompt, run(plain, PLAIN, prompt, 50).tokens, got[0].tokens) == ""
        found = max(found, worst(fresh, prompt, got))
    return found


@pytest.mark.parametrize("k", [1, 6])
def test_every_draft_is_a_fresh_heads(trio, k):
    assert off(trio, spec_of("draft-eagle3", k=k)) < ROUNDING


def test_and_after_cycles_that_look_ups_drafted(trio):
    assert off(trio, spec_of("ngram-suffix", "draft-eagle3", n=3, k=4)) < ROUNDING


def test_and_through_a_conversation_with_edits(trio):
    plain, tried, fresh = trio
    history = prompt_of(5, 30)
    for turn in range(5):
        text = run(plain, PLAIN, history, 20).tokens
        got = watched(tried, EAGLE, history, 20)
        assert differs(plain, history, text, got[0].tokens) == ""
        assert worst(fresh, history, got) < ROUNDING
        whole = [*history, *text]
        history = [
            [*whole, *prompt_of(turn, 5)],
            [*whole[:3], tiny.word("flint"), *whole[4:]],
            whole[: len(history) - 4],
            [*whole, *prompt_of(9, 300)],
            whole[:20],
        ][turn]


def test_and_with_batches_smaller_than_anything(tiny_models):
    with three(tiny_models, "jitter", "eagle-loud", n_batch=7, n_ubatch=3) as sessions:
        assert off(sessions) < ROUNDING


def test_and_after_another_drafter_was_in_use(trio):
    _, tried, fresh = trio
    prompt = prompt_of(2)
    run(tried, PLAIN, prompt, 10)
    assert tried.context._tap is None
    assert worst(fresh, prompt, watched(tried, EAGLE, prompt, 40)) < ROUNDING


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
        rest = watched(tried, EAGLE, begun, 50 - len(stopped.tokens))
        assert differs(plain, prompt, text, (*stopped.tokens, *rest[0].tokens)) == ""
        assert worst(fresh, begun, rest) < ROUNDING


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


def _kept_drafts(patch: pytest.MonkeyPatch) -> None:
    """What it read while drafting counts as read with the target, once it was accepted."""

    def keeping(self, length):
        self._true = min(len(self.tokens), length)
        del self.tokens[self._true :]

    patch.setattr(Eagle3, "cut", keeping)


@pytest.mark.parametrize(
    ("target", "broken"),
    [("jitter", _stale_cells), ("jitter", _kept_drafts), ("clock", _kept_drafts)],
)
def test_teeth_a_head_out_of_step_is_noticed(tiny_models, monkeypatch, target, broken):
    with three(tiny_models, target, "eagle-heard") as (_, tried, fresh):
        prompt = prompt_of(0, 40) * 2
        with monkeypatch.context() as patch:
            broken(patch)
            got = watched(tried, EAGLE, prompt, 50)
        assert got[0].totals.accepted
        assert worst(fresh, prompt, got) > 100 * ROUNDING
        tried.reset()
        assert worst(fresh, prompt, watched(tried, EAGLE, prompt, 50)) < ROUNDING
