"""The thread that conducts: drawn between the runs, stopped from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bench_stage import make_worker, plan, stage
from fake_bench import GOOD, FakeSession

from specctl.bench.run import RunDone
from specctl.errors import UsageError
from specctl.settings import Request, SpecSettings
from specctl.tui import bench_worker
from specctl.tui.bench_state import Failed
from specctl.tui.bench_worker import Pulse, Stop, Watched


def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


def test_the_next_run_waits_for_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_worker, "DRAWING", 60.0)
    session = FakeSession({("ngram-simple",): GOOD})
    worker = make_worker(tmp_path, session, plan(repeats=1))
    told = threading.Semaphore(0)
    worker.start(told.release)
    for step in range(3):  # Opened, Calibration, the first run
        assert told.acquire(timeout=5)
        if step < 2:
            worker.drawn()
    time.sleep(0.1)
    generations = session.calls.count("reset")
    assert generations == 3 + 1  # the warm-up and one run: the second has not begun
    assert isinstance(worker.take()[-1], RunDone)
    worker.drawn()
    assert told.acquire(timeout=5)
    assert session.calls.count("reset") == 5
    worker.unseen()
    assert worker.join(5)
    assert worker.outcome is not None


def test_a_screen_that_hangs_does_not_hold_up_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_worker, "DRAWING", 0.001)
    worker = make_worker(tmp_path, FakeSession({("ngram-simple",): GOOD}), plan(repeats=1))
    worker.start(lambda: None)
    assert worker.join(10)
    assert worker.outcome is not None


@dataclass
class Flag:
    """`Session.cancel`, keeping account."""

    said: list[str] = field(default_factory=list)

    def set(self) -> None:
        self.said.append("set")

    def clear(self) -> None:
        self.said.append("clear")


def test_stop_keeps_what_every_arm_has_done(tmp_path: Path) -> None:
    session = stage()
    session.cancel = Flag()  # type: ignore[attr-defined]
    worker = make_worker(tmp_path, session, plan(repeats=1))
    runs: list[RunDone] = []
    worker.start(lambda: worker.drawn())
    session.go(3 + 5)  # the warm-up, two prompts and plain's half of the third
    until(lambda: session.calls.count("reset") == 9)  # a run is under way
    until(lambda: worker.pulse.tokens == 0)
    worker.stop.ask()
    session.go(100)
    assert worker.join(5)
    runs += [step for step in worker.take() if isinstance(step, RunDone)]
    assert len(runs) == 5
    assert worker.outcome is not None
    assert worker.outcome.interrupted
    assert len(worker.outcome.runs) == 4
    assert session.calls[-1] == "closed"
    assert session.cancel.said == ["set", "clear"]  # type: ignore[attr-defined]  # down for replays


def test_stop_with_nothing_complete_is_an_interruption(tmp_path: Path) -> None:
    session = stage()
    worker = make_worker(tmp_path, session, plan())
    worker.start(worker.drawn)
    worker.stop.ask()
    session.go(100)
    assert worker.join(5)
    assert isinstance(worker.error, KeyboardInterrupt)
    assert worker.outcome is None
    assert isinstance(worker.take()[-1], Failed)


@pytest.mark.parametrize("given_up", [False, True])
def test_the_check_goes_on_after_a_stop_unless_given_up(tmp_path: Path, given_up: bool) -> None:
    session = FakeSession({("ngram-simple",): GOOD})
    session.texts = lambda prompt, types: tuple(range(12)) if types == ("none",) else (0,) * 12
    worker = make_worker(tmp_path, session, plan(repeats=1))

    def rows(tokens: object, batch: int) -> list[float]:
        if given_up:
            worker.stop.give_up()
        else:
            worker.stop.ask()
        return [0.0] * 20

    session.rows = rows
    worker.start(worker.drawn)
    assert worker.join(5)
    assert worker.error is None
    assert worker.outcome is not None
    assert worker.outcome.interrupted == given_up
    found = worker.outcome.report
    assert (len(found.bugs), found.totals[0].identity.differs) == ((0, 8) if given_up else (8, 0))


def test_an_error_is_kept_for_the_command(tmp_path: Path) -> None:
    worker = make_worker(tmp_path, FakeSession(), plan(max_tokens=5000))
    worker.start(worker.drawn)
    assert worker.join(5)
    assert isinstance(worker.error, UsageError)
    assert "--ctx" in (worker.error.hint or "")


def test_the_pulse_counts_the_run_that_is_measured(tmp_path: Path) -> None:
    session, pulse = FakeSession({("ngram-simple",): GOOD}), Pulse()
    watched = Watched(session, Stop(), pulse)
    session.use(SpecSettings(types=("ngram-simple",)))
    for _ in range(2):  # each run counts anew
        records = list(watched.generate(Request((1, 2), max_tokens=12)))
        assert len(records) == 4 + 3
        assert (pulse.tokens, pulse.cycles, pulse.drafted, pulse.accepted) == (12, 4, 12, 8)
    worker = make_worker(tmp_path, session, plan(repeats=1))
    worker.start(worker.drawn)
    assert worker.join(5)
    assert worker.pulse.tokens == 0  # between the runs nothing is under way
