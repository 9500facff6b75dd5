"""draft-dflash, draft-dspark: lossless, accepted as designed, in step with the target."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
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
from tiny_dflash import BLOCK

import specctl.llama.layerdraft
from specctl.drafters.auto import Auto
from specctl.drafters.costs import CostCurve
from specctl.drafters.model_source import BlockSource
from specctl.engine.session import Session, open_session
from specctl.engine.steptime import CALIBRATION_STEPS, REFRESH_AFTER
from specctl.enginefacts import BLOCK_BATCH
from specctl.errors import EngineError, ModelError, PairError, UsageError
from specctl.llama.api import library
from specctl.llama.blockdraft import BlockDraft
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

# Flash attention and F16 cells round by how many rows a pass has. Without both, a draft's logits
# are those of a fresh draft but for 2e-6 (seen); what is broken below moves them by 0.2 and more.
F32 = ModelSettings(kv_type_k="f32", kv_type_v="f32")
EXACT = {"flash_attn": "off", "target": F32, "draft": F32}
ROUNDING = 1e-4
OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def prompt_of(seed: int, length: int = 90) -> list[int]:
    rng = np.random.default_rng(seed)
    return [int(t) for t in rng.integers(tiny.FIRST_WORD, tiny.SIZE, length)]


def type_of(draft: str) -> str:
    return "draft-dspark" if draft.startswith("dspark") else "draft-dflash"


def begin(models, model: str, name: str | None, *specs: SpecSettings, **how: Any) -> Session:
    chosen = EngineSettings(**{"n_ctx": 1024, "threads": 1, **how})
    draft = models[name] if name is not None else None
    return open_session(models[model], draft, specs or (spec_for(name) if name else PLAIN,), chosen)


def spec_for(name: str, k: int = 4, *before: str, **how: object) -> SpecSettings:
    return spec_of(*before, type_of(name), n=1, k=k, **how)


@contextmanager
def three(models, model: str, name: str, **how: Any) -> Iterator[Trio]:
    with (
        begin(models, model, None, **EXACT) as plain,
        begin(models, model, name, **EXACT, **how) as tried,
        begin(models, model, name, **EXACT) as fresh,
    ):
        yield plain, tried, fresh


@pytest.fixture(
    params=[("jitter", "dflash-loud"), ("jitter", "dspark-loud"), ("hybrid", "dflash-loud")],
    ids="-".join,
)
def trio(request, tiny_models) -> Iterator[Trio]:
    """One session that only decodes plainly, one in which things are tried, one kept fresh."""
    with three(tiny_models, *request.param) as sessions:
        yield sessions


def own(session: Session, k: int = 4, *before: str) -> SpecSettings:
    """A spec that drafts with the session's file."""
    return spec_of(*before, session.layers_type, n=1, k=k)


# ---------------------------------------------------------------- designed acceptance


@pytest.mark.parametrize(
    ("target", "draft", "ks"),
    [
        ("clock", "dflash-draft", (1, 3, 5)),
        ("clock", "dflash-d2t", (4,)),
        ("clock", "dflash-causal", (5,)),
        ("clock", "dflash-read", (1,)),
        ("hybrid-clock", "dflash-draft", (5,)),
        ("hybrid-clock", "dflash-read", (1,)),
        ("hybrid-clock", "dflash-last", (1,)),
        ("clock", "dspark-draft", (1, 2, 5)),
        ("clock", "dspark-bonus", (1, 4)),
        ("clock", "dspark-d2t", (3,)),
        ("clock", "dspark-wide", (40,)),
        ("hybrid-clock", "dspark-draft", (5,)),
    ],
)
def test_it_counts_exactly_as_designed(tiny_models, target, draft, ks):
    """Right only where masks, rows, positions and what was read of the target are."""
    for k in ks:
        prompt, spec = tiny.clock_target().greedy(prompt_of(k)[-1], 90), spec_for(draft, k)
        designed = tiny.walk(prompt[-1], 120, k, calibrate=CALIBRATION_STEPS, refresh=REFRESH_AFTER)
        with begin(tiny_models, target, draft, spec) as session:
            got = run(session, spec, prompt, 120)
        assert got.tokens == designed.tokens
        counted = (got.totals.cycles, got.totals.drafted, got.totals.accepted)
        assert counted == (designed.cycles, designed.drafted, designed.accepted)


def test_k_is_bounded_by_the_block_and_said(tiny_models):
    for draft, most in (("dflash-draft", BLOCK - 1), ("dspark-draft", 5), ("dspark-bonus", 4)):
        with begin(tiny_models, "clock", draft, spec_for(draft, 9)) as session:
            assert any(f"at most {most} tokens, the block" in note for note in session.notes)
            got = run(session, spec_for(draft, 9), prompt_of(1), 80)
            designed = tiny.walk(prompt_of(1)[-1], 80, most, calibrate=CALIBRATION_STEPS)
            assert (got.totals.drafted, got.totals.accepted) == (
                designed.drafted,
                designed.accepted,
            )


def right_share(tiny_models, draft: str = "dflash-borrow", **how: int) -> float:
    with begin(tiny_models, "clock", draft, spec_for(draft, 5), **how) as session:
        prompt = tiny.clock_target().greedy(tiny.FIRST_WORD, 90)
        got = run(session, spec_for(draft, 5), prompt, 120)
    assert got.totals.drafted > 50
    return got.totals.acceptance_rate


def test_one_that_borrows_the_targets_tensors(tiny_models):
    assert right_share(tiny_models) == 1.0


def test_the_targets_context_may_be_opened_again(tiny_models):
    """What is borrowed is reached through it."""
    narrow, wide = spec_for("dflash-borrow", 2), spec_for("dflash-borrow", 5)
    with begin(tiny_models, "clock", "dflash-borrow", narrow) as session:
        prompt = [*prompt_of(1), *run(session, narrow, prompt_of(1), 20).tokens]
        assert "reopened" in " ".join(session.use(wide))
        assert run(session, wide, prompt, 80).totals.acceptance_rate == 1.0


def test_a_head_that_knows_when_it_is_right_is_p_min(tiny_models):
    """0.98 after words where the chain is right, 0.02 elsewhere: all that is left is accepted."""
    for draft in ("dspark-draft", "dspark-bonus"):
        spec = spec_for(draft, 4, draft=DraftSettings(n_max=4, p_min=0.5))
        with begin(tiny_models, "clock", draft, spec) as session:
            got = run(session, spec, prompt_of(3), 120)
        assert got.totals.acceptance_rate == 1.0
        assert 40 < got.totals.drafted < 110


def test_without_such_a_head_p_min_is_the_rows_own(tiny_models):
    """Laws so soft that no token has half: nothing is drafted, and above a tenth all is."""
    for p_min, drafted in ((0.5, False), (0.1, True)):
        spec = spec_for("dspark-soft", 4, draft=DraftSettings(n_max=4, p_min=p_min))
        with begin(tiny_models, "clock", "dspark-soft", spec) as session:
            got = run(session, spec, prompt_of(3), 60)
        assert (got.totals.drafted > 60) == drafted
        assert (got.totals.drafted > 0) == drafted


# ---------------------------------------------------------------- drafts of a fresh draft


def watched(
    session: Session, spec: SpecSettings, prompt: Sequence[int], n: int
) -> tuple[Run, Rows]:
    """A run, and the logits of each block that was drafted from."""
    block, blocks = session._opened.heads, []
    guess = block.guess

    def logging(tokens):
        rows, sure = guess(tokens)
        blocks.append(rows.copy())
        return rows, sure

    block.guess = logging
    try:
        return run(session, spec, prompt, n), blocks
    finally:
        del block.guess


def worst(fresh: Session, prompt: Sequence[int], got: tuple[Run, Rows], least: int = 3) -> float:
    """How far the logits of its blocks are from those of a draft that has just read the text."""
    blocks, whole = iter(got[1]), [*prompt, *got[0].tokens]
    fresh._feed()
    block = fresh._opened.heads
    assert isinstance(block, BlockDraft)
    found, seen = 0.0, 0
    for cycle in got[0].cycles:
        if cycle.source != block.spec_type:
            continue
        fresh.context.clear()
        fresh.context.follow(whole[: cycle.n_past])
        rows, _ = block.guess(whole[len(block.tokens) : cycle.n_past + 1])
        found = max(found, float(np.abs(rows - next(blocks)).max()))
        seen += 1
    assert seen >= least
    return found


def off(trio: Trio, k: int = 4, *before: str) -> float:
    """`worst` of two prompts; their texts are plain decoding's."""
    plain, tried, fresh = trio
    spec = own(tried, k, *before)
    found, accepted, drafted = 0.0, 0, 0
    for seed in range(2):
        prompt = prompt_of(seed, 40) * 2
        got = watched(tried, spec, prompt, 60)
        assert differs(plain, prompt, run(plain, PLAIN, prompt, 60).tokens, got[0].tokens) == ""
        found = max(found, worst(fresh, prompt, got))
        accepted, drafted = accepted + got[0].totals.accepted, drafted + got[0].totals.drafted
    assert 0 < accepted < drafted  # some are taken back, and not all
    return found


@pytest.mark.parametrize("k", [1, 4])
def test_every_draft_is_a_fresh_drafts(trio, k):
    assert off(trio, k) < ROUNDING


def test_and_after_cycles_that_look_ups_drafted(trio):
    assert off(trio, 4, "ngram-suffix") < ROUNDING


def test_and_through_a_conversation_with_edits(trio):
    plain, tried, fresh = trio
    history = prompt_of(5, 30)
    for turn in range(5):
        text = run(plain, PLAIN, history, 20).tokens
        got = watched(tried, own(tried), history, 20)
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
    with three(tiny_models, "jitter", "dflash-loud", n_batch=7, n_ubatch=3) as sessions:
        assert off(sessions) < ROUNDING


def test_and_after_another_drafter_was_in_use(trio):
    _, tried, fresh = trio
    prompt = prompt_of(2)
    run(tried, PLAIN, prompt, 10)
    assert tried.context._tap is None
    assert worst(fresh, prompt, watched(tried, own(tried), prompt, 40)) < ROUNDING


def test_turning_by_sections_comes_to_the_same(tiny_models):
    """M-RoPE: all sections of a position are alike, and llama.cpp fills in only the first."""
    texts = []
    for draft in ("dflash-loud", "dflash-sections"):
        with begin(tiny_models, "jitter", draft) as session:
            got = run(session, spec_for(draft), prompt_of(1), 80)
            texts.append([cycle.drafted for cycle in got.cycles])
    assert texts[0] == texts[1]


def test_rows_see_those_after_them_unless_the_file_says_otherwise(tiny_models):
    """The last token's own row aside: what the masks behind a row hold changes its guess."""
    prompt, found = prompt_of(1, 30), {}
    for name in ("dflash-loud", "dflash-loud-causal"):
        with begin(tiny_models, "jitter", name, **EXACT) as session:
            session._feed()
            session.context.follow(prompt[:-1])
            block = session._opened.heads
            found[name] = block.guess(prompt[len(block.tokens) :])[0].copy()
    last = BLOCK - 2  # sees as much either way
    apart = np.abs(found["dflash-loud"] - found["dflash-loud-causal"]).max(axis=1)
    assert apart[last] < ROUNDING
    assert (apart[:last] > 100 * ROUNDING).all()


# ---------------------------------------------------------------- lossless


def test_one_token_of_prompt_and_one_seed(trio):
    plain, tried, _ = trio
    for seed in range(2):
        sampling = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
        for prompt in (prompt_of(seed, 1), prompt_of(seed, 2), prompt_of(seed)):
            for spec in (own(tried), own(tried, 4, "ngram-suffix")):
                text = run(plain, PLAIN, prompt, 30, sampling).tokens
                got = run(tried, spec, prompt, 30, sampling)
                assert differs(plain, prompt, text, got.tokens, sampling) == ""


def test_up_to_the_last_token_of_the_context(tiny_models):
    prompt = prompt_of(1)
    for draft in ("dflash-draft", "dspark-draft"):
        spec = spec_for(draft, 5)
        with begin(tiny_models, "clock", draft, spec, n_ctx=256) as session:
            plain, got = (run(session, one, prompt, None) for one in (PLAIN, spec))
            assert plain.finished.reason == got.finished.reason == "context"
            assert plain.tokens == got.tokens
            assert len(prompt) + len(plain.tokens) == session.n_ctx + 1


@pytest.mark.parametrize("draft", ["dflash-d2t", "dflash-draft", "dspark-soft", "dspark-d2t"])
@pytest.mark.parametrize("how", ["greedy", "sampled"])
def test_sampled_text_follows_the_targets_law(tiny_models, draft, how):
    spec = spec_for(draft, 3, draft=DraftSettings(n_max=3, sampling=how))
    laws, pairs, accepted, drawn = {}, [], 0, 0
    for token in range(tiny.SIZE):
        found = law(np.log(tiny.clock_target().law(token)).astype(np.float32), [], OPEN)
        laws[token] = np.zeros(tiny.SIZE)
        laws[token][found.ids] = found.probs
    with begin(tiny_models, "clock", draft, spec, n_ctx=256) as session:
        drafter = session._drafters[spec]
        assert drafter is not None
        assert drafter.needs.gives_laws == (how == "sampled")
        for seed in range(12):
            prompt = [tiny.FIRST_WORD, tiny.FIRST_WORD + seed]
            got = run(session, spec, prompt, 200, dataclasses.replace(OPEN, seed=seed))
            pairs += pairwise([prompt[-1], *got.tokens])
            accepted += got.totals.accepted
            drawn += got.totals.drafted
    assert 0.15 * drawn < accepted < 0.9 * drawn
    assert transition_tail(pairs, laws) > 1e-4


def test_a_chain_asks_it_where_look_ups_find_nothing(tiny_models):
    spec = spec_of("ngram-suffix", "draft-dflash", n=3, k=4)
    with (
        start(tiny_models["clock"]) as plain,
        begin(tiny_models, "clock", "dflash-draft", spec) as s,
    ):
        text = run(plain, PLAIN, prompt_of(1), 200).tokens
        got = run(s, spec, prompt_of(1), 200)
    assert got.tokens == text
    sources = {cycle.source for cycle in got.cycles if cycle.drafted}
    assert sources == {"ngram-suffix", "draft-dflash"}


# ---------------------------------------------------------------- auto


def test_auto_runs_with_it(tiny_models):
    """A tiny target is so cheap that `auto` may leave the draft alone; the text is the same."""
    auto = spec_of("auto", k=4)
    with (
        start(tiny_models["jitter"]) as plain,
        begin(tiny_models, "jitter", "dflash-loud", auto) as tried,
    ):
        assert tried._opened.uses_heads(auto)
        prompt = prompt_of(1)
        text = run(plain, PLAIN, prompt, 60).tokens
        assert differs(plain, prompt, text, run(tried, auto, prompt, 60).tokens) == ""
        assert tried.context._tap is tried._opened.heads


def test_auto_drafts_whole_blocks_where_passes_are_cheap(tiny_models, monkeypatch):
    """What a block costs here is far above a step of a tiny target: as if it were a tenth of it."""
    settle = Auto.settle

    def free(self, outcome):
        self._drafting = self._risk = 0.0
        settle(self, dataclasses.replace(outcome, seconds=outcome.t_1 or outcome.seconds))

    monkeypatch.setattr(Auto, "settle", free)
    monkeypatch.setattr(CostCurve, "ratio", lambda self, rows: 1.0)
    monkeypatch.setattr(BlockSource, "first_cost", lambda self, unread, t_1: 0.1)
    monkeypatch.setattr(BlockSource, "step_cost", lambda self, t_1: 0.0)
    auto = spec_of("auto", k=12)
    for draft, most in (("dflash-borrow", 5), ("dspark-draft", 5)):
        with begin(tiny_models, "clock", draft, auto) as session:
            prompt = tiny.clock_target().greedy(tiny.FIRST_WORD, 20)
            got = run(session, auto, prompt, 40)
        assert got.tokens == tuple(tiny.clock_target().greedy(prompt[-1], 40))
        by_block = [cycle for cycle in got.cycles if cycle.source == type_of(draft)]
        assert max(len(cycle.drafted) for cycle in by_block) == most
        assert not any("+" in (cycle.source or "") for cycle in got.cycles)


class Stub:
    """A block of `most` tokens that takes a fixed time."""

    name, needs = "draft-dflash", None

    def __init__(self, clock: list[float], most: int) -> None:
        self.clock, self.most = clock, most

    def unread(self, tokens: Sequence[int]) -> int:
        return 1

    def steps(self, tokens: Sequence[int], *, confident: bool = False) -> Iterator[tuple]:
        self.clock[0] += 0.030
        for _ in range(self.most):
            yield 7, None, 0.9
            self.clock[0] += 0.001


def test_auto_sees_one_price_for_any_length(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    source = BlockSource(Stub(now, 8), CostCurve())
    from specctl.drafters.base import nothing

    for _ in range(40):
        draft = source.extend(nothing("x"), [1, 2, 3], 8, lambda k, p, drafted: drafted or k < 1)
        assert len(draft.tokens) == 8  # looking at what is there already needs no leave
    assert source.first_cost(1, 0.1) == source.first_cost(99, 0.1) == pytest.approx(0.30)
    assert source.entry_cost(1, 0.1) == source.first_cost(1, 0.1)
    assert source.step_cost(0.1) == pytest.approx(0.01, rel=0.1)


# ---------------------------------------------------------------- stopped


@pytest.mark.parametrize("where", ["target", "draft"])
def test_stopped_inside_a_pass_then_gone_on_with(trio, where):
    plain, tried, fresh = trio
    lib, prompt = library(), prompt_of(3, 40)
    text = run(plain, PLAIN, prompt, 50).tokens
    spec = own(tried)
    tried.use(spec)
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
        rest = watched(tried, spec, begun, 50 - len(stopped.tokens))
        assert differs(plain, prompt, text, (*stopped.tokens, *rest[0].tokens)) == ""
        assert worst(fresh, begun, rest) < ROUNDING


# ---------------------------------------------------------------- memory, refusals


def test_no_logits_for_a_whole_batch(tiny_models):
    with begin(tiny_models, "clock", "dflash-draft", n_batch=512, n_ubatch=512) as session:
        handle = session._opened.heads.handle
        assert library().llama_n_batch(handle) == BLOCK_BATCH
        assert library().llama_n_ubatch(handle) == BLOCK_BATCH


@pytest.mark.parametrize(
    ("target", "draft", "said"),
    [
        ("jitter-swa", "dflash-draft", "what the layers of gemma3 read"),
        ("clock", "dflash-layer", "reads layer 3, the target has 2"),
        ("clock", "dflash-last", "what leaves the last layer of llama"),
        ("clock", "dflash-no-layers", "which layers of a target it reads"),
        ("clock", "dflash-no-mask", "does not name its mask token"),
        ("clock", "dflash-mask-range", "mask token 320 is outside its vocabulary of 320"),
        ("clock", "dflash-block-0", "0 tokens long"),
        ("clock", "dflash-block-1", "1 tokens long .* leaves none"),
        ("clock", "dflash-block-long", "129 tokens long, and at most 128"),
        ("clock", "dflash-no-blocks", "it has no layers"),
        ("clock", "dflash-streams", "hyper-connections"),
        ("clock", "dflash-token", "cannot draft for"),
        ("clock", "dflash-d2t-i32", "not 64-bit"),
        ("clock", "dflash-borrow-padded", "328 tokens where that of clock.gguf has 320"),
        ("clock", "dflash-borrow-mask", "mask token 324 is outside the target's vocabulary of 320"),
        ("clock", "dflash2", "a DFlash2 draft is not run here"),
        ("clock", "dspark-no-block", "0 tokens long"),
        ("clock", "dspark-block-0", "0 tokens long"),
        ("clock", "dspark-long-chain", "no room for a chain over blocks of 100"),
    ],
)
def test_files_that_cannot_draft_are_refused(tiny_models, target, draft, said):
    """Each would abort the process, or draft nonsense: here that is told before it is loaded."""
    specs = [spec_of("auto")]
    if draft != "dflash2":
        specs += [spec_for(draft), spec_for(draft, 4, "ngram-suffix")]
    for spec in specs:
        with pytest.raises(PairError, match=said):
            begin(tiny_models, target, draft, spec)


def test_wrong_files_are_told(tiny_models):
    for draft in ("dflash-no-fc", "dspark-no-second"):
        with pytest.raises(ModelError, match="does not load"):
            begin(tiny_models, "clock", draft)
    with pytest.raises(UsageError, match="draft-dflash needs a DFlash draft made for the target"):
        begin(tiny_models, "clock", "clock-draft", spec_for("dflash"))
    with pytest.raises(
        UsageError, match=r"draft-dspark needs a DSpark draft, and .* a DFlash draft"
    ):
        begin(tiny_models, "clock", "dflash-draft", spec_for("dspark"))
    with pytest.raises(UsageError, match=r"draft-dflash needs a DFlash draft, and .* an EAGLE-3"):
        begin(tiny_models, "clock", "eagle-draft", spec_for("dflash"))
    with pytest.raises(UsageError, match="which draft-simple cannot use"):
        begin(tiny_models, "clock", "dflash-draft", spec_of("draft-simple"))
    with pytest.raises(ModelError, match="not a whole model"):
        begin(tiny_models, "dflash-draft", "dflash-draft")
    with pytest.raises(UsageError, match="draft-dflash needs a DFlash draft"):
        begin(tiny_models, "clock", "dflash2", spec_for("dflash"))


def test_a_build_without_the_functions_is_told(tiny_models, monkeypatch):
    monkeypatch.setattr(specctl.llama.layerdraft, "layer_inputs", lambda: None)
    with pytest.raises(PairError, match="does not give out"):
        begin(tiny_models, "clock", "dflash-draft")


# ---------------------------------------------------------------- teeth


def _rejected_stay(patch: pytest.MonkeyPatch) -> None:
    """What the target read of a rejected token stays in its place."""
    decoded, rows, first = Trail.decoded, Trail.rows, {}

    def keeping(self, count, done):
        for end in decoded(self, count, done):
            for position in range(self.first, end):
                first.setdefault(position, rows(self, position, 1)[0].copy())
            yield end

    patch.setattr(Trail, "decoded", keeping)
    patch.setattr(Trail, "rows", lambda self, at, n: np.stack([first[at + i] for i in range(n)]))


def _rows_of_the_word_before(patch: pytest.MonkeyPatch) -> None:
    rows = Trail.rows
    patch.setattr(Trail, "rows", lambda self, at, n: np.roll(rows(self, at, n), 1, axis=0))


def _no_masks(patch: pytest.MonkeyPatch) -> None:
    """The last token in the places of the masks."""
    place = BlockDraft._place
    patch.setattr(BlockDraft, "_place", lambda self, tokens: place(self, [tokens[0]] * len(tokens)))


@pytest.mark.parametrize("broken", [_rejected_stay, _rows_of_the_word_before, _no_masks])
def test_teeth_a_draft_out_of_step_is_noticed(tiny_models, monkeypatch, broken):
    with three(tiny_models, "jitter", "dflash-loud") as (_, tried, fresh):
        prompt = prompt_of(0, 40) * 2
        with monkeypatch.context() as patch:
            broken(patch)
            got = watched(tried, spec_for("dflash-loud"), prompt, 50)
        assert worst(fresh, prompt, got) > 1000 * ROUNDING


def test_teeth_llama_cpp_notices_a_block_that_was_not_given_up(tiny_models, monkeypatch):
    do = BlockDraft._pass

    def passing(self, batch, cell, count):
        self._cells = min(self._cells, cell)
        do(self, batch, cell, count)

    monkeypatch.setattr(BlockDraft, "_pass", passing)
    with (
        begin(tiny_models, "clock", "dflash-draft") as session,
        pytest.raises(EngineError, match="inconsistent"),
    ):
        run(session, spec_for("dflash-draft"), prompt_of(0), 50)
