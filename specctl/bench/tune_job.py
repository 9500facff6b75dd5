"""The search for the best settings, as an iterator of frozen steps that a face can show.

Every run goes through `bench/conduct.py`; what is done is in the `State` at once, and what is there
is not measured again, so a search that was stopped goes on where it was.
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
from specctl.bench.report import ONE_RUN_BAND, Runs, grouped, speed, summarise, verdict
from specctl.bench.results import Outcome
from specctl.bench.run import PLAIN, Arm, BenchPlan, Run, RunDone
from specctl.bench.tune import (
    FIRST_SHARE,
    HALF_SHARE,
    REPEATS,
    THREADS_SHARE,
    Candidate,
    Group,
    Pace,
    Standing,
    better_half,
    by_session,
    choose,
    finalists,
    first_size,
    later_size,
    suggested_k,
    variants,
    with_k,
)
from specctl.bench.tune_state import Stage, State
from specctl.bench.tune_steps import (
    Answer,
    Began,
    Disqualified,
    Job,
    Loaded,
    Ran,
    Said,
    StageBegan,
    StageDone,
    Step,
    Steps,
)
from specctl.bench.workloads import Prompt
from specctl.settings import EngineSettings, SpecSettings

COUNTING = Prompt("threads", "count", "Count from one to one hundred, in words.")
_AGAIN = Arm("none", SpecSettings())  # plain decoding once more
_THREAD_TOKENS = 16


def tune(job: Job, opener: Opener, state: State) -> Steps:
    """Every step of the search; the last one is its `Answer`. A KeyboardInterrupt stops it, and the
    state keeps what is done.

    Raises:
        UsageError: a prompt does not fit the context. ModelError, PairError, EngineError: as
            `open_session`; SpecctlError: the state cannot be written.
    """
    with contextlib.ExitStack() as stack:
        yield from _Search(job, opener, state, stack).run()


class _Search:
    """One search; its methods yield steps and return what the next one needs."""

    def __init__(self, job: Job, opener: Opener, state: State, stack: contextlib.ExitStack) -> None:
        self.job, self.state, self._opener = job, state, opener
        self._stack = stack
        self._session: Any = None
        self._key: tuple[int, Group] | None = None
        self._at = 0  # stages done or going on
        self._later = 0.0  # seconds that rounds still to be planned may take
        self._out: dict[str, Disqualified] = {}
        self._last: dict[str, Standing] = {}
        self._runs: list[Run] = []  # of all rounds that count, for the pace
        self._pace_runs: list[Run] = []  # of the counting, until there are others
        self._prompts, self._tokens = 1, _THREAD_TOKENS
        self.threads = job.threads[0]

    @property
    def has_draft(self) -> bool:
        return self.job.draft is not None

    @property
    def left(self) -> float:
        """Seconds of the budget."""
        return self.job.budget - self.state.seconds

    def run(self) -> Steps:
        """The whole search."""
        job, state = self.job, self.state
        names = tuple(one.name for one in job.candidates)
        self._later = job.budget
        yield Began(names, job.budget, state.runs, state.seconds, state.replaced)
        yield from self._tune_threads()
        first = yield from self._first()
        half = yield from self._half(first)
        final = yield from self._final(half)
        choice = choose(self._clean(final) or self._clean(half))
        yield Answer(
            choice=choice,
            threads=self.threads,
            standings=tuple(sorted(self._last.values(), key=lambda s: -s.speedup)),
            disqualified=tuple(self._out.values()),
            prompts=job.prompts[: self._prompts],
            max_tokens=self._tokens,
            seconds=state.seconds,
            runs=state.runs,
        )

    def _clean(self, standings: Iterable[Standing]) -> list[Standing]:
        return [s for s in standings if s.name not in self._out]

    # ------------------------------------------------------------ rounds

    def _tune_threads(self) -> Steps:
        """Plain decoding alone, each number of threads in a session of its own."""
        runs: dict[int, list[Run]] = {}
        for count in self.job.threads:
            planned = self._at < len(self.state.stages)
            cost = self.state.seconds * (len(runs) + 1) / max(len(runs), 1)
            if runs and not planned and cost > THREADS_SHARE * self.job.budget:
                yield Said(f"threads {count}: not tried, for lack of time (more --minutes)")
                break
            stage = Stage("threads", ("none",), 1, 2, _THREAD_TOKENS, count)
            if planned and self.state.stages[self._at].name != "threads":
                break  # it was not tried
            found = yield from self._threads_stage(stage)
            runs[count] = found
        best, gain = self.threads, 1.0
        for count, found in runs.items():
            if count == self.threads:
                continue
            table: Runs = {
                (COUNTING.key, PLAIN): runs[self.threads],
                (COUNTING.key, "more"): found,
            }
            against = speed((COUNTING.key,), "more", table)
            change = against.speedup or 1.0
            # They did not take turns: what the machine did in between is in neither's spread.
            noise = (1 + against.noise) * (1 + ONE_RUN_BAND) - 1
            if verdict(change, noise) == "faster" and change > gain:
                best, gain = count, change
            yield Said(
                f"threads {count}: {change:.2f}× the speed of {self.threads} (plain decoding, one "
                f"after the other: ±{noise:.0%})"
            )
        self.threads, self._pace_runs = best, runs[best]

    def _threads_stage(self, stage: Stage) -> Generator[Step, None, list[Run]]:
        self.threads, before = stage.threads, self.threads
        number = yield from self._begin(stage, None, 1)
        group: Group = (False, "f16")
        runs, _ = yield from self._measure(number, 0, group, (_AGAIN,), stage, (COUNTING,))
        if self.state.lengths is None:
            session = self._open(group)
            chats = [session.chat(prompt.messages()) for prompt in self.job.prompts]
            self.state.add_lengths([len(tokens) for tokens in chats])
        self.threads = before
        return runs

    def _first(self) -> Generator[Step, None, list[Standing]]:
        every = self.job.candidates
        size = first_size(
            every, self._pace(), self.has_draft, FIRST_SHARE * self.left, self.job.max_tokens
        )
        self._later = max(0.0, self.left - size.seconds)
        stage = Stage("first", _names(size.candidates), size.prompts, 1, size.tokens, self.threads)
        standings = yield from self._round(stage, every, size.seconds)
        tried = {s.name for s in standings}
        skipped = [one.name for one in every if one.name not in tried]
        if skipped:
            yield Said(f"not tried, for lack of time: {', '.join(skipped)}")
        return standings

    def _half(self, first: list[Standing]) -> Generator[Step, None, list[Standing]]:
        """The better half, and what the first round suggests beside it."""
        known = self._clean(first)
        kept = [s.candidate for s in better_half(known)]
        extra: list[Candidate] = []
        for method in self.job.methods if self.job.widen else ():
            found = suggested_k(method, known)
            if found is None:
                continue
            k, gain = found
            yield Said(f"{method}: K* = {k} by the first round (≈ {gain:.2f}×, an estimate)")
            alike = [s for s in known if s.candidate.spec.types == (method,)]
            one = with_k(method, k, draft=alike[0].candidate.draft)
            promising = gain > max(s.speedup for s in alike) or alike[0].candidate in kept
            if promising and one.name not in {s.name for s in first}:
                extra.append(one)
        leader = next((c for c in kept if c.draft), None)
        if self.job.widen and leader is not None and self._draft_wins(known):
            extra += variants(leader)
        return (yield from self._narrow(first, kept, extra))

    def _draft_wins(self, known: Sequence[Standing]) -> bool:
        """Variants are worth their time only where a draft model is among the two best."""
        best = sorted(known, key=lambda s: -s.speedup)[:2]
        return any(s.candidate.draft for s in best)

    def _narrow(
        self, first: list[Standing], kept: list[Candidate], extra: list[Candidate]
    ) -> Generator[Step, None, list[Standing]]:
        """The second round, with as many as there is time for; none where two are left."""
        if self._at < len(self.state.stages):
            stage = self.state.stages[self._at]
            if stage.name != "half":
                return first
            return (yield from self._round(stage, [*kept, *extra], None))
        for some in ([*kept, *extra], kept, kept[:3]):
            if len(some) <= 2:
                break
            size = later_size(
                some,
                self._pace(),
                self.has_draft,
                HALF_SHARE * self.left,
                self._tokens,
                (1,),
            )
            if size is not None and size.prompts >= self._prompts:
                self._later = max(0.0, self.left - size.seconds)
                stage = Stage(
                    "half", _names(some), size.prompts, size.repeats, size.tokens, self.threads
                )
                return (yield from self._round(stage, some, size.seconds))
        return first

    def _final(self, before: list[Standing]) -> Generator[Step, None, list[Standing]]:
        """The two best against plain; once where there is no time for repeats, and where there is
        none at all the round before decides.
        """
        some = [s.candidate for s in finalists(self._clean(before))]
        if not some:
            return before
        self._later = 0.0
        if self._at < len(self.state.stages):
            stage = self.state.stages[self._at]
            return (yield from self._round(stage, some, None))
        room = (self._pace(), self.has_draft, self.left, self._tokens)
        size = later_size(some, *room, REPEATS) or later_size(some, *room, (1,))
        if size is None:
            yield Said(
                "no time is left for a last round: the one before decides (more --minutes make it "
                "surer)"
            )
            return before
        stage = Stage("final", _names(some), size.prompts, size.repeats, size.tokens, self.threads)
        return (yield from self._round(stage, some, size.seconds))

    # ------------------------------------------------------------ one round

    def _round(
        self, stage: Stage, every: Iterable[Candidate], seconds: float | None
    ) -> Generator[Step, None, list[Standing]]:
        """Measure it, or take what is there; the standings, fastest first."""
        if self._at < len(self.state.stages):
            stage = self.state.stages[self._at]  # as it was planned before it was stopped
            self.threads = stage.threads
        by_name = {one.name: one for one in every}
        chosen = [by_name[name] for name in stage.candidates if name in by_name]
        groups = by_session(chosen, self.has_draft)
        number = yield from self._begin(stage, seconds, len(groups))
        self._tokens, self._prompts = stage.max_tokens, stage.prompts
        prompts = self.job.prompts[: stage.prompts]
        standings: list[Standing] = []
        for index, (group, some) in enumerate(groups.items()):
            arms = tuple(one.arm for one in some)
            runs, texts = yield from self._measure(number, index, group, arms, stage, prompts)
            self._runs += runs
            standings += self._standings(stage, group, some, runs, texts)
            yield from self._look_for_bugs(texts)
        standings.sort(key=lambda s: -s.speedup)
        self._last |= {s.name: s for s in standings}
        yield StageDone(stage, tuple(standings))
        return standings

    def _begin(
        self, stage: Stage, seconds: float | None, groups: int
    ) -> Generator[Step, None, int]:
        number = self._at
        if number == len(self.state.stages):
            self.state.add_stage(stage)
        self._at += 1
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
                    step.eta + min(self._later, max(0.0, self.left - step.eta)),
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
            if identity.status == "bug" and arm not in self._out:
                self._out[arm] = Disqualified(arm, prompt, identity)
                yield self._out[arm]

    def _pace(self) -> Pace:
        """What runs cost, by all that was measured so far."""
        plain = [run for run in self._runs if run.arm == PLAIN] or self._pace_runs
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


def _names(some: Iterable[Candidate]) -> tuple[str, ...]:
    return tuple(one.name for one in some)
