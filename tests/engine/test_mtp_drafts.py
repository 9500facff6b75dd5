"""draft-mtp: accepted as designed, and in step with the target whatever happens to it.

The one rule behind all of it: in every cycle the drafts are those of heads that have just read the
whole text beside a target that has just read it too. What such heads draft is asked twice: of our
own in a session kept fresh, and of a transcription of llama.cpp's driver (mtp_driver.py).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

import pytest
import tiny
import tiny_chain
from lossless_kit import PLAIN, TIE_LOGIT, collect, differs, run, spec_of, start
from mtp_driver import Driver
from mtp_kit import CHAIN, MTP, PAIRS, begin, drafts_are_fresh, prompt_of, stale

from specctl.drafters.auto import Auto
from specctl.engine.session import open_session
from specctl.engine.steptime import CALIBRATION_STEPS, REFRESH_AFTER
from specctl.errors import UsageError
from specctl.events import Cycle
from specctl.llama.model import Model
from specctl.llama.trail import PENDING
from specctl.settings import EngineSettings, Request

pytestmark = pytest.mark.native


# ---------------------------------------------------------------- designed acceptance


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("n", [1, 2, 50, 301])
def test_a_head_of_known_law_counts_exactly_as_designed(tiny_models, k, n):
    prompt = prompt_of(k)
    designed = tiny.walk(prompt[-1], n, k, calibrate=CALIBRATION_STEPS, refresh=REFRESH_AFTER)
    spec = spec_of("draft-mtp", k=k)
    with begin(tiny_models, "mtp-clock-draft", spec) as session:
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


@pytest.mark.parametrize(
    ("target", "draft", "heads"),
    [
        ("mtp", None, 1),
        ("mtp-glm", None, 1),
        *((f"chain-{arch}", None, tiny_chain.HEADS) for arch in tiny_chain.ARCHES),
        ("gemma4", "assistant", 1),
    ],
)
@pytest.mark.parametrize("k", [1, 4])
def test_every_draft_is_that_of_llama_cpps_own_driver(tiny_models, target, draft, heads, k):
    files = tiny_models[target], tiny_models[draft] if draft else None
    spec = spec_of("draft-mtp", k=k)
    how = EngineSettings(n_ctx=512, threads=1)
    drafted = 0
    with (
        open_session(*files, (spec,), how) as session,
        Driver(*files, heads=heads, shared=draft is not None) as driver,
    ):
        for seed in range(3):
            prompt = prompt_of(seed) * 2
            got = run(session, spec, prompt, 60)
            whole = [*prompt, *got.tokens]
            for cycle in got.cycles:
                rows = driver.draft(whole[: cycle.n_past + 1], cycle.drafted)
                pairs = zip(rows, cycle.drafted, strict=True)
                assert all(row.max() - row[token] <= TIE_LOGIT for row, token in pairs)
                drafted += len(cycle.drafted)
    assert drafted > 60


# ---------------------------------------------------------------- drafts of a fresh head


@pytest.mark.parametrize("k", [1, 4, 9])
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
    name = "mtp-clock"
    model = tiny_models[name]
    auto = spec_of("auto", k=4)
    sources: Counter[str | None] = Counter()
    with (
        start(model) as plain,
        begin(tiny_models, name, auto) as tried,
        begin(tiny_models, name) as fresh,
    ):
        for seed in range(4):
            prompt = prompt_of(seed)
            got = run(tried, auto, prompt, 80)
            assert got.tokens == run(plain, PLAIN, prompt, 80).tokens
            assert stale(fresh, prompt, got, 0) == 0
            sources.update(cycle.source for cycle in got.cycles)
    assert sum(n for source, n in sources.items() if source and "draft-mtp" in source) >= 10


def test_and_where_a_checkpoint_takes_tokens_back(tiny_models, monkeypatch):
    monkeypatch.setattr(Model, "most_snapshots", 0)
    with (
        start(tiny_models["mtp"]) as plain,
        begin(tiny_models, "mtp") as tried,
        begin(tiny_models, "mtp") as fresh,
    ):
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


@pytest.mark.parametrize("pair", ["mtp-glm", "chain", "assistant"])
def test_and_with_batches_smaller_than_anything(tiny_models, pair):
    """Of prompts that are longer than what may wait to be read."""
    with (
        start(tiny_models[PAIRS[pair][0]]) as plain,
        begin(tiny_models, pair, n_batch=7, n_ubatch=3) as tried,
        begin(tiny_models, pair) as fresh,
    ):
        assert drafts_are_fresh((plain, tried, fresh), length=PENDING)


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
