"""`specctl verify` from its flags to what it says, and what it says when it is stopped."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

import pytest

from specctl.bench import conduct
from specctl.bench.run import BenchPlan, Calibration, RunDone
from specctl.units import format_seconds

pytestmark = pytest.mark.native
Specctl = Callable[..., tuple[int, str, str]]
FLAGS = ("-s", "ngram-mod", "-n", "8", "-t", "1")


@pytest.fixture
def stopped_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Ctrl-C after so many runs of the half of this number, from 1; `0` runs: at once."""
    real = conduct.measure
    halves = 0

    def stop(half: int, runs: int) -> None:
        def measure(
            session: Any, plan: BenchPlan, known: Container[Any]
        ) -> Iterator[Calibration | RunDone]:
            nonlocal halves
            halves += 1
            for step in real(session, plan, known):
                if halves == half and isinstance(step, RunDone) and step.index > runs:
                    raise KeyboardInterrupt
                yield step

        monkeypatch.setattr(conduct, "measure", measure)

    return stop


def said(text: str) -> str:
    return " ".join(text.split())


def test_the_estimate_is_of_both_halves(
    specctl: Specctl, tiny_models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: list[float] = []
    real = conduct.measure

    def measure(*args: Any) -> Iterator[Calibration | RunDone]:
        for step in real(*args):
            if isinstance(step, Calibration):
                seconds.append(step.estimated_seconds)
            yield step

    monkeypatch.setattr(conduct, "measure", measure)
    code, out, err = specctl("verify", str(tiny_models["clock"]), *FLAGS)
    assert code == 0, err
    greedy, sampled = seconds
    assert f"≈ {format_seconds(2 * greedy)} for both halves, half of it greedy" in said(err)
    assert f"≈ {format_seconds(sampled)}; where texts differ" in said(err)
    assert "incomplete" not in err
    assert "clock.gguf, greedy" in said(out)
    assert "at temperature 0.8" in said(out)


@pytest.mark.parametrize(
    ("half", "runs", "shown", "missing"),
    [
        (1, 0, 0, ("greedy", "at temperature 0.8")),
        (1, 5, 1, ("greedy", "at temperature 0.8")),
        (2, 5, 2, ("at temperature 0.8",)),
    ],
)
def test_stopped_it_says_that_it_is_incomplete(
    specctl: Specctl,
    tiny_models: dict[str, Path],
    stopped_after: Callable[[int, int], None],
    half: int,
    runs: int,
    shown: int,
    missing: tuple[str, ...],
) -> None:
    """What was done is shown; of models and halves that were not reached none is claimed."""
    stopped_after(half, runs)
    model = str(tiny_models["clock"])
    code, out, err = specctl("verify", model, *FLAGS)
    assert code == 130
    names = ", ".join(f"{model} {one}" for one in missing)
    assert said(err).endswith(
        f"stopped, so this is incomplete. Not compared, or not on all prompts: {names}"
    )
    assert out.count("spec type") == shown
    assert ("2 prompts until it was stopped" in said(out)) == (runs == 5)


def test_models_that_were_not_reached_are_named(
    specctl: Specctl, tiny_models: dict[str, Path], stopped_after: Callable[[int, int], None]
) -> None:
    stopped_after(2, 0)
    one, other = str(tiny_models["clock"]), str(tiny_models["jitter"])
    code, out, err = specctl("verify", one, other, *FLAGS)
    assert code == 130
    assert said(err).endswith(
        f"{one} at temperature 0.8, {other} greedy, {other} at temperature 0.8"
    )
    assert out.count("spec type") == 1


def test_a_model_is_named_with_or_without_the_flag(
    specctl: Specctl, tiny_models: dict[str, Path]
) -> None:
    clock, jitter = str(tiny_models["clock"]), str(tiny_models["jitter"])
    for command in ((clock, "-m", jitter), ("--model", clock, "--model", jitter)):
        code, out, err = specctl("verify", *command, *FLAGS)
        assert code == 0, err
        assert ["".join(out.split()).count(f"{one},") for one in (clock, jitter)] == [2, 2]
