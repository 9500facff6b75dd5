"""draft-mtp: lossless, accepted as designed, and in step with the target whatever happens to it.

The one rule behind all of it: in every cycle the drafts are those of heads that have just read the
whole text beside a target that has just read it too.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from lossless_kit import (
    PLAIN,
    TIE_LOGIT,
    Run,
    collect,
    differs,
    run,
    spec_of,
    start,
    transition_tail,
)

import specctl.llama.mtp
from specctl.drafters.auto import Auto
from specctl.engine.session import Session, open_session
from specctl.engine.steptime import CALIBRATION_STEPS, REFRESH_AFTER
from specctl.errors import ModelError, PairError, UsageError
from specctl.events import Cycle
from specctl.llama.api import library
from specctl.llama.heads import Heads
from specctl.llama.model import Model
from specctl.sampling import law
from specctl.settings import DraftSettings, EngineSettings, Request, Sampling, SpecSettings

pytestmark = pytest.mark.native

TARGETS = ("mtp", "mtp-glm")
MTP = spec_of("draft-mtp", k=4)
CHAIN = spec_of("ngram-suffix", "draft-mtp", n=1, k=4)
OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def prompt_of(seed: int, length: int = 24) -> list[int]:
    return [
        int(t) for t in np.random.default_rng(seed).integers(tiny.FIRST_WORD, tiny.SIZE, length)
    ]


def begin(model, *specs: SpecSettings, n_ctx: int = 1024, **how: int) -> Session:
    chosen = EngineSettings(n_ctx=n_ctx, threads=1, **how)
    return open_session(model, None, specs or (MTP,), chosen)


@pytest.fixture(params=TARGETS)
def trio(request, tiny_models) -> Iterator[tuple[Session, Session, Session]]:
    """One session that only decodes plainly, one in which things are tried, one kept fresh."""
    model = tiny_models[request.param]
    with start(model) as plain, begin(model) as tried, begin(model) as fresh:
        yield plain, tried, fresh


# ---------------------------------------------------------------- designed acceptance


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("n", [1, 2, 50, 301])
def test_a_head_of_known_law_counts_exactly_as_designed(tiny_models, k, n):
    prompt = prompt_of(k)
    designed = tiny.walk(prompt[-1], n, k, calibrate=CALIBRATION_STEPS, refresh=REFRESH_AFTER)
    spec = spec_of("draft-mtp", k=k)
    with begin(tiny_models["mtp-clock-draft"], spec) as session:
        got = run(session, spec, prompt, n)
    assert got.tokens == designed.tokens
    counted = (got.totals.cycles, got.totals.drafted, got.totals.accepted)
    assert counted == (designed.cycles, designed.drafted, designed.accepted)


def test_heads_in_a_file_of_their_own(tiny_models):
    prompt, spec = prompt_of(3), spec_of("draft-mtp", k=3)
    designed = tiny.walk(prompt[-1], 100, 3, calibrate=CALIBRATION_STEPS, refresh=REFRESH_AFTER)
    how = EngineSettings(n_ctx=512, threads=1)
    target, heads = tiny_models["hybrid-clock"], tiny_models["mtp-only"]
    with open_session(target, heads, (spec,), how) as session:
        got = run(session, spec, prompt, 100)
        assert got.tokens == designed.tokens
        assert (got.totals.drafted, got.totals.accepted) == (designed.drafted, designed.accepted)
        with pytest.raises(UsageError, match="needs a draft model"):
            session.use(spec_of("draft-simple"))
    auto = spec_of("auto", k=3)
    with open_session(target, heads, (auto,), how) as session:
        assert session._opened.uses_heads(auto)
        assert run(session, auto, prompt, 60).tokens == designed.tokens[:60]


def test_heads_of_another_model_are_refused(tiny_models):
    for target in ("jitter-qwen3", "mtp-glm"):
        with pytest.raises(PairError, match="are not for"):
            open_session(tiny_models[target], tiny_models["mtp-only"], (MTP,))
    with pytest.raises(ModelError, match="only MTP heads"):
        begin(tiny_models["mtp-only"])
    with pytest.raises(ModelError, match="only MTP heads"):
        begin(tiny_models["mtp-only"], PLAIN)


def right_share(tiny_models, k: int = 4) -> float:
    """Of a head that is right exactly where it is handed the hidden state of the token before."""
    with begin(tiny_models["mtp-clock"], spec_of("draft-mtp", k=k)) as session:
        got = run(session, spec_of("draft-mtp", k=k), prompt_of(k), 120)
    assert got.totals.drafted > 50
    return got.totals.acceptance_rate


@pytest.mark.parametrize("k", [1, 2, 4, 7])
def test_the_hidden_states_are_those_of_the_token_before(tiny_models, k):
    assert right_share(tiny_models, k) == 1.0


# ---------------------------------------------------------------- drafts of a fresh head


def stale(fresh: Session, prompt: Sequence[int], got: Run, least: int = 3) -> int:
    """In how many cycles the draft is not that of heads that have just read the text."""
    whole = [*prompt, *got.tokens]
    fresh._feed()
    heads = fresh._opened.heads
    assert heads is not None
    found = seen = 0
    for cycle in got.cycles:
        if cycle.source != "draft-mtp":
            continue
        fresh.context.clear()
        fresh.context.follow(whole[: cycle.n_past])
        unread = whole[len(heads.tokens) : cycle.n_past + 1]
        for token in cycle.drafted:
            row = heads.extend(unread)
            if row.max() - row[token] > TIE_LOGIT:
                found += 1
                break
            unread = [token]
        seen += 1
    assert seen >= least
    return found


def drafts_are_fresh(trio, spec: SpecSettings = MTP) -> bool:
    plain, tried, fresh = trio
    wrong = 0
    for seed in range(4):
        prompt = prompt_of(seed) * 2
        got = run(tried, spec, prompt, 80)
        assert differs(plain, prompt, run(plain, PLAIN, prompt, 80).tokens, got.tokens) == ""
        wrong += stale(fresh, prompt, got)
    return wrong == 0


@pytest.mark.parametrize("k", [1, 2, 4, 9])
def test_every_draft_is_a_fresh_heads(trio, k):
    assert drafts_are_fresh(trio, spec_of("draft-mtp", k=k))


@pytest.mark.parametrize("k", [2, 6])
def test_and_after_cycles_that_look_ups_drafted(trio, k):
    for types in (("ngram-suffix", "draft-mtp"), ("ngram-mod", "draft-mtp")):
        assert drafts_are_fresh(trio, spec_of(*types, n=3, k=k))


def test_and_under_auto(tiny_models, monkeypatch):
    """Where drafting costs nothing; what it really costs here, `auto` finds too much."""
    settle = Auto.settle

    def free(self, outcome):
        self._drafting = self._risk = 0.0
        settle(self, dataclasses.replace(outcome, seconds=outcome.t_1 or outcome.seconds))

    monkeypatch.setattr(Auto, "settle", free)
    monkeypatch.setattr("specctl.drafters.costs.CostCurve.ratio", lambda self, rows: 1.0)
    monkeypatch.setattr(
        "specctl.drafters.model_source.ModelSource.step_cost", lambda self, t_1: 0.0
    )
    model = tiny_models["mtp-clock"]
    auto = spec_of("auto", k=4)
    sources: Counter[str | None] = Counter()
    with start(model) as plain, begin(model, auto) as tried, begin(model) as fresh:
        for seed in range(4):
            prompt = prompt_of(seed)
            got = run(tried, auto, prompt, 80)
            assert got.tokens == run(plain, PLAIN, prompt, 80).tokens
            assert stale(fresh, prompt, got, 0) == 0
            sources.update(cycle.source for cycle in got.cycles)
    assert sum(n for source, n in sources.items() if source and "draft-mtp" in source) >= 10


def test_and_where_a_checkpoint_takes_tokens_back(tiny_models, monkeypatch):
    monkeypatch.setattr(Model, "most_snapshots", 0)
    model = tiny_models["mtp"]
    with start(model) as plain, begin(model) as tried, begin(model) as fresh:
        assert drafts_are_fresh((plain, tried, fresh))


def test_and_through_a_conversation_with_edits(trio):
    """Prompts that go on, differ early or late, end sooner, and are longer than any batch."""
    plain, tried, fresh = trio
    history = prompt_of(5)
    for turn in range(7):
        plain.reset()
        text = run(plain, PLAIN, history, 30).tokens
        got = run(tried, (MTP, CHAIN)[turn % 2], history, 30)
        assert differs(plain, history, text, got.tokens) == ""
        if turn % 2 == 0:
            assert stale(fresh, history, got) == 0
        whole = [*history, *text]
        history = [
            [*whole, *prompt_of(turn, 5)],
            [*whole[:3], tiny.word("flint"), *whole[4:]],
            [*whole[:-2], tiny.word("flint")],
            whole[: len(history) - 4],
            [*whole, *prompt_of(9, 600)],
            whole[:-1],
            whole[:20],
        ][turn]


def test_and_with_batches_smaller_than_anything(tiny_models):
    model = tiny_models["mtp-glm"]
    small = {"n_batch": 7, "n_ubatch": 3}
    with start(model) as plain, begin(model, **small) as tried, begin(model) as fresh:
        assert drafts_are_fresh((plain, tried, fresh))


def test_and_after_another_drafter_was_in_use(trio):
    """Plain decoding pays nothing for the heads; when they come back, they have read everything."""
    plain, tried, fresh = trio
    prompt = prompt_of(2) * 2
    text = run(plain, PLAIN, prompt, 80).tokens
    tried.use(MTP)
    heads = tried._opened.heads

    def switching() -> Iterator[object]:
        for record in tried.generate(Request(tuple(prompt), 80, ignore_eog=True)):
            yield record
            if isinstance(record, Cycle) and record.index in (10, 20):
                tried.use(PLAIN if record.index == 10 else MTP)
            if isinstance(record, Cycle) and 10 < record.index < 20:
                assert not record.drafted
                assert tried.context._tap is None

    got = collect(switching())
    assert tried.context._tap is heads
    assert differs(plain, prompt, text, got.tokens) == ""
    assert stale(fresh, prompt, got) == 0


# ---------------------------------------------------------------- lossless


def test_any_prompt_any_length(trio):
    plain, tried, _ = trio

    @settings(max_examples=25)
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


def test_up_to_the_last_token_of_the_context(tiny_models):
    prompt = prompt_of(1)
    with begin(tiny_models["mtp-clock-draft"], n_ctx=256) as session:
        plain = run(session, PLAIN, prompt, None)
        got = run(session, MTP, prompt, None)
        assert plain.finished.reason == got.finished.reason == "context"
        assert plain.tokens == got.tokens
        assert len(prompt) + len(plain.tokens) == session.n_ctx + 1


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
    with begin(tiny_models["mtp-clock-draft"], spec, n_ctx=256) as session:
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


# ---------------------------------------------------------------- refused with the reason


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hybrid", "has no MTP heads"),
        ("clock", "has no MTP heads"),
        ("mtp-no-tensors", "their tensors were left out"),
        ("mtp-no-key", "does not declare them"),
        ("mtp-two", "2 MTP heads in a chain"),
        ("mtp-elsewhere", "no MTP heads of llama"),
    ],
)
def test_heads_that_cannot_draft_are_refused(tiny_models, name, said):
    for spec in (MTP, CHAIN):
        with pytest.raises(UsageError, match=said):
            begin(tiny_models[name], spec)


def test_a_build_without_the_functions_is_told(tiny_models, monkeypatch):
    monkeypatch.setattr(specctl.llama.mtp, "nextn", lambda: None)
    with pytest.raises(UsageError, match="does not give out hidden states"):
        begin(tiny_models["mtp"])
    with begin(tiny_models["mtp"], spec_of("auto")) as session:  # which does without
        assert run(session, spec_of("auto"), prompt_of(1), 20).tokens


def test_auto_does_without_heads_that_do_not_fit(tiny_models, monkeypatch):
    def failing(*_: object, **__: object) -> None:
        raise ModelError("no room")

    monkeypatch.setattr("specctl.engine.heads.Heads", failing)
    with begin(tiny_models["mtp"], spec_of("auto")) as session:
        assert any("without the MTP heads: no room" in note for note in session.notes)
        assert run(session, spec_of("auto"), prompt_of(1), 20).tokens
    with pytest.raises(ModelError, match="no room"):
        begin(tiny_models["mtp"])


def test_heads_that_were_not_loaded_are_told(tiny_models):
    with begin(tiny_models["mtp"], PLAIN) as session:
        with pytest.raises(UsageError, match="loaded without its MTP heads"):
            session.use(MTP)
        assert run(session, PLAIN, prompt_of(1), 20).tokens


def test_files_that_cannot_draft_still_run_plainly(tiny_models):
    for name in ("mtp", "mtp-glm"):
        with begin(tiny_models[name], PLAIN) as session:
            assert run(session, PLAIN, prompt_of(1), 20).tokens


# ---------------------------------------------------------------- teeth


def test_teeth_hidden_states_of_another_token(tiny_models, monkeypatch):
    before, last = Heads._before, [np.zeros(tiny.EMBD, np.float32)]

    def late(self, at, count):
        states = before(self, at, count).copy()
        shifted = np.concatenate([last[0][None], states[:-1]])
        last[0] = states[-1]
        return shifted

    monkeypatch.setattr(Heads, "_before", late)
    assert right_share(tiny_models) < 0.9


def test_teeth_not_every_row_is_an_output(tiny_models, monkeypatch):
    """The state is then another row's: lossless, and worse."""

    def last_only(self, count):
        self._last = self._view(self._get_logits(self.handle), count, self.n_vocab)[-1]
        self._chain[:] = self._view(self._extra.rows(self.handle), count, self._width)[0]

    monkeypatch.setattr(Heads, "_keep", last_only)
    assert right_share(tiny_models) < 0.9


def broken(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    def no_states(patch: pytest.MonkeyPatch) -> None:
        before = Heads._before
        patch.setattr(
            Heads, "_before", lambda self, at, count: np.zeros_like(before(self, at, count))
        )

    def kept_drafts(patch: pytest.MonkeyPatch) -> None:
        """What it read while drafting is taken for read with the target."""

        def keeping(self, length):
            self._true = min(len(self.tokens), length)
            del self.tokens[self._true :]

        patch.setattr(Heads, "cut", keeping)
        patch.setattr(Heads, "taken_back", lambda self, length, common: None)

    def stale_cells(patch: pytest.MonkeyPatch) -> None:
        """Rejected positions stay in the native memory."""
        decode = Heads._decode

        def decoding(self, tokens, states, batch):
            self._cells = min(self._cells, len(self.tokens))
            decode(self, tokens, states, batch)

        patch.setattr(Heads, "_decode", decoding)

    return {"no states": no_states, "kept drafts": kept_drafts, "stale cells": stale_cells}[name]


@pytest.mark.parametrize("name", ["no states", "kept drafts", "stale cells"])
def test_teeth_heads_out_of_step_are_noticed(trio, monkeypatch, name):
    _, tried, fresh = trio
    wrong = 0
    for seed in range(4):
        prompt = prompt_of(seed)
        tried.reset()
        fresh.reset()
        with monkeypatch.context() as patch:
            broken(name)(patch)
            try:
                got = run(tried, MTP, prompt, 60)
            except Exception:  # also noticed
                wrong += 1
                tried._opened.heads.clear()
                continue
        wrong += stale(fresh, prompt, got) > 0
    assert wrong >= 3
