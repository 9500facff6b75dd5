"""One benchmark from models to result, as an iterator of steps that a face can show."""

from __future__ import annotations

import importlib.metadata
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from specctl.bench.identity import Replayer, check
from specctl.bench.report import summarise
from specctl.bench.results import Outcome
from specctl.bench.run import (
    BenchPlan,
    BenchSession,
    Calibration,
    Run,
    RunDone,
    load_average,
    measure,
)
from specctl.settings import EngineSettings, SpecSettings


class Vocabulary(Protocol):
    """What is asked of the loaded target itself."""

    def is_eog(self, token: int) -> bool:
        """Does this token end a generation?"""


class Session(BenchSession, Replayer, Protocol):
    """All that a benchmark asks of `engine.session.Session`."""

    notes: list[str]
    threads: int

    @property
    def model(self) -> Vocabulary:
        """The target."""


class Opener(Protocol):
    """`engine.session.open_session`, or a script of it."""

    def __call__(
        self,
        model: Path,
        draft: Path | None,
        specs: Sequence[SpecSettings],
        settings: EngineSettings,
    ) -> AbstractContextManager[Any]:
        """An open session."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The models are loaded; `notes` are things to read once, `load` is the load average before."""

    threads: int
    notes: tuple[str, ...]
    load: float | None


@dataclass(frozen=True, slots=True)
class Checking:
    """All runs are done; this many texts differ and are decoded again."""

    differing: int


Step = Opened | Calibration | RunDone | Checking | Outcome


def conduct(
    plan: BenchPlan,
    model: Path,
    draft: Path | None,
    opener: Opener,
    known: Sequence[Run] = (),
) -> Generator[Step, None, None]:
    """Every step of the benchmark; the last one is its `Outcome`.

    `known` runs of this plan were measured earlier and are not done again. A KeyboardInterrupt ends
    it early, with what is complete by then; one while texts are checked ends only that.

    Raises:
        UsageError: a prompt does not fit the context, or an arm cannot be used here.
        ModelError, PairError, EngineError: see `open_session`.
    """
    load, began, unix_time = load_average(), time.monotonic(), time.time()
    specs = [arm.spec for arm in plan.all_arms]
    with opener(model, draft, specs, plan.settings) as opened:
        session: Session = opened
        yield Opened(session.threads, tuple(session.notes), load)
        runs = list(known)
        estimate, interrupted = 0.0, False
        try:
            for step in measure(session, plan, {run.key for run in known}):
                if isinstance(step, Calibration):
                    estimate = step.estimated_seconds
                else:
                    runs.append(step.run)
                yield step
        except KeyboardInterrupt:
            plan, runs = complete(plan, runs)
            if not runs:
                raise
            interrupted = True
        after = load_average()
        try:
            yield Checking(_differing(runs))
            identities = check(plan, runs, session, session.model.is_eog)
        except KeyboardInterrupt:  # what was measured is not given up for that
            identities, interrupted = check(plan, runs, None, session.model.is_eog), True
        threads = session.threads
    yield Outcome(
        plan=plan,
        model=model,
        draft=draft,
        report=summarise(plan, runs, identities),
        runs=tuple(runs),
        identities=identities,
        unix_time=unix_time,
        wall_seconds=time.monotonic() - began,
        estimated_seconds=estimate,
        load_before=load,
        load_after=after,
        threads=threads,
        engine=_engine(),
        interrupted=interrupted,
    )


S = TypeVar("S")


def driven(steps: Generator[S, None, None], show: Callable[[S], object]) -> Outcome:
    """Run a benchmark to its outcome, showing every other step.

    A Ctrl-C while a step is shown ends the benchmark as one inside it does: it is handed in, so
    that what is complete is kept.

    Raises:
        KeyboardInterrupt: nothing was complete. Else as the benchmark itself.
    """
    step = next(steps)
    while not isinstance(step, Outcome):
        try:
            show(step)
        except KeyboardInterrupt as stop:
            step = steps.throw(stop)
        else:
            step = next(steps)
    return step


def complete(plan: BenchPlan, runs: Sequence[Run]) -> tuple[BenchPlan, list[Run]]:
    """What an unfinished measurement can say: prompts and repeats that every arm has done.

    The plan keeps the repeats that all remaining prompts have; without any it is as it was.
    """
    arms = len(plan.all_arms)
    done = Counter((run.prompt.key, run.repeat) for run in runs)
    whole = {key for key, count in done.items() if count == arms}
    prompts = tuple(prompt for prompt in plan.prompts if (prompt.key, 0) in whole)
    repeats = 0
    while prompts and all((prompt.key, repeats) in whole for prompt in prompts):
        repeats += 1
    keys = {prompt.key for prompt in prompts}
    kept = [run for run in runs if run.prompt.key in keys and run.repeat < repeats]
    return (replace(plan, prompts=prompts, repeats=repeats) if kept else plan), kept


def _differing(runs: Sequence[Run]) -> int:
    texts: dict[str, set[tuple[int, ...]]] = {}
    for run in runs:
        texts.setdefault(run.prompt.key, set()).add(run.tokens)
    return sum(len(found) > 1 for found in texts.values())


def _engine() -> str:
    try:
        return f"llama-cpp-python {importlib.metadata.version('llama-cpp-python')}"
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
