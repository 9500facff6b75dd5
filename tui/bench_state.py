"""What the bench screen shows, as a fold over the steps of a benchmark.

Knows no Textual, no engine and no clock. `BenchLive.apply(step)` is the only way in. No figure is
made here: while it runs, each workload and the total are what `bench/report.py` says about the
prompts and repeats that every arm has done; at the end they are the outcome's own report.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal

from specctl.bench.conduct import Checking, Opened, Step, complete
from specctl.bench.report import PromptSpeed, Report, Row, summarise
from specctl.bench.results import Outcome
from specctl.bench.run import BenchPlan, Calibration, Run, RunDone, order

Phase = Literal["opening", "warming", "measuring", "checking", "done", "failed"]
Workload = str | None  # None: all of them together


@dataclass(frozen=True, slots=True)
class Failed:
    """The benchmark ended with this instead of an outcome; a KeyboardInterrupt: nothing to keep."""

    error: BaseException


BenchEvent = Step | Failed


@dataclass(frozen=True, slots=True)
class Place:
    """A cell of the matrix."""

    workload: Workload
    arm: str


@dataclass(frozen=True, slots=True)
class Task:
    """The run that is being measured. `number` counts from 1."""

    workload: str
    prompt: str
    arm: str
    repeat: int
    number: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm on one workload. `row` is None until every arm has done a prompt of it.

    `done` of `asked` runs of this arm are behind us. The row speaks of `prompts` of `of_prompts`
    and of `repeats` repeats; it is `final` once the measurement has ended.
    """

    place: Place
    row: Row | None
    done: int
    asked: int
    prompts: int
    of_prompts: int
    repeats: int
    running: bool
    final: bool


@dataclass(frozen=True, slots=True)
class PromptLine:
    """One arm on one prompt. `runs` are all that have been done, also those not judged yet."""

    key: str
    speed: PromptSpeed | None
    runs: tuple[Run, ...]
    statuses: tuple[str, ...]  # of the runs' texts, where they have been compared


@dataclass(slots=True)
class BenchLive:
    """Everything on the bench screen. `plan` is what was asked for, whatever was done of it."""

    plan: BenchPlan
    phase: Phase = "opening"
    opened: Opened | None = None
    calibration: Calibration | None = None
    runs: list[Run] = field(default_factory=list)
    total: int = 0
    fraction: float = 0.0
    eta: float | None = None  # seconds left, estimated when the last step came
    differing: int = 0
    outcome: Outcome | None = None
    error: BaseException | None = None
    version: int = 0
    _reports: dict[Workload, Report] = field(default_factory=dict)
    _order: tuple[Task, ...] = ()
    _asked: Counter[tuple[str, str]] = field(default_factory=Counter)  # by (family, arm)
    _done: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._order = tuple(
            Task(prompt.family, prompt.key, arm.name, repeat, number)
            for number, (prompt, arm, repeat) in enumerate(order(self.plan), 1)
        )
        self.total = len(self._order)
        self._asked.update((task.workload, task.arm) for task in self._order)

    # ------------------------------------------------------------ the shape of the matrix

    @property
    def families(self) -> tuple[str, ...]:
        """The workloads, in the order of the plan."""
        return tuple(dict.fromkeys(prompt.family for prompt in self.plan.prompts))

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """Rows: the families and all together; one family alone needs no second row."""
        return (*self.families, None) if len(self.families) > 1 else (None,)

    def label(self, workload: Workload) -> str:
        """What a row is called, as the report's tables call it."""
        return workload or ("total" if len(self.families) > 1 else "all prompts")

    @property
    def arms(self) -> tuple[str, ...]:
        """Columns; plain is what they are compared with."""
        return tuple(arm.name for arm in self.plan.arms)

    # ------------------------------------------------------------ steps

    def apply(self, event: BenchEvent) -> None:
        """Fold one step in."""
        self.version += 1
        match event:
            case Opened():
                self.opened, self.phase = event, "warming"
            case Calibration():
                self.calibration, self.phase = event, "measuring"
                self.eta = event.estimated_seconds
            case RunDone():
                self.runs.append(event.run)
                self._done[event.run.prompt.family, event.run.arm] += 1
                self.total, self.fraction, self.eta = event.total, event.fraction, event.eta
                self._judge(event.run)
            case Checking():
                self.phase, self.differing, self.eta = "checking", event.differing, None
            case Outcome():
                self.outcome, self.phase, self.eta = event, "done", None
            case Failed():
                self.error, self.phase, self.eta = event.error, "failed", None

    def _judge(self, run: Run) -> None:
        """New reports, where this run was the last of the arms on its prompt and repeat."""
        same = (run.prompt.key, run.repeat)
        arms = sum((one.prompt.key, one.repeat) == same for one in self.runs)
        if arms < len(self.plan.all_arms):
            return
        family = run.prompt.family
        prompts = tuple(prompt for prompt in self.plan.prompts if prompt.family == family)
        ours = [one for one in self.runs if one.prompt.family == family]
        for workload, plan, runs in (
            (family, replace(self.plan, prompts=prompts), ours),
            (None, self.plan, self.runs),
        ):
            part, whole = complete(plan, runs)
            self._reports[workload] = summarise(part, whole, {})

    # ------------------------------------------------------------ what is shown

    @property
    def running(self) -> Task | None:
        """The run that is being measured; None before the first and after the last."""
        done = len(self.runs)
        return self._order[done] if self.phase == "measuring" and done < self.total else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Things to read once: of the engine, of the runs."""
        said = [*(self.opened.notes if self.opened else ())]
        report = self.outcome.report if self.outcome else self._reports.get(None)
        return tuple(dict.fromkeys((*said, *(report.notes if report else ()))))

    def cell(self, place: Place) -> Cell:
        """What is known of a cell."""
        report, row = self._report(place.workload), self._row(place)
        now = self.running
        families = [family for family in self.families if self._holds(place, family)]
        asked = sum(self._asked[family, place.arm] for family in families)
        return Cell(
            place=place,
            row=row,
            done=sum(self._done[family, place.arm] for family in families),
            asked=asked,
            prompts=row.prompts if row else 0,
            of_prompts=asked // self.plan.repeats,
            repeats=row.speed.repeats if row else 0,
            running=now is not None
            and now.arm == place.arm
            and (now.workload == place.workload or len(self.families) == 1),
            final=self.outcome is not None and report is not None,
        )

    def prompts(self, place: Place) -> tuple[PromptLine, ...]:
        """The prompts behind a cell, in the order of the plan."""
        report = self._report(place.workload)
        speeds = {p.prompt: p for p in (report.prompts if report else ()) if p.arm == place.arm}
        found = self.outcome.identities if self.outcome else {}
        keys = [p.key for p in self.plan.prompts if self._holds(place, p.family)]
        lines = []
        for key in dict.fromkeys(keys):
            runs = self.runs_of(key, place.arm)
            said = tuple(found[run.key].status for run in runs if run.key in found)
            lines.append(PromptLine(key, speeds.get(key), runs, said))
        return tuple(lines)

    def runs_of(self, prompt: str, arm: str) -> tuple[Run, ...]:
        """The repeats of one arm on one prompt that have been done, in order."""
        found = [run for run in self.runs if run.prompt.key == prompt and run.arm == arm]
        return tuple(sorted(found, key=lambda run: run.repeat))

    def latest(self, place: Place) -> Run | None:
        """The run of a cell that was done last."""
        return next(
            (
                run
                for run in reversed(self.runs)
                if run.arm == place.arm and self._holds(place, run.prompt.family)
            ),
            None,
        )

    def _report(self, workload: Workload) -> Report | None:
        if self.outcome is None:
            return self._reports.get(workload)
        known = workload is None or any(r.workload == workload for r in self.outcome.report.rows)
        return self.outcome.report if known else None

    def _row(self, place: Place) -> Row | None:
        report = self._report(place.workload)
        if report is None:
            return None
        rows = report.totals if place.workload is None else report.rows
        return next((r for r in rows if r.arm == place.arm and r.workload == place.workload), None)

    @staticmethod
    def _holds(place: Place, family: str) -> bool:
        return place.workload is None or place.workload == family


def accepted_per_cycle(run: Run) -> tuple[tuple[int, int], ...]:
    """(drafted, accepted) of every cycle of a run, from its passes and its total.

    A pass emits what it accepted and one token more, but for the last, which may stop before; its
    share is what the others leave of the total.
    """
    *others, last = run.passes
    known = [(len(one.drafted), one.emitted - 1) for one in others]
    rest = run.totals.accepted - sum(accepted for _, accepted in known)
    return (*known, (len(last.drafted), rest))
