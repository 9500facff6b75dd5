"""Tie or bug: the written criterion on scripted rows, and on a real model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_bench import EOG, GOOD, FakeSession, arm, plan
from hypothesis import given
from hypothesis import strategies as st

from specctl.bench.identity import LAW, SAME, Identity, check, compare, first_difference
from specctl.bench.report import summarise
from specctl.bench.run import PLAIN, BenchPlan, Pass, Run, RunDone, measure
from specctl.bench.workloads import Prompt
from specctl.errors import EngineError
from specctl.metrics import Totals
from specctl.sampling import Stream, uniform
from specctl.settings import DraftSettings, EngineSettings, Sampling, SpecSettings

GREEDY = Sampling()
PLAIN_TEXT, ARM_TEXT = (5, 6, 7, 8, 9, 5, 6), (5, 6, 7, 8, 4, 4, 4)


def run(
    name: str, tokens: tuple[int, ...], passes: tuple[Pass, ...], finish: str = "length"
) -> Run:
    return Run(
        prompt=Prompt("chat", "p", "text"),
        arm=name,
        repeat=0,
        totals=Totals(),
        ttft=0.0,
        tokens=tokens,
        prompt_tokens=(1, 2, 3),
        prompt_seconds=0.0,
        passes=passes,
        undrafted=(),
        single_seconds=0.0,
        finish=finish,
    )


def plain(tokens: tuple[int, ...] = PLAIN_TEXT, finish: str = "length") -> Run:
    return run(PLAIN, tokens, tuple(Pass((), 1) for _ in tokens), finish)


def drafted(tokens: tuple[int, ...] = ARM_TEXT, finish: str = "length") -> Run:
    """Three cycles: two tokens, then 7 8 4 of the draft 7 8 9, then one more."""
    return run("ngram-simple", tokens, (Pass((5, 0), 2), Pass((7, 8, 9), 3), Pass((), 2)), finish)


def logits(best: int, margin: float, base: float = 1.0, size: int = 20) -> list[float]:
    """A row whose best is `best`, by `margin` over the tokens 4 and 9."""
    row = [0.0] * size
    row[4] = row[9] = base
    row[best] = base + margin
    return row


def judged(single: Sequence[float], batched: Sequence[float], **changes: Any) -> Identity:
    session = FakeSession(rows=lambda tokens, batch: single if batch == 1 else batched)
    return compare(
        changes.get("plain", plain()),
        changes.get("arm", drafted()),
        changes.get("sampling", GREEDY),
        session,
        session.model.is_eog,
    )


def test_equal_texts_are_the_same() -> None:
    assert judged([], [], arm=drafted(PLAIN_TEXT)) is SAME


def test_near_tie_is_a_tie() -> None:
    found = judged(logits(9, 0.01), logits(4, 0.01))
    assert found.status == "tie"
    assert (found.index, found.plain_token, found.arm_token) == (4, 9, 4)
    assert found.gap == pytest.approx(0.01, abs=1e-6)
    assert found.delta == pytest.approx(0.01, abs=1e-6)


@pytest.mark.parametrize(
    ("single", "batched", "why"),
    [
        (logits(4, 0.01), logits(4, 0.01), "single steps do not give plain's token"),
        (logits(9, 0.01), logits(9, 0.01), "verify batch does not give the arm's token"),
        (logits(7, 0.01), logits(4, 0.01), "single steps do not give plain's token"),
    ],
)
def test_everything_else_is_a_bug(single: Any, batched: Any, why: str) -> None:
    found = judged(single, batched)
    assert found.status == "bug"
    assert why in found.why


@pytest.mark.parametrize(
    ("rounding", "status", "why"),
    [
        (0.0, "bug", "Δ 0.3 is above 0.25; without drafts rounding makes up to 0 here"),
        (0.15, "bug", "Δ 0.3 is above 0.25; without drafts rounding makes up to 0.15 here"),
        (0.21, "tie", "gap 0.3, Δ 0.3; without drafts rounding makes up to 0.21 here"),
    ],
)
def test_a_large_difference_is_a_tie_only_where_rounding_alone_is_as_large(
    rounding: float, status: str, why: str
) -> None:
    """A pass of the arm has `extra` or `passes`; the samples of plain text have neither."""
    session = FakeSession(rows=lambda tokens, batch: logits(9 if batch == 1 else 4, 0.30))
    session.rounding = rounding
    found = compare(plain(), drafted(), GREEDY, session, session.model.is_eog)
    assert (found.status, found.why) == (status, why)
    assert found.rounding == pytest.approx(rounding, abs=1e-6)


def test_rows_are_decoded_with_the_pass_that_decided_the_token() -> None:
    session = FakeSession(rows=lambda tokens, batch: logits(9 if batch == 1 else 4, 0.01))
    compare(plain(), drafted(), GREEDY, session, session.model.is_eog)
    prefix = (1, 2, 3, 5, 6, 7, 8)
    assert session.replays == [
        (prefix, 2, 1, (), ()),  # plain: single steps after the prompt
        # token 4 was decided by the second pass, in the row after 7 8: three rows, and 9 ahead
        (prefix, 2, 3, (9,), ()),
        (prefix, 2, 3, (9,), ((2, 3),)),
    ]


def test_the_arms_own_passes_may_show_the_tie() -> None:
    """Where only the KV cache's own rounding tips the scale, single steps before do not show it."""

    class Session(FakeSession):
        def replay(
            self,
            tokens: Sequence[int],
            prompt: int,
            batch: int = 1,
            extra: Sequence[int] = (),
            passes: Sequence[tuple[int, int]] = (),
        ) -> Any:
            self.rows = lambda *_: logits(4 if passes else 9, 0.01)
            return super().replay(tokens, prompt, batch, extra, passes)

    session = Session()
    assert compare(plain(), drafted(), GREEDY, session, session.model.is_eog).status == "tie"


def test_an_end_of_generation_can_be_a_tie_too() -> None:
    ended = plain(PLAIN_TEXT[:4], finish="eog")
    stops, goes_on = logits(4, 0.0, size=1000), logits(4, 0.01, size=1000)
    stops[EOG], goes_on[EOG] = 1.01, 1.0
    found = judged(stops, goes_on, plain=ended)
    assert found.status == "tie"
    assert (found.plain_token, found.arm_token) == (None, 4)
    assert judged(logits(9, 0.01), logits(4, 0.01), plain=ended).status == "bug"


def test_the_same_tokens_with_another_end_are_a_bug() -> None:
    found = judged([], [], arm=drafted(PLAIN_TEXT, finish="stop"))
    assert found.status == "bug"
    assert "ended stop, plain length" in found.why


def test_what_cannot_be_decoded_again_is_a_bug() -> None:
    def broken(tokens: Sequence[int], batch: int) -> Any:
        raise EngineError("no memory")

    session = FakeSession(rows=broken)
    found = compare(plain(), drafted(), GREEDY, session, session.model.is_eog)
    assert found.status == "bug"
    assert "no memory" in found.why


def test_at_a_temperature_the_draw_decides_not_the_gap() -> None:
    """Token 4 comes before 9: a draw below p(4) gives 4. Rounding moves p(4) over the draw."""
    sampling = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    number = uniform(sampling.seed, 7, Stream.TARGET)  # 7 tokens stand before this one
    border = math.log(number / (1 - number))

    def row(shift: float) -> list[float]:
        out = [-50.0] * 20
        out[4], out[9] = border + shift, 0.0
        return out

    assert abs(border) > 0.25  # a gap that greedy decoding would call a bug
    assert judged(row(-0.05), row(0.05), sampling=sampling).status == "tie"
    assert judged(row(-0.05), row(0.05)).status == "bug"
    assert judged(row(-0.2), row(0.2), sampling=sampling).status == "bug"  # Δ 0.4
    assert judged(row(0.05), row(0.05), sampling=sampling).status == "bug"  # plain would say 4


def test_sampled_drafts_are_equal_in_law_only() -> None:
    law_arm = dataclasses.replace(
        arm("draft-simple"),
        spec=SpecSettings(types=("draft-simple",), draft=DraftSettings(sampling="sampled")),
    )
    texts = {("none",): (1, 2, 3), ("draft-simple",): (1, 2, 4)}
    for sampling, status in ((Sampling(temperature=0.8), "law"), (Sampling(), "bug")):
        session = FakeSession(
            texts=lambda prompt, types: texts[types], rows=lambda tokens, batch: [0.0] * 20
        )
        what = plan(law_arm, sampling=sampling, prompts=1, repeats=1)
        runs = [step.run for step in measure(session, what) if isinstance(step, RunDone)]
        found = check(what, runs, session, session.model.is_eog)
        assert [identity.status for identity in found.values()] == [status]
    assert LAW.status == "law"


def test_bugs_fail_strict_and_ties_do_not() -> None:
    def texts(prompt: tuple[int, ...], types: tuple[str, ...]) -> tuple[int, ...]:
        return (5, 6, 9) if types == ("none",) else (5, 6, 4)

    for margin, status in ((0.01, "tie"), (0.3, "bug")):
        session = FakeSession(
            {("ngram-simple",): GOOD},
            texts=texts,
            rows=lambda tokens, batch, m=margin: logits(9 if batch == 1 else 4, m),
        )
        what = plan(repeats=2)
        runs = [step.run for step in measure(session, what) if isinstance(step, RunDone)]
        found = check(what, runs, session, session.model.is_eog)
        assert {identity.status for identity in found.values()} == {status}
        # A large Δ asks for the rounding without drafts: six shapes and the arm's own, four rows.
        each = 3 if status == "tie" else 3 + 7
        assert len(session.replays) == each * 2  # once per prompt, not once per repeat
        report = summarise(what, runs, found)
        assert bool(report.failures) == (status == "bug")
        row = report.totals[0].identity
        assert (row.ties, row.bugs) == ((4, 0) if status == "tie" else (0, 4))


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 3), max_size=8))
def test_first_difference(left: list[int], right: list[int]) -> None:
    index = first_difference(left, right)
    if index is None:
        assert left == right
    else:
        assert left[:index] == right[:index]
        assert left[index : index + 1] != right[index : index + 1]


@pytest.mark.native
def test_a_real_session_replays_what_it_generated(tiny_models: Any) -> None:
    """On a model whose every token depends on the whole context: both replays give the token."""
    from specctl.engine.session import open_session

    path: Path = tiny_models["jitter"]
    what = BenchPlan(
        model="jitter",
        draft=None,
        prompts=(Prompt("chat", "p", "amber anchor apple arrow amber anchor apple arrow amber"),),
        arms=(arm("ngram-simple", k=4),),
        settings=EngineSettings(n_ctx=512, threads=1),
        sampling=GREEDY,
        max_tokens=48,
        repeats=1,
    )
    with open_session(path, None, [a.spec for a in what.all_arms], what.settings) as session:
        runs = [step.run for step in measure(session, what) if isinstance(step, RunDone)]
        found = check(what, runs, session, session.model.is_eog)
        assert [identity.status for identity in found.values()] == ["same"]
        base = next(one for one in runs if one.arm == PLAIN)
        wrong = dataclasses.replace(
            next(one for one in runs if one.arm != PLAIN),
            tokens=(*base.tokens[:20], base.tokens[20] ^ 1, *base.tokens[21:]),
        )
        broken = compare(base, wrong, GREEDY, session, session.model.is_eog)
        assert broken.status == "bug"
        assert broken.index == 20
        assert "verify batch does not give" in broken.why
