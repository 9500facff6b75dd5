"""The search for the best settings, as an iterator of frozen steps that a face can show.

Here is decided what is tried; `Rounds` runs it. What was decided and done is in the `State`, so a
search that was stopped goes on where it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Sequence

from specctl.bench.conduct import Opener
from specctl.bench.report import ONE_RUN_BAND, Runs, joint_noise, speed, verdict
from specctl.bench.run import PLAIN, Run
from specctl.bench.tune import (
    FIRST_SHARE,
    HALF_SHARE,
    REPEATS,
    THREADS_SHARE,
    Candidate,
    Size,
    Standing,
    better_half,
    choose,
    finalists,
    first_size,
    later_size,
    variants,
    with_k,
)
from specctl.bench.tune_k import suggested_k
from specctl.bench.tune_lines import COUNTING, Stage
from specctl.bench.tune_round import THREAD_TOKENS, Rounds
from specctl.bench.tune_state import State
from specctl.bench.tune_steps import Answer, Began, Job, Said, Step, Steps


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
    """What is tried, round after round; its methods yield steps and return what the next needs."""

    def __init__(self, job: Job, opener: Opener, state: State, stack: contextlib.ExitStack) -> None:
        self.job, self.state = job, state
        self.rounds = Rounds(job, opener, state, stack)

    def run(self) -> Steps:
        """The whole search."""
        job, state = self.job, self.state
        names = tuple(one.name for one in job.candidates)
        self.rounds.later = job.budget
        yield Began(names, job.budget, state.runs, state.seconds, state.replaced)
        why = yield from self._tune_threads()
        first = yield from self._first()
        half = yield from self._half(first)
        final = yield from self._final(half)
        choice = choose(self._clean(final) or self._clean(half))
        yield Answer(
            choice=choice,
            threads=self.rounds.threads,
            standings=tuple(sorted(self.rounds.last.values(), key=lambda s: -s.speedup)),
            disqualified=tuple(self.rounds.out.values()),
            prompts=job.prompts[: self.rounds.prompts],
            max_tokens=self.rounds.tokens,
            seconds=state.seconds,
            runs=state.runs,
            threads_why=why,
        )

    def _clean(self, standings: Iterable[Standing]) -> list[Standing]:
        return [s for s in standings if s.name not in self.rounds.out]

    def _tune_threads(self) -> Generator[Step, None, tuple[str, ...]]:
        """Plain decoding alone, each number of threads in a session of its own. The usual one stays
        unless another is faster beyond the noise; the sentences say so.
        """
        runs: dict[int, list[Run]] = {}
        missing: list[str] = []
        for count in self.job.threads:
            planned = self.rounds.planned
            cost = self.state.seconds * (len(runs) + 1) / max(len(runs), 1)
            if runs and planned is None and cost > THREADS_SHARE * self.job.budget:
                missing.append(f"threads {count}: not tried, for lack of time (more --minutes)")
                yield Said(missing[-1])
                break
            stage = Stage("threads", ("none",), 1, 2, THREAD_TOKENS, count)
            if planned is not None and planned.name != "threads":
                missing.append(f"threads {count}: not tried, for lack of time (more --minutes)")
                break
            runs[count] = yield from self.rounds.alone(stage, COUNTING)
        usual = self.rounds.threads
        best, gain = usual, 1.0
        tried: list[str] = []
        for count, found in runs.items():
            if count == usual:
                continue
            table: Runs = {
                (COUNTING.key, PLAIN): runs[usual],
                (COUNTING.key, "more"): found,
            }
            against = speed((COUNTING.key,), "more", table)
            change = against.speedup or 1.0
            # They did not take turns: what the machine did in between is in neither's spread.
            noise = joint_noise(against.noise, ONE_RUN_BAND)
            if verdict(change, noise) == "faster" and change > gain:
                best, gain = count, change
            tried.append(
                f"threads {count}: {change:.2f}× the speed of {usual} (plain decoding, one after "
                f"the other: ±{noise:.0%})"
            )
            yield Said(tried[-1])
        self.rounds.threads, self.rounds.pace_runs = best, runs[best]
        if tried:
            kept = f"{best}, the fastest beyond its noise"
            usual_kept = f"{usual}, as without tuning: no other is faster beyond its noise"
            tried.append(f"threads kept: {usual_kept if best == usual else kept}")
        return (*tried, *missing)

    def _first(self) -> Generator[Step, None, list[Standing]]:
        every = self.job.candidates
        size = first_size(
            every,
            self.rounds.pace(),
            self.rounds.has_draft,
            FIRST_SHARE * self.rounds.left,
            self.job.max_tokens,
        )
        standings = yield from self._round("first", size, every)
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
        stage = self.rounds.planned
        if stage is not None:
            if stage.name != "half":
                return first
            return (yield from self.rounds.measure(stage, [*kept, *extra], None))
        for some in ([*kept, *extra], kept, kept[:3]):
            if len(some) <= 2:
                break
            size = later_size(
                some,
                self.rounds.pace(),
                self.rounds.has_draft,
                HALF_SHARE * self.rounds.left,
                self.rounds.tokens,
                (1,),
            )
            if size is not None and size.prompts >= self.rounds.prompts:
                return (yield from self._round("half", size, some))
        return first

    def _final(self, before: list[Standing]) -> Generator[Step, None, list[Standing]]:
        """The two best against plain; once where there is no time for repeats, and where there is
        none at all the round before decides.
        """
        some = [s.candidate for s in finalists(self._clean(before))]
        if not some:
            return before
        stage = self.rounds.planned
        if stage is not None:
            self.rounds.later = 0.0
            return (yield from self.rounds.measure(stage, some, None))
        room = (self.rounds.pace(), self.rounds.has_draft, self.rounds.left, self.rounds.tokens)
        size = later_size(some, *room, REPEATS) or later_size(some, *room, (1,))
        if size is None:
            yield Said(
                "no time is left for a last round: the one before decides (more --minutes make it "
                "surer)"
            )
            return before
        return (yield from self._round("final", size, some))

    def _round(
        self, name: str, size: Size, every: Sequence[Candidate]
    ) -> Generator[Step, None, list[Standing]]:
        """Measure a round of this size; after the last one there is none to keep time for."""
        left = self.rounds.left - size.seconds
        self.rounds.later = 0.0 if name == "final" else max(0.0, left)
        names = tuple(one.name for one in size.candidates)
        stage = Stage(name, names, size.prompts, size.repeats, size.tokens, self.rounds.threads)
        return (yield from self.rounds.measure(stage, every, size.seconds))
