"""Targets and drafts with a recurrent state: nothing that was taken back may leave a trace in it.

Three ways of taking back are walked: snapshots (`hybrid`), and a checkpoint with reading again, on
a hybrid (the same model, its snapshots denied) and on a state alone (`recurrent`). The ablations
are the ways that llama.cpp itself does not refuse.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pytest
import tiny
from lossless_kit import (
    K_MAX,
    PLAIN,
    Run,
    collect,
    differs,
    run,
    spec_of,
    start,
    transition_tail,
)

from specctl.drafters.base import Draft, Needs
from specctl.engine.session import Session, open_session
from specctl.events import Cycle, Record
from specctl.llama import rollback
from specctl.llama.api import library
from specctl.llama.context import Context
from specctl.llama.model import Model
from specctl.sampling import law
from specctl.settings import (
    DraftSettings,
    EngineSettings,
    NgramSettings,
    Request,
    Sampling,
    SpecSettings,
)

pytestmark = pytest.mark.native

WAYS = ("snapshots", "checkpoint", "recurrent")
LOOKUPS = (
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
    "ngram-suffix",
)


def prompt_of(seed: int, length: int = 24) -> list[int]:
    return [
        int(t) for t in np.random.default_rng(seed).integers(tiny.FIRST_WORD, tiny.SIZE, length)
    ]


def open_way(tiny_models, way: str, patch: pytest.MonkeyPatch, **how: int) -> Session:
    """A session whose target takes tokens back in this way."""
    if way == "checkpoint":
        patch.setattr(Model, "most_snapshots", 0)
    session = start(tiny_models["recurrent" if way == "recurrent" else "hybrid"], **how)
    kind = rollback.Snapshots if way == "snapshots" else rollback.Checkpoint
    assert isinstance(session.context._rollback, kind)
    return session


@pytest.fixture(params=WAYS)
def pair(request, tiny_models, monkeypatch) -> Iterator[tuple[Session, Session]]:
    """One session that only ever decodes plainly, one in which everything is tried."""
    with (
        start(tiny_models["recurrent" if request.param == "recurrent" else "hybrid"]) as reference,
        open_way(tiny_models, request.param, monkeypatch) as tried,
    ):
        yield reference, tried


class Script:
    """Drafts the true continuation with wrong tokens in it, where `rng` says."""

    name = "script"
    needs = Needs(k_max=K_MAX)

    def __init__(self, truth: Sequence[int], k: int, seed: int, share: float = 0.25) -> None:
        rng = np.random.default_rng(seed)
        self.truth, self.k = list(truth), k
        self.wrong = rng.random(len(truth) + K_MAX) < share

    def begin(self, tokens, sampling):
        self.start = len(tokens)

    def propose(self, tokens, limit):
        at = len(tokens) - self.start
        drafted = [
            tiny.FIRST_WORD + (token + 7) % len(tiny.WORDS) if self.wrong[at + i] else token
            for i, token in enumerate(self.truth[at : at + min(self.k, limit)])
        ]
        return Draft(tuple(drafted), self.name)

    def observe(self, target_pass):
        pass

    settle = observe

    def close(self):
        pass


SCRIPTED = SpecSettings(types=("ngram-simple",), k=K_MAX, min_accept=0.001)  # a key of its own


def scripted(session: Session, script: Script, prompt: Sequence[int], n: int) -> Run:
    session._drafters[SCRIPTED] = script
    return run(session, SCRIPTED, prompt, n)


# ---------------------------------------------------------------- identity


@pytest.mark.parametrize("name", [*LOOKUPS, "auto"])
def test_every_look_up_changes_nothing(pair, name):
    reference, tried = pair
    drafted = 0
    for seed, k in enumerate((1, 3, 9)):
        prompt = prompt_of(seed) * 2
        plain = run(reference, PLAIN, prompt, 60).tokens
        got = run(tried, spec_of(name, n=1, k=k), prompt, 60)
        assert differs(reference, prompt, plain, got.tokens) == ""
        drafted += got.totals.drafted
    assert drafted or name == "auto"


def mismatches(reference: Session, tried: Session) -> int:
    """Of six prompts, how many come out otherwise, with a script that is half right."""
    found = 0
    for seed in range(6):
        prompt = prompt_of(seed)
        plain = run(reference, PLAIN, prompt, 60).tokens
        tried.reset()
        got = scripted(tried, Script(plain, 1 + seed, seed), prompt, 60)
        found += differs(reference, prompt, plain, got.tokens) != ""
        if not found:
            assert 10 < got.totals.accepted < got.totals.drafted
    return found


def test_drafts_that_are_half_right_change_nothing(pair):
    assert mismatches(*pair) == 0


def test_a_conversation_with_edits_changes_nothing(pair):
    """Prompts that go on, that differ early, late, and that end sooner than what is held."""
    reference, tried = pair
    history = prompt_of(5)
    for turn in range(6):
        reference.reset()
        plain = run(reference, PLAIN, history, 30).tokens
        got = scripted(tried, Script(plain, 5, turn), history, 30)
        assert differs(reference, history, plain, got.tokens) == ""
        whole = [*history, *plain]
        history = [
            [*whole, *prompt_of(turn, 5)],
            [*whole[:3], tiny.word("flint"), *whole[4:]],
            [*whole[:-2], tiny.word("flint")],
            whole[: len(history) - 4],
            whole[:-1],
        ][turn % 5]


def test_up_to_the_last_token_of_the_context(tiny_models, pair, monkeypatch):
    reference, tried = pair
    prompt, room = prompt_of(1), tried.n_ctx
    plain = run(reference, PLAIN, prompt, None)
    got = scripted(tried, Script(plain.tokens, K_MAX, 3, share=0.1), prompt, None)
    assert plain.finished.reason == got.finished.reason == "context"
    assert differs(reference, prompt, plain.tokens, got.tokens) == ""
    assert len(prompt) + len(plain.tokens) == room + 1


def test_sampled_drafts_on_a_hybrid_follow_its_law(tiny_models):
    """Acceptance and residual over snapshots; the clock's law is known exactly."""
    spec = spec_of("draft-simple", k=4, draft=DraftSettings(n_max=4, sampling="sampled"))
    open_law = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    laws, pairs, accepted = {}, [], 0
    for token in range(tiny.SIZE):
        found = law(np.log(tiny.clock_target().law(token)).astype(np.float32), [], open_law)
        laws[token] = np.zeros(tiny.SIZE)
        laws[token][found.ids] = found.probs
    with start(tiny_models["hybrid-clock"], tiny_models["clock-draft"], n_ctx=256) as session:
        for seed in range(25):
            prompt = [tiny.FIRST_WORD + seed]
            got = run(session, spec, prompt, 200, dataclasses.replace(open_law, seed=seed))
            pairs += pairwise([*prompt, *got.tokens])
            accepted += got.totals.accepted
    assert accepted > 2000
    assert transition_tail(pairs, laws) > 1e-4


def test_one_seed_is_one_text(pair):
    reference, tried = pair
    sampling = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0, seed=3)
    prompt = prompt_of(2) * 2
    plain = run(reference, PLAIN, prompt, 60, sampling).tokens
    for name in ("ngram-simple", "ngram-suffix"):
        got = run(tried, spec_of(name, n=1, k=5), prompt, 60, sampling)
        assert differs(reference, prompt, plain, got.tokens, sampling) == ""


# ---------------------------------------------------------------- a recurrent draft


@pytest.mark.parametrize("target", ["hybrid", "jitter"])
def test_a_hybrid_drafts_as_if_it_had_read_the_text_afresh(tiny_models, target):
    with (
        start(tiny_models[target], tiny_models["hybrid-draft"]) as session,
        start(tiny_models["hybrid-draft"]) as fresh,
    ):
        accepted = wrong = 0
        for seed, k in enumerate((1, 3, 6)):
            prompt = prompt_of(seed)
            got = run(session, spec_of("ngram-suffix", "draft-simple", k=k), prompt, 60)
            whole = [*prompt, *got.tokens]
            for cycle in got.cycles:
                if cycle.source == "draft-simple":
                    before = whole[: cycle.n_past + 1]
                    drafted = run(fresh, PLAIN, before, len(cycle.drafted)).tokens
                    wrong += differs(fresh, before, drafted, cycle.drafted) != ""
                    accepted += cycle.accepted
        assert wrong == 0
        assert accepted > 20


def test_teeth_a_stale_copy_makes_a_draft_another(tiny_models, monkeypatch):
    save = rollback.Checkpoint.save

    def lazy(self, held):
        if self._copy is None:
            save(self, held)
        self._length = held

    monkeypatch.setattr(rollback.Checkpoint, "save", lazy)
    with pytest.raises(AssertionError):
        test_a_hybrid_drafts_as_if_it_had_read_the_text_afresh(tiny_models, "hybrid")


# ---------------------------------------------------------------- cancelled in the middle of a pass


@contextlib.contextmanager
def stopping(session: Session, node: int) -> Iterator[list[bool]]:
    """Once armed (`[True]`), the target's decode is aborted at its `node`-th graph node."""
    lib, armed, seen = library(), [False], [0]

    def poll(_: object) -> bool:
        seen[0] += armed[0]
        if seen[0] > node:
            session.cancel.set()
        return seen[0] > node

    callback = lib.ggml_abort_callback(poll)
    lib.llama_set_abort_callback(session.context.handle, callback, None)
    try:
        yield armed
    finally:
        session.cancel.attach(lib, session.context.handle)
        del callback


def arming(armed: list[bool], records: Iterator[Record]) -> Iterator[Record]:
    """After the seventh cycle."""
    for record in records:
        yield record
        armed[0] = isinstance(record, Cycle) and record.index >= 6


def cancelled_texts(reference: Session, tried: Session) -> list[str]:
    """What differs when a generation that was stopped inside a pass is gone on with."""
    found = []
    for seed in range(6):
        prompt = prompt_of(seed)
        plain = run(reference, PLAIN, prompt, 60).tokens
        tried.reset()
        tried._drafters[SCRIPTED] = Script(plain, 4, seed)
        tried.use(SCRIPTED)
        with stopping(tried, 5 + 7 * seed) as armed:
            first = collect(arming(armed, tried.generate(Request(tuple(prompt), 60))))
        assert first.finished.reason == "cancelled"
        assert 0 < len(first.tokens) < 50
        begun = [*prompt, *first.tokens]
        rest = run(tried, PLAIN, begun, 60 - len(first.tokens)).tokens
        found.append(differs(reference, prompt, plain, (*first.tokens, *rest)))
    return found


def test_stopped_inside_a_pass_then_gone_on_with(pair):
    assert cancelled_texts(*pair) == [""] * 6


def test_teeth_positions_after_an_abort_are_not_to_be_believed(pair, monkeypatch):
    def believing(self, held):
        rollback._remove(self._lib, self._memory, held)  # whatever it answers
        return held

    for kind in (rollback.Snapshots, rollback.Checkpoint):
        monkeypatch.setattr(kind, "interrupted", believing)
    assert sum(text != "" for text in cancelled_texts(*pair)) >= 3


# ---------------------------------------------------------------- teeth


@pytest.mark.parametrize("off_by", [1, -1])
def test_teeth_a_cut_in_the_wrong_place(pair, off_by):
    reference, tried = pair
    cut = tried.context.cut
    tried.context.cut = lambda length: cut(length + off_by)  # type: ignore[method-assign]
    assert mismatches(reference, tried) >= 5


def by_single_rows(context: Context) -> None:
    """Verifies in passes of one token: the snapshots of those before are gone."""
    verify = context.verify

    def verified(tokens):
        return np.concatenate([verify([token]).copy() for token in tokens])

    context.verify = verified  # type: ignore[method-assign]


def in_two(context: Context) -> None:
    """Verifies the last token and the draft in passes of their own."""
    verify = context.verify

    def verified(tokens):
        first = verify(tokens[:1]).copy()
        return np.concatenate([first, verify(tokens[1:])]) if len(tokens) > 1 else first

    context.verify = verified  # type: ignore[method-assign]


@pytest.mark.parametrize("passes", [by_single_rows, in_two])
def test_a_pass_that_snapshots_do_not_reach_is_read_again(tiny_models, monkeypatch, passes):
    with start(tiny_models["hybrid"]) as reference, start(tiny_models["hybrid"]) as tried:
        passes(tried.context)
        assert mismatches(reference, tried) == 0


@pytest.mark.parametrize("passes", [by_single_rows, in_two])
def test_teeth_a_snapshot_of_another_pass(tiny_models, monkeypatch, passes):
    """What llama.cpp grants: any number up to `n_rs_seq`, whatever the last pass was."""

    def trusting(self, count):
        self._reach = self._most

    monkeypatch.setattr(rollback.Snapshots, "decoded", trusting)
    with start(tiny_models["hybrid"]) as reference, start(tiny_models["hybrid"]) as tried:
        passes(tried.context)
        assert mismatches(reference, tried) >= 4


@pytest.mark.parametrize("model", ["hybrid", "recurrent"])
def test_teeth_a_checkpoint_without_reading_again(tiny_models, monkeypatch, model):
    monkeypatch.setattr(Model, "most_snapshots", 0)
    with start(tiny_models[model]) as reference, start(tiny_models[model]) as tried:
        read = tried.context._read

        def forgetful(tokens):
            if tokens and tried.context.tokens:  # of a cut: claims to have read
                tried.context.tokens.extend(tokens)
            else:
                read(tokens)

        tried.context._read = forgetful  # type: ignore[method-assign]
        assert mismatches(reference, tried) >= 4


@pytest.mark.parametrize("model", ["hybrid", "recurrent"])
def test_teeth_a_state_that_is_not_put_back(tiny_models, monkeypatch, model):
    monkeypatch.setattr(Model, "most_snapshots", 0)
    monkeypatch.setattr(rollback.Checkpoint, "_put_back", lambda self: self._length)
    with start(tiny_models[model]) as reference, start(tiny_models[model]) as tried:
        assert mismatches(reference, tried) >= 4


# ---------------------------------------------------------------- what snapshots cost bounds K


def test_memory_bounds_the_drafts_and_says_so(tiny_models, monkeypatch):
    monkeypatch.setattr(Model, "most_snapshots", 4)
    spec = SpecSettings(
        types=("ngram-simple", "draft-simple"),
        ngram_simple=NgramSettings(size_n=2, size_m=9),
        draft=DraftSettings(n_max=3),
    )
    settings = EngineSettings(n_ctx=512, threads=1)
    with open_session(
        tiny_models["hybrid"], tiny_models["hybrid-draft"], (spec,), settings
    ) as session:
        assert session.k_max == 4
        assert any("at most 4 tokens" in note for note in session.notes)
        got = run(session, spec, prompt_of(1) * 2, 80)
        assert max(len(c.drafted) for c in got.cycles if c.source == "ngram-simple") == 4
        assert max(len(c.drafted) for c in got.cycles if c.source == "draft-simple") == 3


def test_snapshots_are_one_for_each_token_that_may_be_taken_back(tiny_models):
    lib = library()
    with start(tiny_models["hybrid"]) as session:
        assert lib.llama_n_rs_seq(session.context.handle) == K_MAX == session.k_max
        assert session.model.most_snapshots > 1000  # of a few KiB each
        assert 5632 <= session.model.snapshot_bytes < 2 * 5632  # bytes of the state, by formula
    with open_session(tiny_models["hybrid"], settings=EngineSettings(threads=1)) as plain:
        assert lib.llama_n_rs_seq(plain.context.handle) == 0


def test_drafts_as_long_as_a_micro_batch(tiny_models):
    """llama.cpp aborts where a micro-batch is not longer than the snapshots are many."""
    settings = EngineSettings(n_ctx=512, n_batch=8, n_ubatch=4, threads=1)
    with (
        start(tiny_models["hybrid"]) as reference,
        open_session(tiny_models["hybrid"], None, (spec_of("ngram-simple"),), settings) as tried,
    ):
        tried.use(spec_of("ngram-simple", k=K_MAX))
        assert mismatches(reference, tried) == 0
