"""One round of the search: its runs in the sessions they need, and how each candidate did.

What is done is in the `State` at once; what is there is not measured again.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from specctl.bench.conduct import Checking, Opened, Opener, conduct
from specctl.bench.identity import Identity
from specctl.bench.report import grouped, summarise
from specctl.bench.results import Outcome
from specctl.bench.run import PLAIN, Arm, BenchPlan, Run, RunDone
from specctl.bench.tune import Candidate, Group, Pace, Standing, by_session
from specctl.bench.tune_lines import Stage
from specctl.bench.tune_state import State
from specctl.bench.tune_steps import (
    Disqualified,
    Job,
    Loaded,
    Ran,
    StageBegan,
    StageDone,
    Step,
    Steps,
)
from specctl.bench.workloads import Prompt
from specctl.settings import EngineSettings, SpecSettings

THREAD_TOKENS = 16
_AGAIN = Arm("none", SpecSettings())  # plain decoding once more


class Rounds:
    """Measures round after round. `threads` are those of the next one, `later` the seconds that
    rounds still to be planned may take; `out` and `last` are who is out, and the last standings.
    Its generators yield steps and return what was found.
    """

    def __init__(self, job: Job, opener: Opener, state: State, stack: contextlib.ExitStack) -> None:
        self.job, self.state, self._opener = job, state, opener
        self._stack = stack
        self._session: Any = None
        self._key: tuple[int, Group] | None = None
        self._at = 0  # stages done or going on
        self._runs: list[Run] = []  # of all rounds that count, for the pace
        self.pace_runs: list[Run] = []  # of the counting, until there are others
        self.later = 0.0
        self.out: dict[str, Disqualified] = {}
        self.last: dict[str, Standing] = {}
        self.prompts, self.tokens = 1, THREAD_TOKENS
        self.threads = job.threads[0]

    @property
    def has_draft(self) -> bool:
        """A draft file was named."""
        return self.job.draft is not None

    @property
    def left(self) -> float:
        """Seconds of the budget."""
        return self.job.budget - self.state.seconds

    @property
    def planned(self) -> Stage | None:
        """The next round, where one was planned before the search was stopped."""
        stages = self.state.stages
        return stages[self._at] if self._at < len(stages) else None

    def alone(self, stage: Stage, prompt: Prompt) -> Generator[Step, None, list[Run]]:
        """Plain decoding with the threads of `stage`; those in force stay."""
        self.state.check_alone(self._at, stage)
        self.threads, before = stage.threads, self.threads
        number = yield from self._begin(stage, None, 1)
        group: Group = (False, "f16")
        runs, _ = yield from self._measure(number, 0, group, (_AGAIN,), stage, (prompt,))
        if self.state.lengths is None:
            session = self._open(group)
            chats = [session.chat(prompt.messages()) for prompt in self.job.prompts]
            self.state.add_lengths([len(tokens) for tokens in chats])
        self.threads = before
        return runs

    def measure(
        self, stage: Stage, every: Iterable[Candidate], seconds: float | None
    ) -> Generator[Step, None, list[Standing]]:
        """Measure it, or take what is there; the standings, fastest first."""
        if self.planned is not None:
            self.state.check_stage(self._at, [one.name for one in every], self.job.threads)
            stage = self.planned
            self.threads = stage.threads
        by_name = {one.name: one for one in every}
        chosen = [by_name[name] for name in stage.candidates if name in by_name]
        groups = by_session(chosen, self.has_draft)
        number = yield from self._begin(stage, seconds, len(groups))
        self.tokens, self.prompts = stage.max_tokens, stage.prompts
        prompts = self.job.prompts[: stage.prompts]
        standings: list[Standing] = []
        for index, (group, some) in enumerate(groups.items()):
            arms = tuple(one.arm for one in some)
            runs, texts = yield from self._measure(number, index, group, arms, stage, prompts)
            self._runs += runs
            standings += self._standings(stage, group, some, runs, texts)
            yield from self._look_for_bugs(texts)
        standings.sort(key=lambda s: -s.speedup)
        self.last |= {s.name: s for s in standings}
        yield StageDone(stage, tuple(standings))
        return standings

    def _begin(
        self, stage: Stage, seconds: float | None, groups: int
    ) -> Generator[Step, None, int]:
        number = self._at
        if number == len(self.state.stages):
            self.state.add_stage(stage)
        self._at += 1
        self.state.check_groups(number, groups)
        known = sum(len(self.state.part(number, group).runs) for group in range(groups))
        yield StageBegan(stage, seconds, stage.runs(groups), known)
        return number

    def _measure(
        self,
        number: int,
        index: int,
        group: Group,
        arms: tuple[Arm, ...],
        stage: Stage,
        prompts: tuple[Prompt, ...],
    ) -> Generator[Step, None, tuple[list[Run], Mapping[Any, Identity]]]:
        part = self.state.part(number, index)
        self.state.check_arms(number, index, [arm.name for arm in arms])
        if part.identities is not None:
            return part.runs, part.identities
        plan = self._plan(group, arms, stage, prompts)
        session = self._open(group)
        known = list(part.runs)
        steps = conduct(
            plan,
            self.job.model,
            self._draft(group),
            lambda *_: contextlib.nullcontext(session),
            known,
        )
        for step in steps:
            if isinstance(step, Opened):
                yield Loaded(step.notes, step.load)
            elif isinstance(step, RunDone):
                self.state.add_run(number, index, step.run)
                yield Ran(
                    stage.name,
                    step.run.arm,
                    step.run.prompt.key,
                    len(known) + step.index,
                    len(known) + step.total,
                    step.eta + min(self.later, max(0.0, self.left - step.eta)),
                )
            elif isinstance(step, Checking):
                if len(part.runs) < stage.prompts * stage.repeats * (len(arms) + 1):
                    raise KeyboardInterrupt  # it was stopped: what is missing can be done later
            elif isinstance(step, Outcome):
                self.state.add_identities(number, index, step.identities)
        return part.runs, part.identities or {}

    def _plan(
        self, group: Group, arms: tuple[Arm, ...], stage: Stage, prompts: tuple[Prompt, ...]
    ) -> BenchPlan:
        draft = self._draft(group)
        return BenchPlan(
            model=self.job.model.name,
            draft=draft.name if draft else None,
            prompts=prompts,
            arms=arms,
            settings=self._settings(group),
            sampling=self.job.sampling,
            max_tokens=stage.max_tokens,
            repeats=stage.repeats,
        )

    def _settings(self, group: Group) -> EngineSettings:
        settings, (_, kv) = self.job.settings, group
        if kv != "f16":
            draft = replace(settings.draft, kv_type_k=kv, kv_type_v=kv)
            settings = replace(settings, draft=draft)
        return replace(settings, threads=self.threads)

    def _draft(self, group: Group) -> Path | None:
        return self.job.draft if group[0] else None

    def _open(self, group: Group) -> Any:
        """The session of a group; the one before is closed, for two may not fit."""
        if self._key == (self.threads, group):
            return self._session
        self._stack.close()
        self._key = None
        members = [c.spec for c in self.job.candidates if c.group(self.has_draft) == group]
        specs = [SpecSettings(), *(members or [SpecSettings(types=("auto",))])]
        settings = self._settings(group)
        opened = self._opener(self.job.model, self._draft(group), specs, settings)
        self._session = self._stack.enter_context(opened)
        self._key = (self.threads, group)
        return self._session

    def _standings(
        self,
        stage: Stage,
        group: Group,
        some: Sequence[Candidate],
        runs: Sequence[Run],
        texts: Mapping[Any, Identity],
    ) -> list[Standing]:
        prompts = self.job.prompts[: stage.prompts]
        arms = tuple(one.arm for one in some)
        report = summarise(self._plan(group, arms, stage, prompts), runs, texts)
        keys, table = tuple(prompt.key for prompt in prompts), grouped(runs)
        rows = {row.arm: row for row in report.totals}
        return [
            Standing(
                candidate=one,
                stage=stage.name,
                prompts=keys,
                speed=rows[one.name].speed,
                totals=rows[one.name].totals,
                texts=rows[one.name].identity,
                group=group,
                table=table,
            )
            for one in some
        ]

    def _look_for_bugs(self, texts: Mapping[Any, Identity]) -> Steps:
        for (prompt, arm, _), identity in texts.items():
            if identity.status == "bug" and arm not in self.out:
                self.out[arm] = Disqualified(arm, prompt, identity)
                yield self.out[arm]

    def pace(self) -> Pace:
        """What runs cost, by all that was measured so far."""
        plain = [run for run in self._runs if run.arm == PLAIN] or self.pace_runs
        tokens = sum(len(run.tokens) for run in plain)
        seconds = sum(run.seconds for run in plain)
        read = sum(run.prompt_seconds for run in plain)
        each = statistics.fmean(run.seconds / max(len(run.tokens), 1) for run in plain)
        factors: dict[str, float] = {}
        for name in {run.arm for run in self._runs}:
            mine = [run for run in self._runs if run.arm == name]
            pace = statistics.fmean(run.seconds / max(len(run.tokens), 1) for run in mine)
            factors[name] = pace / each if each else 1.0
        return Pace(
            step=seconds / max(tokens, 1),
            rate=sum(len(run.prompt_tokens) for run in plain) / read if read else float("inf"),
            lengths=self.state.lengths or (0,) * len(self.job.prompts),
            factors=factors,
        )
