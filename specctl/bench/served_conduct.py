"""One benchmark of servers, from warm-up to result, as an iterator of steps.

Plain and speculative requests run one at a time, in the same order as in-process
(`run.order`); then, for each batch size, waves of requests at once. Figures come from `report`.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specctl import metrics
from specctl.bench.conduct import complete
from specctl.bench.identity import SAME, Identity
from specctl.bench.report import Report, summarise
from specctl.bench.results import Outcome
from specctl.bench.run import PLAIN, BenchPlan, Run, RunDone, RunKey, load_average, order
from specctl.bench.served import (
    WARM_UP_TOKENS,
    Fleet,
    Reply,
    Served,
    ServedFacts,
    Setup,
    Wave,
    conditions,
    waves,
)
from specctl.errors import RemoteError
from specctl.events import Cycle, Interval, PromptDone, Record

_UNTOLD = "not told by the server"


@dataclass(frozen=True, slots=True)
class Ready:
    """The server of an arm is open and warm."""

    arm: str
    setup: Setup


@dataclass(frozen=True, slots=True)
class Subject:
    """What the servers run, as far as it is known. `threads` 0: not told."""

    model: Path
    draft: Path | None
    threads: int


Step = Ready | RunDone | Outcome


@dataclass(frozen=True, slots=True)
class _Task:
    wave: Wave
    arm: str
    repeat: int
    single: bool

    @property
    def key(self) -> RunKey:
        return self.wave.prompt.key, self.arm, self.repeat

    @property
    def weight(self) -> int:
        return len(self.wave.members)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What of an answer is looked at again when all are there. `records`: its cycles and
    intervals, of a drafting arm's single request alone, without their texts.
    """

    text: str
    tokens: int
    notes: tuple[str, ...]
    records: tuple[Cycle | Interval, ...] = ()


def conduct_served(
    plan: BenchPlan, batches: Sequence[int], fleet: Fleet, subject: Subject
) -> Generator[Step, None, None]:
    """Every step; the last one is the `Outcome`. A server that fails, or Ctrl-C, ends it early,
    with what every arm has done by then; `Outcome.served.failure` says why.

    Raises:
        RemoteError: a server failed before every arm had done anything.
        KeyboardInterrupt: the same for Ctrl-C.
    """
    load, began, unix_time = load_average(), time.monotonic(), time.time()
    prompts, loads = len(plan.prompts), waves(plan.prompts, batches)
    batch_plan = replace(plan, prompts=tuple(wave.prompt for wave in loads)) if loads else None
    answers: dict[RunKey, tuple[_Kept, ...]] = {}
    runs: list[Run] = []
    failure, hint, interrupted = "", "", False
    try:
        with contextlib.closing(_measure(plan, batch_plan, loads, fleet, answers)) as steps:
            for step in steps:
                if isinstance(step, RunDone):
                    runs.append(step.run)
                yield step
    except (RemoteError, KeyboardInterrupt) as error:
        cut = complete(plan, [run for run in runs if not _of_batch(run)])
        if not cut[1]:
            raise
        interrupted = True
        if isinstance(error, RemoteError):
            failure, hint = error.message, error.hint or ""
    singles = [run for run in runs if not _of_batch(run)]
    if interrupted:
        plan, singles = complete(plan, singles)
    setup = fleet.setup()
    singles = _judged(singles, answers)
    said = conditions(setup, batches, prompts)
    notes = dict.fromkeys(
        note for replies in answers.values() for one in replies for note in one.notes
    )
    identities = _identities(singles, answers)
    report = summarise(plan, singles, identities)
    batch_runs, batch_report = _batches(batch_plan, runs, answers)
    yield Outcome(
        plan=plan,
        model=subject.model,
        draft=subject.draft,
        report=replace(report, conditions=(*report.conditions, *said, *notes)),
        runs=tuple(singles),
        identities=identities,
        unix_time=unix_time,
        wall_seconds=time.monotonic() - began,
        estimated_seconds=0.0,
        load_before=load,
        load_after=load_average() if setup.started else None,
        threads=subject.threads,
        engine=setup.title,
        interrupted=interrupted,
        served=ServedFacts(setup, batch_report, batch_runs, failure, hint),
    )


# ---------------------------------------------------------------- asking


def _measure(
    plan: BenchPlan,
    batch_plan: BenchPlan | None,
    loads: Sequence[Wave],
    fleet: Fleet,
    answers: dict[RunKey, tuple[_Kept, ...]],
) -> Generator[Ready | RunDone, None, None]:
    tasks = _tasks(plan, batch_plan, loads)
    progress = _Progress(tasks)
    arms = [arm.name for arm in plan.all_arms]
    for group in [arms] if fleet.together else [[arm] for arm in arms]:
        with contextlib.ExitStack() as stack:
            served: dict[str, Served] = {}
            for arm in group:
                served[arm] = stack.enter_context(fleet.open(arm))
                _warm_up(served[arm], plan)
                yield Ready(arm, fleet.setup())
            for task in tasks:
                if task.arm in served:
                    run, replies = _ask(served[task.arm], task, plan)
                    answers[task.key] = tuple(_kept(task, reply) for reply in replies)
                    yield progress.done(task, run)


def _tasks(plan: BenchPlan, batch_plan: BenchPlan | None, loads: Sequence[Wave]) -> list[_Task]:
    tasks = [_Task(Wave(p, (p,)), arm.name, n, single=True) for p, arm, n in order(plan)]
    by_key = {wave.prompt.key: wave for wave in loads}
    if batch_plan is not None:
        tasks += [
            _Task(by_key[p.key], arm.name, n, single=False) for p, arm, n in order(batch_plan)
        ]
    return tasks


def _warm_up(served: Served, plan: BenchPlan) -> None:
    served.ask([plan.prompts[0].messages()], min(plan.max_tokens, WARM_UP_TOKENS), ignore_eos=False)


def _ask(served: Served, task: _Task, plan: BenchPlan) -> tuple[Run, tuple[Reply, ...]]:
    try:
        replies = tuple(
            served.ask(
                [member.messages() for member in task.wave.members],
                plan.max_tokens,
                plan.ignore_eog,
            )
        )
    except RemoteError as error:
        where = f"{task.arm} on {task.wave.prompt.key}"
        raise RemoteError(f"{where}: {error.message}", error.hint) from error
    return (_single if task.single else _wave)(task, replies), replies


def _kept(task: _Task, reply: Reply) -> _Kept:
    """A run has an answer for every wave, and an answer a record for every cycle."""
    judged = task.single and task.arm != PLAIN
    records = tuple(
        replace(record, text="", pieces=()) if isinstance(record, Cycle) else record
        for record in (reply.records if judged else ())
        if isinstance(record, Cycle | Interval)
    )
    return _Kept(reply.text, reply.tokens, reply.notes, records)


class _Progress:
    """How much is behind us, in requests."""

    def __init__(self, tasks: Sequence[_Task]) -> None:
        self._total, self._whole = len(tasks), sum(task.weight for task in tasks)
        self._count, self._done, self._began = 0, 0, time.monotonic()

    def done(self, task: _Task, run: Run) -> RunDone:
        self._count += 1
        self._done += task.weight
        left = (time.monotonic() - self._began) * (self._whole - self._done) / self._done
        return RunDone(run, self._count, self._total, self._done / self._whole, left)


# ---------------------------------------------------------------- answers as runs


def _single(task: _Task, replies: Sequence[Reply]) -> Run:
    (one,) = replies
    return _run(
        task,
        replies,
        clock=one.last - one.first,
        timed=one.tokens - one.first_tokens,
        ttft=one.first,
    )


def _wave(task: _Task, replies: Sequence[Reply]) -> Run:
    begun = min(one.sent for one in replies)
    end = max(one.sent + one.last for one in replies)
    tokens = sum(one.tokens for one in replies)
    first = statistics.median(one.first for one in replies)
    return _run(task, replies, clock=end - begun, timed=tokens, ttft=first)


def _run(task: _Task, replies: Sequence[Reply], *, clock: float, timed: int, ttft: float) -> Run:
    records = [record for one in replies for record in one.records]
    # the first token comes out of the prompt's pass, which is none of one token
    single = [r for r in records if isinstance(r, Cycle) and not r.drafted and r.index]
    untold = sum(
        (r.passes or 0) - (r.drafted_passes or 0) for r in records if isinstance(r, Interval)
    )
    passes = len(single) + untold
    read = [record.seconds for record in records if isinstance(record, PromptDone)]
    ends = {one.finish for one in replies}
    return Run(
        prompt=task.wave.prompt,
        arm=task.arm,
        repeat=task.repeat,
        totals=_totals(records),
        ttft=ttft,
        tokens=(-1,) * sum(one.tokens for one in replies),
        prompt_tokens=(-1,) * sum(one.prompt_tokens for one in replies),
        prompt_seconds=sum(read) if read else ttft,
        passes=(),
        undrafted=((_UNTOLD, passes),) if passes else (),
        # among the rows of other answers a pass has no pace of its own
        single_seconds=sum(cycle.t_v for cycle in single) if task.single else 0.0,
        finish="length" if ends == {"length"} else "eog",
        text="\n".join(one.text for one in replies),
        timed=timed,
        clock=clock,
    )


def _totals(records: Sequence[Record], t_1: float | None = None) -> metrics.Totals:
    """Sums of what the server told, judged against `t_1` alone; where it told nothing, nothing is
    known.
    """
    told = [replace(record, t_1=t_1) for record in records if isinstance(record, Cycle | Interval)]
    if told:
        return metrics.fold(told)
    return metrics.Totals(
        passes_known=False,
        drafted_passes_known=False,
        positions_known=False,
        draft_time_known=False,
        verify_time_known=False,
        exact=False,
    )


def _of_batch(run: Run) -> bool:
    return not run.prompt.text


def _judged(runs: Sequence[Run], answers: Mapping[RunKey, Sequence[_Kept]]) -> list[Run]:
    """With break-even against plain decoding: t_1 is the step of the plain run of the same prompt
    and repeat.
    """
    steps = {
        (run.prompt.key, run.repeat): step
        for run in runs
        if run.arm == PLAIN and (step := _step(run)) is not None
    }
    out = []
    for run in runs:
        step = steps.get((run.prompt.key, run.repeat))
        if step is not None and run.arm != PLAIN:
            records = [record for one in answers[run.key] for record in one.records]
            run = replace(run, totals=_totals(records, step))
        out.append(run)
    return out


def _step(plain: Run) -> float | None:
    """Seconds of a plain pass: the mean of its own cycles, on the server's clock as drafted ones
    are, where it shows them; else seconds per token on ours, which hold HTTP's share.
    """
    if plain.single_seconds > 0:
        return plain.single_seconds / plain.single_passes
    if plain.timed_tokens > 0 and plain.seconds > 0:
        return plain.seconds / plain.timed_tokens
    return None


# ---------------------------------------------------------------- the same text?


def _identities(
    runs: Sequence[Run], answers: Mapping[RunKey, Sequence[_Kept]]
) -> dict[RunKey, Identity]:
    """Every speculative run against the plain one of its prompt and repeat, if there is one."""
    out: dict[RunKey, Identity] = {}
    for run in runs:
        plain = answers.get((run.prompt.key, PLAIN, run.repeat))
        if run.arm != PLAIN and plain is not None:
            out[run.key] = compare(plain, answers[run.key])
    return out


def compare(plain: Sequence[_Kept], arm: Sequence[_Kept]) -> Identity:
    """Same, or differs: byte by byte of the text, then the number of tokens."""
    found = [why for a, b in zip(plain, arm, strict=True) if (why := _difference(a, b))]
    if not found:
        return SAME
    of = f"{len(found)} of {len(plain)} answers: " if len(plain) > 1 else ""
    return Identity("differs", why=f"{of}{found[0]}; whether it is a tie cannot be told over HTTP")


def _difference(plain: _Kept, arm: _Kept) -> str:
    """Empty where there is none."""
    a, b = (one.text.encode("utf-8", "surrogatepass") for one in (plain, arm))
    if a != b:
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
        if at is None:
            shorter = "plain's" if len(a) < len(b) else "the arm's"
            return f"{shorter} text ends at byte {min(len(a), len(b))}, the other goes on"
        return f"differs from byte {at} on"
    if plain.tokens != arm.tokens:
        return f"the same text in {arm.tokens} tokens, plain's in {plain.tokens}"
    return ""


def _batches(
    plan: BenchPlan | None, runs: Sequence[Run], answers: Mapping[RunKey, Sequence[_Kept]]
) -> tuple[tuple[Run, ...], Report | None]:
    """The report of the waves that every arm has done."""
    if plan is None:
        return (), None
    plan, kept = complete(plan, [run for run in runs if _of_batch(run)])
    if not kept:
        return (), None
    return tuple(kept), summarise(plan, kept, _identities(kept, answers))
