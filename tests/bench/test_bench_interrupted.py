"""Ctrl-C in a benchmark loses nothing that every arm has done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_bench import FakeSession, arm, plan
from fake_served import FakeFleet
from fake_served import plan as served_plan

from specctl.bench.conduct import conduct, driven
from specctl.bench.results import Outcome
from specctl.bench.run import RunDone
from specctl.bench.served_conduct import Subject, conduct_served

WARM_UP = 3  # plain, the arm, plain


def interrupted_after(runs: int, tmp_path: Path, **changes: Any) -> Outcome:
    """The outcome when Ctrl-C comes in the run after so many."""
    model = tmp_path / "fake.gguf"
    model.write_bytes(b"GGUF")

    def pace(generation: int) -> float:
        if generation == WARM_UP + runs:
            raise KeyboardInterrupt
        return 1.0

    session = FakeSession(pace=pace)
    *_, last = conduct(plan(arm("ngram-simple"), **changes), model, None, lambda *_: session)
    assert isinstance(last, Outcome)
    assert session.calls[-1] == "closed"
    return last


def test_prompts_that_are_complete_are_reported(tmp_path: Path) -> None:
    outcome = interrupted_after(5, tmp_path, prompts=4, repeats=1)  # two prompts and a half
    assert outcome.interrupted
    assert [prompt.name for prompt in outcome.plan.prompts] == ["p0", "p1"]
    assert len(outcome.runs) == 4
    assert len(outcome.report.prompts) == 2


def test_repeats_that_are_complete_are_reported(tmp_path: Path) -> None:
    outcome = interrupted_after(11, tmp_path, prompts=2, repeats=3)  # the third repeat is not whole
    assert outcome.plan.repeats == 2
    assert len(outcome.runs) == 8


def test_nothing_complete_is_an_interruption(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted_after(1, tmp_path)


def test_while_texts_are_checked_only_the_check_is_given_up(tmp_path: Path) -> None:
    model = tmp_path / "fake.gguf"
    model.write_bytes(b"GGUF")

    def texts(_prompt: tuple[int, ...], types: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(range(100, 112)) if types == ("none",) else tuple(range(101, 113))

    def rows(*_: object) -> None:
        raise KeyboardInterrupt

    session = FakeSession(texts=texts, rows=rows)
    what = plan(arm("ngram-simple"), prompts=2, repeats=1)
    *_, outcome = conduct(what, model, None, lambda *_: session)
    assert isinstance(outcome, Outcome)
    assert outcome.interrupted
    assert outcome.report.totals[0].identity.differs == 2
    assert {one.index for one in outcome.identities.values()} == {0}
    assert len(outcome.runs) == 4


class Pressing:
    """Shows steps; Ctrl-C comes while it shows the run after so many."""

    def __init__(self, runs: int) -> None:
        self.left = runs

    def __call__(self, step: object) -> None:
        self.left -= isinstance(step, RunDone)
        if self.left < 0:
            self.left = 10**9
            raise KeyboardInterrupt


def test_while_a_run_is_shown_nothing_complete_is_lost(tmp_path: Path) -> None:
    model = tmp_path / "fake.gguf"
    model.write_bytes(b"GGUF")
    session = FakeSession()
    what = plan(arm("ngram-simple"), prompts=4, repeats=1)
    outcome = driven(conduct(what, model, None, lambda *_: session), Pressing(4))
    assert outcome.interrupted
    assert len(outcome.runs) == 4
    assert session.calls[-1] == "closed"


def test_nor_of_servers(tmp_path: Path) -> None:
    fleet = FakeFleet(started=False)
    steps = conduct_served(served_plan(4), (), fleet, Subject(Path("theirs"), None, 0))
    outcome = driven(steps, Pressing(5))
    assert outcome.interrupted
    assert len(outcome.runs) == 6
    assert fleet.log[-1].startswith("close")


def test_before_anything_is_complete_it_ends_all(tmp_path: Path) -> None:
    fleet = FakeFleet(started=False)
    steps = conduct_served(served_plan(4), (), fleet, Subject(Path("theirs"), None, 0))
    with pytest.raises(KeyboardInterrupt):
        driven(steps, Pressing(0))
    assert fleet.log[-1].startswith("close")
