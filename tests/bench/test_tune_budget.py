"""What a search may cost, on a scripted machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tune_kit import PAIR, Machine, job, prompts, search, times

from specctl.bench.tune import Pace, first_size, later_size
from specctl.bench.tune_steps import Ran, Said, StageBegan

pytest.importorskip("numpy")


# ---------------------------------------------------------------- what it may cost


@pytest.mark.parametrize("minutes", [0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("slow", [0.2, 1.0, 5.0])
def test_the_budget_is_kept(tmp_path: Path, minutes: float, slow: float) -> None:
    machine = Machine({"auto": times(1.3), "ngram-suffix": times(1.2)}, noise=lambda n: slow)
    what = job(tmp_path, minutes=minutes, prompts=prompts(8), max_tokens=None)
    answer, steps = search(tmp_path, machine, what)
    assert machine.now <= minutes * 60 * 1.1
    assert answer.seconds == pytest.approx(machine.now, rel=0.02)
    used = answer.seconds / (minutes * 60)
    most = any(
        s.stage.prompts == 8 and s.stage.repeats == 5 for s in steps if isinstance(s, StageBegan)
    )
    assert used > 0.5 or most  # what is there is used


def test_a_budget_too_small_for_all_tries_the_promising_ones(tmp_path: Path) -> None:
    machine = Machine({"auto": times(1.5)}, noise=lambda n: 4.0)
    answer, steps = search(tmp_path, machine, job(tmp_path, minutes=0.9, max_tokens=None))
    left_out = [step.text for step in steps if isinstance(step, Said) and "not tried" in step.text]
    assert any("ngram-cache" in text for text in left_out)
    assert {s.name for s in answer.standings} >= {"auto", "ngram-suffix", "draft-simple k=4"}


def test_time_left_falls_to_nothing(tmp_path: Path) -> None:
    _, steps = search(tmp_path, Machine({"auto": times(1.5)}))
    left = [step.left for step in steps if isinstance(step, Ran)]
    assert left[0] > 10 * left[-1]
    assert left[-1] == pytest.approx(0, abs=1)


def test_sizes_fit_or_are_the_least() -> None:
    pace = Pace(step=0.05, rate=100.0, lengths=(100,) * 6, factors={"auto": 2.0})
    for seconds in (10.0, 60.0, 200.0, 1000.0):
        size = first_size(PAIR, pace, True, seconds, None)
        assert size.seconds <= seconds or (size.prompts, size.tokens) == (1, 32)
        later = later_size(PAIR[:2], pace, True, seconds, 64, (5, 4, 3))
        assert later is None or later.seconds <= seconds
    sizes = [later_size(PAIR[:2], pace, True, s, 64, (5, 4, 3)) for s in (1.0, 170.0, 900.0)]
    assert [size and (size.prompts, size.repeats) for size in sizes] == [None, (3, 3), (6, 5)]
