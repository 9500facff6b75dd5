"""draft-mtp with heads in a chain: head i drafts token i + 1, from what those before it left."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import tiny
import tiny_chain
from lossless_kit import PLAIN, TIE_LOGIT, collect, differs, run, spec_of, start
from mtp_driver import Driver
from mtp_kit import begin, noticed, prompt_of, stale
from tiny_chain import ARCHES, HEADS

import specctl.llama.mtp
from specctl.drafters.heads_model import HeadsModel
from specctl.engine.session import Session, open_session
from specctl.engine.steptime import CALIBRATION_STEPS, REFRESH_AFTER
from specctl.errors import ContextFullError, ModelError, UsageError
from specctl.events import Cycle
from specctl.llama.api import library
from specctl.llama.chained import ChainedHeads
from specctl.llama.trail import PENDING
from specctl.settings import DraftSettings, EngineSettings, Request

pytestmark = pytest.mark.native

THREE = spec_of("draft-mtp", k=HEADS)


def heads_of(session: Session) -> ChainedHeads:
    heads = session._opened.heads
    assert isinstance(heads, ChainedHeads)
    return heads


# ---------------------------------------------------------------- designed


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(("k", "n"), [(1, 50), (2, 50), (3, 2), (3, 301), (7, 50)])
def test_each_heads_own_law_counts_exactly_as_designed(tiny_models, arch, k, n):
    """More tokens than heads are not drafted: llama.cpp ends there too."""
    prompt, spec = prompt_of(k), spec_of("draft-mtp", k=k)
    designed = tiny.walk(
        prompt[-1],
        n,
        k,
        draft=tiny_chain.LAWS,
        calibrate=CALIBRATION_STEPS,
        refresh=REFRESH_AFTER,
    )
    with begin(tiny_models, f"chain-{arch}-laws", spec) as session:
        got = run(session, spec, prompt, n)
        assert session.k_max == session.k_in_force == min(k, HEADS)
        assert any("one with each of the MTP heads" in note for note in session.notes) == (k > 3)
    assert got.tokens == designed.tokens
    counted = (got.totals.cycles, got.totals.drafted, got.totals.accepted)
    assert counted == (designed.cycles, designed.drafted, designed.accepted)


def test_heads_in_a_file_of_their_own(tiny_models):
    prompt = prompt_of(3)
    designed = tiny.walk(
        prompt[-1],
        100,
        HEADS,
        draft=tiny_chain.LAWS,
        calibrate=CALIBRATION_STEPS,
        refresh=REFRESH_AFTER,
    )
    files = tiny_models["chain-trunk"], tiny_models["chain-only"]
    with open_session(*files, (THREE,), EngineSettings(n_ctx=512, threads=1)) as session:
        got = run(session, THREE, prompt, 100)
    assert got.tokens == designed.tokens
    assert (got.totals.drafted, got.totals.accepted) == (designed.drafted, designed.accepted)


def right_share(tiny_models, arch: str = "hy_v3") -> float:
    """Of heads that are right exactly where they read the state that the one before left."""
    with begin(tiny_models, f"chain-{arch}-clock", THREE) as session:
        got = run(session, THREE, prompt_of(1), 120)
    assert got.totals.drafted > 50
    return got.totals.acceptance_rate


@pytest.mark.parametrize("arch", ARCHES)
def test_each_head_reads_the_state_that_the_one_before_left(tiny_models, arch):
    assert right_share(tiny_models, arch) == 1.0


# ---------------------------------------------------------------- heads that lag, looked-up starts


def test_heads_that_were_not_asked_for_long_read_what_they_missed(tiny_models):
    one = spec_of("draft-mtp", k=1)
    for arch in ARCHES:
        name, prompt = f"chain-{arch}", prompt_of(4) * 2
        with (
            start(tiny_models[name]) as plain,
            begin(tiny_models, name, one, THREE) as tried,
            begin(tiny_models, name, THREE) as fresh,
        ):
            text = run(plain, PLAIN, prompt, 200).tokens
            lags: list[int] = []

            def switching(tried=tried, lags=lags, prompt=prompt) -> Iterator[object]:
                tried.use(one)
                done = heads_of(tried)._done
                for record in tried.generate(Request(tuple(prompt), 200, ignore_eog=True)):
                    yield record
                    if isinstance(record, Cycle):
                        done = heads_of(tried)._done
                        lags.append(done[0] - done[-1])
                        if record.index == 60:
                            tried.use(THREE)

            got = collect(switching())
            assert differs(plain, prompt, text, got.tokens) == ""
            assert PENDING / 2 < max(lags) <= PENDING + 2
            assert stale(fresh, prompt, got) == 0


def test_after_looked_up_tokens_the_heads_that_are_left_go_on(tiny_models):
    """As `auto` asks them; what a look-up drafted stands for the first heads' tokens."""
    model, text = tiny_models["chain-hy_v3"], prompt_of(2) * 2
    found = [tiny.word("flint"), tiny.word("fern")]
    with begin(tiny_models, "chain-hy_v3", THREE) as session, Driver(model, None, heads=3) as truth:
        session._feed().follow(text[:-1])
        heads = heads_of(session)
        small = HeadsModel(heads, DraftSettings(n_max=9), session.model.n_vocab)
        for known, count in ((0, 3), (1, 2), (2, 1)):
            heads.cut(0)
            heads._gather()
            session.context.clear()
            session.context.follow(text[:-1])
            drafted = [token for token, _, _ in small.steps([*text, *found[:known]])]
            assert len(drafted) == count
            given = [*found[:known], *drafted]
            rows = truth.draft(text, given)
            for row, token in list(zip(rows, given, strict=True))[known:]:
                assert row.max() - row[token] <= TIE_LOGIT
        heads.cut(0)
        session.context.clear()
        session.context.follow(text[:-1])
        assert list(small.steps([*text, *found, found[0]])) == []
        with pytest.raises(ContextFullError, match="beyond the last MTP head"):
            heads.extend([*text, *found, found[0]])


def test_auto_drafts_with_a_chain(tiny_models):
    auto, name = spec_of("auto", k=8), "chain-hy_v3-clock"
    with start(tiny_models[name]) as plain, begin(tiny_models, name, auto) as tried:
        assert tried._opened.uses_heads(auto)
        for seed in range(3):
            prompt = prompt_of(seed)
            text = run(plain, PLAIN, prompt, 120).tokens
            assert run(tried, auto, prompt, 120).tokens == text


# ---------------------------------------------------------------- stopped in a later head's pass


@pytest.mark.parametrize("which", range(HEADS))
def test_stopped_in_the_pass_of_any_head_then_gone_on_with(tiny_models, monkeypatch, which):
    assert stopped_texts(tiny_models, which) == [""] * 3


def stopped_texts(tiny_models, which: int) -> list[str]:
    """What is wrong in texts that were stopped in a pass of head `which` and gone on with."""
    lib, name, found = library(), "chain-hy_v3", []
    with (
        start(tiny_models[name]) as plain,
        begin(tiny_models, name, THREE) as tried,
        begin(tiny_models, name, THREE) as fresh,
    ):
        heads = heads_of(tried)
        choose = heads._choose
        for seed in range(3):
            prompt = prompt_of(seed)
            text = run(plain, PLAIN, prompt, 60).tokens
            tried.reset()
            tried.use(THREE)
            records = tried.generate(Request(tuple(prompt), 60, ignore_eog=True))
            first = [next(records) for _ in range(8)]  # Started, PromptDone and six cycles

            def choosing(handle: object, head: int) -> None:
                if head == which:
                    tried.cancel.set()
                choose(handle, head)

            heads._choose = choosing
            callback = lib.ggml_abort_callback(lambda _: tried.cancel.is_set)
            lib.llama_set_abort_callback(heads.handle, callback, None)
            first += list(records)
            heads._choose = choose
            tried.cancel.attach(lib, heads.handle)
            stopped = collect(first)
            assert stopped.finished.reason == "cancelled"
            begun = [*prompt, *stopped.tokens]
            rest = run(tried, THREE, begun, 60 - len(stopped.tokens))
            wrong = differs(plain, prompt, text, (*stopped.tokens, *rest.tokens))
            found.append(wrong or "stale" * bool(stale(fresh, begun, rest)))
    return found


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mtp-two", "of qwen35 llama.cpp runs one"),
        ("chain-two-of-three", "holds the tensors of 2"),
        ("chain-mimo2-split", r"no tensor blk\.2\.attn_qkv\.weight"),
    ],
)
def test_chains_that_cannot_draft_are_refused(tiny_models, name, said):
    with pytest.raises(UsageError, match=said):
        begin(tiny_models, name)


def test_a_build_that_cannot_choose_a_head_is_told(tiny_models, monkeypatch):
    monkeypatch.setattr(specctl.llama.mtp, "nextn_layer", lambda: None)
    with pytest.raises(UsageError, match="cannot choose between 3 MTP heads"):
        begin(tiny_models, "chain-hy_v3")


def test_a_chain_alone_is_no_target(tiny_models):
    with pytest.raises(ModelError, match="only MTP heads"):
        begin(tiny_models, "chain-only", PLAIN)


# ---------------------------------------------------------------- teeth


def test_teeth_the_first_head_alone(tiny_models, monkeypatch):
    """Chained on itself, as a single head would be."""
    build = ChainedHeads.__init__

    def first_only(self, *args, **how):
        build(self, *args, **how)
        self._choose = lambda handle, head: None

    monkeypatch.setattr(ChainedHeads, "__init__", first_only)
    with pytest.raises(AssertionError):
        test_each_heads_own_law_counts_exactly_as_designed(tiny_models, "hy_v3", 3, 301)


def test_teeth_states_of_the_wrong_head(tiny_models, monkeypatch):
    draft = ChainedHeads._draft

    def mistaking(self, head, end):
        self._left[1:head] = self._left[0]
        draft(self, head, end)

    monkeypatch.setattr(ChainedHeads, "_draft", mistaking)
    assert right_share(tiny_models) < 0.9


def broken(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    def one_counter(patch: pytest.MonkeyPatch) -> None:
        """What one head has read is taken for read by all."""
        draft = ChainedHeads._draft

        def drafting(self, head, end):
            self._done = [max(self._done)] * self.heads
            draft(self, head, end)

        patch.setattr(ChainedHeads, "_draft", drafting)

    def newest_only(patch: pytest.MonkeyPatch) -> None:
        """The draft before a head's token is left as other heads read it."""
        draft = ChainedHeads._draft

        def drafting(self, head, end):
            if not head:
                draft(self, head, end)
                return
            if self._done[head] < end - 1:
                self._catch_up(head, self._text, self.tokens)
            self._cells = end - 1
            self._states[0] = self._left[head - 1]
            self._one(head, self.tokens[end - 1 : end], end - 1, self._all)
            self._done[head] = self._text + 1
            self._keep(1)
            self._left[head] = self._chain

        patch.setattr(ChainedHeads, "_draft", drafting)

    def kept_drafts(patch: pytest.MonkeyPatch) -> None:
        """What was read with the heads' own states is taken for read with the target's."""
        draft = ChainedHeads._draft

        def drafting(self, head, end):
            draft(self, head, end)
            self._done[head] = end

        patch.setattr(ChainedHeads, "_draft", drafting)
        patch.setattr(ChainedHeads, "taken_back", lambda self, length, common: None)

    return {"one counter": one_counter, "newest only": newest_only, "kept drafts": kept_drafts}[
        name
    ]


@pytest.mark.parametrize("name", ["one counter", "newest only", "kept drafts"])
def test_teeth_heads_out_of_step_are_noticed(tiny_models, monkeypatch, name):
    pair = "chain-hy_v3"
    with begin(tiny_models, pair, THREE) as tried, begin(tiny_models, pair, THREE) as fresh:
        assert noticed(tried, fresh, broken(name), monkeypatch) >= 3


def test_teeth_a_stopped_pass_leaves_all_heads_their_positions(tiny_models, monkeypatch):
    def careless(self, head, tokens, cell, batch):
        self._choose(self.handle, head)
        self._decode(tokens, cell, batch)

    monkeypatch.setattr(ChainedHeads, "_one", careless)
    assert any(stopped_texts(tiny_models, 1))
