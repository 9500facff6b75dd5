"""draft-mtp with a Gemma 4 assistant: it drafts from the target's KV cache, and leaves it alone."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np
import pytest
import tiny
from lossless_kit import PLAIN, differs, run, spec_of, start
from mtp_kit import CHAIN, MTP, begin, noticed, prompt_of, stale

import specctl.llama.mtp
from specctl.drafters.heads_model import HeadsModel
from specctl.engine.session import Session, open_session
from specctl.engine.steptime import CALIBRATION_STEPS, REFRESH_AFTER
from specctl.errors import ContextFullError, ModelError, PairError, UsageError
from specctl.llama.api import library
from specctl.llama.assistant import Assistant
from specctl.llama.sharedkv import KvFacts, unfit
from specctl.settings import EngineSettings, ModelSettings, SpecSettings

pytestmark = pytest.mark.native


def clock(tiny_models, assistant: str, *specs: SpecSettings, **how: object) -> Session:
    """The Gemma 4 clock with an assistant."""
    chosen = EngineSettings(n_ctx=1024, threads=1, **how)  # type: ignore[arg-type]
    return open_session(
        tiny_models["gemma4-clock"], tiny_models[assistant], specs or (MTP,), chosen
    )


def assistant_of(session: Session) -> Assistant:
    heads = session._opened.heads
    assert isinstance(heads, Assistant)
    return heads


def positions(session: Session) -> int:
    """How many the target's native memory holds."""
    lib = library()
    memory = lib.llama_get_memory(session.context.handle)
    return lib.llama_memory_seq_pos_max(memory, 0) + 1


# ---------------------------------------------------------------- designed


@pytest.mark.parametrize(("k", "n"), [(1, 50), (2, 2), (3, 301), (8, 50)])
def test_an_assistant_of_known_law_counts_exactly_as_designed(tiny_models, k, n):
    prompt, spec = prompt_of(k), spec_of("draft-mtp", k=k)
    designed = tiny.walk(prompt[-1], n, k, calibrate=CALIBRATION_STEPS, refresh=REFRESH_AFTER)
    with clock(tiny_models, "assistant-draft", spec) as session:
        got = run(session, spec, prompt, n)
    assert got.tokens == designed.tokens
    counted = (got.totals.cycles, got.totals.drafted, got.totals.accepted)
    assert counted == (designed.cycles, designed.drafted, designed.accepted)


@pytest.mark.parametrize(
    "how",
    [
        {"flash_attn": "off"},
        {"target": ModelSettings(kv_type_k="q8_0", kv_type_v="q8_0")},
        {"draft": ModelSettings(kv_type_k="q8_0", kv_type_v="q8_0")},
        {"n_batch": 7, "n_ubatch": 3},
    ],
)
def test_and_however_the_cache_is_kept(tiny_models, how):
    prompt, spec = prompt_of(3), spec_of("draft-mtp", k=3)
    designed = tiny.walk(prompt[-1], 100, 3, calibrate=CALIBRATION_STEPS, refresh=REFRESH_AFTER)
    with clock(tiny_models, "assistant-draft", spec, **how) as session:
        got = run(session, spec, prompt, 100)
    assert got.tokens == designed.tokens
    assert (got.totals.drafted, got.totals.accepted) == (designed.drafted, designed.accepted)


def right_share(tiny_models, k: int = 4) -> float:
    """Of an assistant that is right exactly where it reads the state of the token before."""
    spec = spec_of("draft-mtp", k=k)
    with clock(tiny_models, "assistant-follow", spec) as session:
        got = run(session, spec, prompt_of(k), 120)
    assert got.totals.drafted > 50
    return got.totals.acceptance_rate


@pytest.mark.parametrize("k", [1, 2, 4, 7])
def test_the_hidden_states_are_those_of_the_token_before(tiny_models, k):
    assert right_share(tiny_models, k) == 1.0


def test_its_drafts_depend_on_all_that_the_targets_cache_holds(tiny_models):
    """One token far back is another: with the same hidden state it guesses otherwise."""
    with begin(tiny_models, "assistant") as session:
        session._feed()
        heads, text = assistant_of(session), prompt_of(1, 20)
        rows = []
        for first in (text[2], tiny.word("flint")):
            session.context.clear()
            session.context.follow([*text[:2], first, *text[3:-1]])
            heads._trail._rows[:] = tiny.AMP * np.eye(tiny.EMBD)[text[-2]]
            rows.append(heads.extend(text[-1:]).copy())
    assert np.abs(rows[0] - rows[1]).max() > 0.05


@pytest.mark.parametrize("types", [("ngram-suffix", "draft-mtp"), ("auto",)])
def test_chains_and_auto_draft_with_it(tiny_models, types):
    spec = spec_of(*types, n=1, k=4)
    with start(tiny_models["gemma4"]) as plain, begin(tiny_models, "assistant", spec) as tried:
        assert tried._opened.uses_heads(spec)
        assert not tried._opened.has_draft
        for seed in range(3):
            prompt = prompt_of(seed) * 2
            text = run(plain, PLAIN, prompt, 60).tokens
            assert differs(plain, prompt, text, run(tried, spec, prompt, 60).tokens) == ""


# ---------------------------------------------------------------- the target's memory is its own


def test_drafts_leave_nothing_in_the_targets_memory(tiny_models):
    with clock(tiny_models, "assistant-draft") as session:
        text = prompt_of(1)
        session._feed().follow(text[:-1])
        heads = assistant_of(session)
        small = HeadsModel(heads, MTP.draft, session.model.n_vocab)
        for _ in range(2):
            drafted = [t for (t, _, _), _ in zip(small.steps(text), range(6), strict=False)]
            assert drafted == tiny.clock_draft().greedy(text[-1], 6)
            assert positions(session) == len(session.context.tokens) == len(text) - 1
            heads.follow(text[:-1])
        with pytest.raises(ContextFullError):
            heads.extend([text[-1]] * session.n_ctx)


def test_to_clear_it_does_not_clear_the_target(tiny_models):
    with clock(tiny_models, "assistant-draft") as session:
        session._feed().follow(prompt_of(1))
        assistant_of(session).clear()
        assert positions(session) == 24


def test_it_is_opened_only_beside_an_empty_target(tiny_models):
    """Opening one empties the target's memory without a word: ours must be empty then too."""
    with begin(tiny_models, "assistant", PLAIN, MTP) as session:
        prompt = prompt_of(2)
        text = run(session, PLAIN, prompt, 40).tokens
        heads = assistant_of(session)
        heads.close()  # as if it had never been opened
        session.use(MTP)
        assert session._feed().tokens == []
        assert run(session, MTP, prompt, 40).tokens == text


def test_a_target_of_more_rows_gets_a_view_of_its_own(tiny_models):
    """A longer draft reopens the target's context; the old view would read freed memory."""
    with begin(tiny_models, "assistant", MTP) as session, begin(tiny_models, "assistant") as fresh:
        prompt, long = prompt_of(3) * 2, spec_of("draft-mtp", k=9)
        text = run(session, MTP, prompt, 50).tokens
        before, heads = session.context, assistant_of(session)
        assert any("reopened" in note for note in session.use(long))
        got = run(session, long, prompt, 50)
        assert session.context is not before
        assert heads._target is session.context
        assert differs(fresh, prompt, text, got.tokens) == ""
        assert stale(fresh, prompt, got) == 0


def test_a_text_of_one_token_has_no_state_to_draft_from(tiny_models):
    with clock(tiny_models, "assistant-draft") as session:
        got = run(session, MTP, [tiny.word("flint")], 40)
        assert got.tokens == tuple(tiny.clock_target().greedy(tiny.word("flint"), 40))
        assert assistant_of(session).longest(1) > 0
        session.context.clear()
        assert assistant_of(session).longest(1) == 0


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("target", "draft", "said"),
    [
        ("gemma4-clock", "assistant-head", "read 1 KV head of 32, .* keeps 1 KV head of 64"),
        ("gemma4-clock", "assistant-heads", "read 2 KV heads of 32, .* keeps 1 KV head of 32"),
        ("gemma4-clock", "assistant-wide", "336 wide, the target's are 320 wide"),
        ("gemma4-clock", "assistant-token", "cannot draft for gemma4-clock.gguf: token"),
        ("gemma4-upside", "assistant-draft", "last two layers are not a sliding and a full"),
        ("jitter-swa", "assistant-draft", "the target is gemma3"),
        ("clock", "assistant-draft", "the target is llama"),
        ("mtp", "assistant-draft", "the target is qwen35"),
    ],
)
@pytest.mark.parametrize("spec", [MTP, CHAIN, spec_of("auto")])
def test_an_assistant_for_another_target_is_refused(tiny_models, target, draft, said, spec):
    with pytest.raises(PairError, match=said):
        open_session(tiny_models[target], tiny_models[draft], (spec,))


def test_an_assistant_is_no_target_and_no_small_model(tiny_models):
    assistant = tiny_models["assistant-draft"]
    with pytest.raises(ModelError, match="is a Gemma 4 assistant"):
        open_session(assistant)
    with pytest.raises(ModelError, match="is a Gemma 4 assistant"):
        open_session(tiny_models["gemma4-clock"], assistant, (spec_of("draft-simple"),))


def test_a_target_alone_names_what_it_needs(tiny_models):
    with pytest.raises(UsageError, match="its assistant, a file of its own") as caught:
        open_session(tiny_models["gemma4-clock"], None, (MTP,))
    assert "--draft" in str(caught.value)
    with pytest.raises(UsageError, match="does not declare them"):
        open_session(tiny_models["gemma4-clock"], tiny_models["assistant-no-key"], (MTP,))


def test_a_build_that_shares_no_memory_is_told(tiny_models, monkeypatch):
    monkeypatch.setattr(specctl.llama.mtp, "shares_context", lambda: False)
    with pytest.raises(UsageError, match="shares no KV cache"):
        clock(tiny_models, "assistant-draft")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"kv_heads": (1, 1, 1)}, ""),  # of its own header: the first layers are read as the last
        ({"kv_heads": (1, 1, 2)}, "its full layers read 2 KV heads of 64"),
        ({"kv_heads": (4, 1, 1)}, "its sliding layers read 4 KV heads of 32"),
        ({"full": (64, 32)}, r"64 \(keys\) and 32 \(values\)"),
        ({"sliding": (64, 64)}, "its sliding layers read 1 KV head of 64"),
        ({"width": 321}, "321 wide"),
        ({"slides": ()}, "its header does not say"),
    ],
)
def test_each_width_of_a_layer_is_compared(change, said):
    target = KvFacts("gemma4", 320, (4, 1, 1), (True, True, False), (64, 64), (32, 32))
    own = KvFacts("gemma4-assistant", 320, (1, 1, 1), (True, True, False), (64, 64), (32, 32))
    found = unfit(dataclasses.replace(own, **change), target)
    assert re.search(said, found) if said else not found


# ---------------------------------------------------------------- teeth


def test_teeth_the_state_of_another_token(tiny_models, monkeypatch):
    decoded = Assistant.decoded

    def late(self, count, stands):
        decoded(self, count, stands)
        rows = self._trail._rows
        rows[1 : self._trail.known] = rows[: max(0, self._trail.known - 1)].copy()

    monkeypatch.setattr(Assistant, "decoded", late)
    assert right_share(tiny_models) < 0.9


def broken(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    def no_chain(patch: pytest.MonkeyPatch) -> None:
        """Later tokens of a draft are read with the target's state again."""

        def keeping(self, count):
            self._last = self._view(self._get_logits(self.handle), count, self.n_vocab)[-1]
            self._chain[:] = self._trail.rows(self._true - 1, 1)[0]

        patch.setattr(Assistant, "_keep", keeping)

    def rejected_rows(patch: pytest.MonkeyPatch) -> None:
        """The state of a rejected token stands for that of the last one that stood."""

        def extending(self, tokens):
            if len(self.tokens) == self._true:
                trail = self._trail
                at = trail.known - 1
                trail._rows[at] = trail._rows[min(at + 1, len(trail._rows) - 1)]
            return extend(self, tokens)

        extend = Assistant.extend
        patch.setattr(Assistant, "extend", extending)

    return {"no chain": no_chain, "rejected rows": rejected_rows}[name]


@pytest.mark.parametrize("name", ["no chain", "rejected rows"])
def test_teeth_an_assistant_out_of_step_is_noticed(tiny_models, monkeypatch, name):
    with (
        begin(tiny_models, "assistant") as tried,
        begin(tiny_models, "assistant") as fresh,
    ):
        assert noticed(tried, fresh, broken(name), monkeypatch) >= 3


def test_teeth_a_view_opened_while_the_target_holds_a_text(tiny_models):
    with clock(tiny_models, "assistant-draft") as session:
        session._feed().follow(prompt_of(1))
        heads = assistant_of(session)
        heads.close()
        heads._open(session.context)
        assert positions(session) == 0
