"""The bench screen's state: a fold over the steps of real `conduct`, on a scripted session."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_stage import FAMILIES, plan
from fake_bench import GOOD, FakeSession

from specctl.bench.conduct import Checking, Opened, complete, conduct
from specctl.bench.report import summarise
from specctl.bench.results import Outcome
from specctl.bench.run import BenchPlan, Calibration, RunDone, order
from specctl.tui.bench_state import BenchLive, Failed, Place, accepted_per_cycle

COSTS = {("ngram-simple",): GOOD}


def steps(tmp_path: Path, what: BenchPlan, session: FakeSession | None = None) -> Iterator[Any]:
    model = tmp_path / "fake.gguf"
    model.write_bytes(b"GGUF")
    session = session or FakeSession(COSTS)
    return conduct(what, model, None, lambda *_: session)


def after(tmp_path: Path, what: BenchPlan, runs: int) -> BenchLive:
    """The state when so many runs are done."""
    live = BenchLive(what)
    for step in steps(tmp_path, what):
        live.apply(step)
        if len(live.runs) == runs:
            break
    return live


def test_phases_follow_the_steps(tmp_path: Path) -> None:
    what = plan()
    live = BenchLive(what)
    seen = [live.phase]
    for step in steps(tmp_path, what):
        live.apply(step)
        if live.phase != seen[-1]:
            seen.append(live.phase)
    assert seen == ["opening", "warming", "measuring", "checking", "done"]
    assert live.fraction == 1.0
    assert live.notes == ("a note",)
    live.apply(Failed(KeyboardInterrupt()))
    assert live.phase == "failed"


def test_the_running_task_is_the_run_that_comes_next(tmp_path: Path) -> None:
    what = plan("ngram-simple", "auto", each=3)
    live = BenchLive(what)
    expected: list[tuple[str, str, int]] = []
    done: list[tuple[str, str, int]] = []
    for step in steps(tmp_path, what):
        if isinstance(step, RunDone):
            done.append(step.run.key)
        live.apply(step)
        if live.running is not None:
            expected.append((live.running.prompt, live.running.arm, live.running.repeat))
    assert expected == done
    assert done == [(prompt.key, arm.name, repeat) for prompt, arm, repeat in order(what)]
    assert len(done) == 12 * 3 * 2


def test_a_cell_waits_until_every_arm_has_done_a_prompt(tmp_path: Path) -> None:
    place = Place("code-edit", "ngram-simple")
    one = after(tmp_path, plan(), 1).cell(place)
    assert one.row is None
    assert (one.done, one.asked, one.of_prompts, one.running) == (0, 4, 2, True)
    total = after(tmp_path, plan(), 1).cell(Place(None, "ngram-simple"))
    assert not total.running  # one mark is enough
    assert after(tmp_path, plan(families=("chat",)), 1).cell(total.place).running
    two = after(tmp_path, plan(), 2)
    cell = two.cell(place)
    assert cell.row is not None
    assert cell.row.speed.speedup == pytest.approx(2.0)  # 12 tokens in 4 cycles of 15 ms
    assert (cell.prompts, cell.repeats, cell.done, cell.final) == (1, 1, 1, False)
    assert two.cell(Place(None, "ngram-simple")).row is not None
    assert two.cell(Place("chat", "ngram-simple")).row is None


@pytest.mark.parametrize("runs", [2, 5, 7, 16, 18, 23, 31])
def test_what_is_said_on_the_way_is_the_reports_word_on_what_is_complete(
    tmp_path: Path, runs: int
) -> None:
    what = plan()
    live = after(tmp_path, what, runs)
    total = summarise(*complete(what, live.runs), {}).totals[0]
    assert live.cell(Place(None, "ngram-simple")).row == total
    for family in FAMILIES:
        ours = [run for run in live.runs if run.prompt.family == family]
        prompts = tuple(p for p in what.prompts if p.family == family)
        part, whole = complete(replace(what, prompts=prompts), ours)
        row = live.cell(Place(family, "ngram-simple")).row
        assert row == (summarise(part, whole, {}).rows[0] if whole else None)


def test_a_second_repeat_counts_when_all_prompts_of_the_row_have_it(tmp_path: Path) -> None:
    what = plan(families=("chat", "creative"))
    chat, total = Place("chat", "ngram-simple"), Place(None, "ngram-simple")
    assert after(tmp_path, what, 10).cell(chat).repeats == 1  # one prompt of chat has two
    live = after(tmp_path, what, 12)
    assert (live.cell(chat).repeats, live.cell(total).repeats) == (2, 1)
    assert after(tmp_path, what, 16).cell(total).repeats == 2


def test_at_the_end_it_is_the_outcomes_own_report(tmp_path: Path) -> None:
    what = plan()
    live = after(tmp_path, what, -1)
    assert live.outcome is not None
    cell = live.cell(Place("chat", "ngram-simple"))
    assert cell.final
    assert cell.row in live.outcome.report.rows
    assert cell.row is not None
    assert cell.row.identity.same == 4
    assert live.prompts(cell.place)[0].statuses == ("same", "same")


def test_an_interrupted_benchmark_leaves_unmeasured_rows_empty(tmp_path: Path) -> None:
    what = plan(repeats=1)

    def pace(generation: int) -> float:
        if generation == 3 + 6:  # warm-up, then three prompts
            raise KeyboardInterrupt
        return 1.0

    live = BenchLive(what)
    for step in steps(tmp_path, what, FakeSession(COSTS, pace=pace)):
        live.apply(step)
    assert live.outcome is not None
    assert live.outcome.interrupted
    done = live.cell(Place("template-fill", "ngram-simple"))
    assert (done.prompts, done.of_prompts) == (1, 2)
    last = live.cell(Place("chat", "ngram-simple"))
    assert last.row is None
    assert not last.final


def test_one_family_is_one_row() -> None:
    assert BenchLive(plan(families=("chat",))).workloads == (None,)
    live = BenchLive(plan())
    assert live.workloads == (*FAMILIES, None)
    assert live.label(None) == "total"
    assert BenchLive(plan(families=("chat",))).label(None) == "all prompts"


def test_cycles_of_a_run_add_up_to_its_total(tmp_path: Path) -> None:
    live = after(tmp_path, plan(max_tokens=13), 2)  # the fifth cycle emits one token of three
    run = live.runs[1]
    assert run.arm == "ngram-simple"
    cycles = accepted_per_cycle(run)
    assert cycles == ((3, 2),) * 5
    assert [one.emitted for one in run.passes] == [3, 3, 3, 3, 1]
    assert accepted_per_cycle(live.runs[0]) == ((0, 0),) * 13
    assert live.latest(Place("code-edit", "ngram-simple")) is run
    assert live.latest(Place("chat", "ngram-simple")) is None


def test_steps_are_what_they_are() -> None:
    live = BenchLive(plan())
    live.apply(Opened(2, ("note",), 0.5))
    live.apply(Calibration(100.0, 0.01, 60.0, 0.5))
    assert live.eta == 60.0
    live.apply(Checking(3))
    assert (live.differing, live.eta) == (3, None)
    assert live.version == 3


def test_the_state_knows_no_textual() -> None:
    code = "import sys, specctl.tui.bench_state; print('textual' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_outcomes_are_told_apart(tmp_path: Path) -> None:
    *_, last = steps(tmp_path, plan(repeats=1))
    assert isinstance(last, Outcome)
