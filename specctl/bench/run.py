"""The measurement: plain and every arm on the same prompts, interleaved, from equal start states.

One loaded target serves all arms. Before the first run that counts, every arm has run once and was
thrown away (cold caches, page faults, the drafters' own start-up, the calibration of t_1). Before
each run the session forgets its KV cache and the drafters their state. Within one prompt and repeat
the arms run one after the other, and the order is reversed every time, so that a slow minute of the
machine, or warmth left by the run before, does not always hit the same arm.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from specctl import metrics
from specctl.bench.workloads import Message, Prompt
from specctl.errors import EngineError, UsageError
from specctl.events import Cycle, Finished, PromptDone, Record, Started
from specctl.metrics import Totals
from specctl.settings import EngineSettings, Request, Sampling, SpecSettings

WARM_UP_TOKENS = 16
PLAIN = "plain"

RunKey = tuple[str, str, int]  # (prompt key, arm, repeat)


class BenchSession(Protocol):
    """What the measurement asks of `engine.session.Session`."""

    def use(self, spec: SpecSettings) -> Any:
        """Draft like this from the next generation on."""

    def chat(self, messages: Sequence[Message], think: bool | None = None) -> tuple[int, ...]:
        """Prompt tokens by the model's own template."""

    def generate(self, request: Request) -> Iterator[Record]:
        """The records of one generation."""

    def reset(self) -> None:
        """Forget the KV cache and the drafters' state."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to decode that is compared with plain."""

    name: str
    spec: SpecSettings

    @property
    def drafts(self) -> bool:
        """False for an arm of plain decoding again: it shows the noise of the machine."""
        return self.spec.types != ("none",)


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What is measured. `model` and `draft` as the user named them; `arms` without plain.

    `ignore_eog`: texts go on past their end, so that all are equally long. `baseline` False: there
    is no plain decoding to compare with (a server that cannot do it).
    """

    model: str
    draft: str | None
    prompts: tuple[Prompt, ...]
    arms: tuple[Arm, ...]
    settings: EngineSettings
    sampling: Sampling
    max_tokens: int = 128
    repeats: int = 3
    ignore_eog: bool = False
    baseline: bool = True

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise UsageError(f"max-tokens {self.max_tokens} is below 1")
        if self.repeats < 1:
            raise UsageError(f"repeats {self.repeats} is below 1")
        if not self.arms:
            raise UsageError("nothing to compare plain decoding with", "give a --spec-type")
        names = [arm.name for arm in self.arms]
        twice = next((name for name in names if names.count(name) > 1 or name == PLAIN), None)
        if twice:
            raise UsageError(f"the arm {twice} is asked for twice")

    @property
    def all_arms(self) -> tuple[Arm, ...]:
        """Plain first, where there is one."""
        return (Arm(PLAIN, SpecSettings()), *self.arms) if self.baseline else self.arms


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of the target, as far as a difference in the text is traced back to it."""

    drafted: tuple[int, ...]
    emitted: int


@dataclass(frozen=True, slots=True)
class Run:
    """One measured generation. `ttft` is from the request to the first token, prompt included.

    Of a server: tokens are -1 each, for their numbers are not shown; `clock` seconds on our own
    clock brought `timed` of them (the first one came with the prompt).
    """

    prompt: Prompt
    arm: str
    repeat: int
    totals: Totals
    ttft: float
    tokens: tuple[int, ...]
    prompt_tokens: tuple[int, ...]
    prompt_seconds: float
    passes: tuple[Pass, ...]
    undrafted: tuple[tuple[str, int], ...]  # (reason, cycles) of the cycles without a draft
    single_seconds: float  # target passes of those cycles, Σ t_v: the machine's pace in this run
    finish: str
    notes: tuple[str, ...] = ()
    text: str = ""
    timed: int | None = None
    clock: float | None = None

    @property
    def key(self) -> RunKey:
        """Which one it is."""
        return self.prompt.key, self.arm, self.repeat

    @property
    def single_passes(self) -> int:
        """Cycles without a draft."""
        return sum(count for _, count in self.undrafted)

    @property
    def seconds(self) -> float:
        """Time of generation, the prompt not counted."""
        return self.totals.seconds if self.clock is None else self.clock

    @property
    def timed_tokens(self) -> int:
        """Tokens that came in `seconds`."""
        return len(self.tokens) if self.timed is None else self.timed


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measured during the warm-up, to say how long the rest takes: an estimate."""

    prompt_tokens_per_second: float
    plain_step: float
    estimated_seconds: float
    load_average: float | None


@dataclass(frozen=True, slots=True)
class RunDone:
    """One more run; `fraction` of the work is behind us, `eta` seconds (estimate) are left."""

    run: Run
    index: int
    total: int
    fraction: float
    eta: float


@dataclass(frozen=True, slots=True)
class _Task:
    prompt: Prompt
    tokens: tuple[int, ...]
    arm: Arm
    repeat: int


def measure(
    session: BenchSession, plan: BenchPlan, known: Container[RunKey] = ()
) -> Iterator[Calibration | RunDone]:
    """Warm up, say how long it will take, then do every run that is not `known` already.

    Raises:
        UsageError: a prompt with its answer does not fit the context.
        EngineError: a generation failed.
    """
    load = load_average()
    prompts = _tokenised(session, plan)
    step, rate = _warm_up(session, plan, next(iter(prompts.values())))
    costs = {
        key: len(tokens) / rate + plan.max_tokens * step for key, (_, tokens) in prompts.items()
    }
    tasks = [
        _Task(prompt, prompts[prompt.key][1], arm, n)
        for prompt, arm, n in order(plan)
        if (prompt.key, arm.name, n) not in known
    ]
    whole = sum(costs[task.prompt.key] for task in tasks)
    yield Calibration(rate, step, whole, load)
    done, began = 0.0, time.monotonic()
    for index, task in enumerate(tasks, 1):
        run = _run(session, task, plan)
        done += costs[task.prompt.key]
        elapsed = time.monotonic() - began
        yield RunDone(run, index, len(tasks), done / whole, elapsed * (whole - done) / done)


_Prompts = dict[str, tuple[Prompt, tuple[int, ...]]]


def _tokenised(session: BenchSession, plan: BenchPlan) -> _Prompts:
    prompts: _Prompts = {}
    for prompt in plan.prompts:
        tokens = tuple(session.chat(prompt.messages()))
        needed = len(tokens) + plan.max_tokens
        if needed > plan.settings.n_ctx:
            raise UsageError(
                f"prompt {prompt.key} has {len(tokens)} tokens; with {plan.max_tokens} to generate "
                f"that is more than the context of {plan.settings.n_ctx}",
                f"--ctx {needed} or more",
            )
        prompts[prompt.key] = (prompt, tokens)
    return prompts


def order(plan: BenchPlan) -> Iterator[tuple[Prompt, Arm, int]]:
    """Every run that counts, as (prompt, arm, repeat), in the order in which it is done."""
    prompts = {prompt.key: prompt for prompt in plan.prompts}
    backwards = False
    for repeat in range(plan.repeats):
        for prompt in prompts.values():
            arms = plan.all_arms[::-1] if backwards else plan.all_arms
            for arm in arms:
                yield prompt, arm, repeat
            backwards = not backwards
        if len(prompts) % 2 == 0:  # else every prompt would keep its order in all repeats
            backwards = not backwards


def _warm_up(
    session: BenchSession, plan: BenchPlan, first: tuple[Prompt, tuple[int, ...]]
) -> tuple[float, float]:
    """Every arm once, thrown away, then plain: seconds of its step, prompt tokens per second."""
    prompt, tokens = first
    short = dataclasses.replace(plan, max_tokens=min(plan.max_tokens, WARM_UP_TOKENS))
    plain, *arms = plan.all_arms
    for arm in (plain, *arms, plain):
        run = _run(session, _Task(prompt, tokens, arm, -1), short)
    step = run.seconds / max(run.totals.emitted, 1)
    return step, len(tokens) / run.prompt_seconds if run.prompt_seconds else float("inf")


def _run(session: BenchSession, task: _Task, plan: BenchPlan) -> Run:
    session.reset()
    session.use(task.arm.spec)
    request = Request(
        task.tokens,
        max_tokens=plan.max_tokens,
        sampling=plan.sampling,
        ignore_eog=plan.ignore_eog,
    )
    return _collect(list(session.generate(request)), task)


def _collect(records: Sequence[Record], task: _Task) -> Run:
    cycles = [record for record in records if isinstance(record, Cycle)]
    finished = next((r for r in records if isinstance(r, Finished)), None)
    where = f"{task.arm.name} on {task.prompt.key}"
    if finished is None or finished.reason in ("error", "cancelled"):
        raise EngineError(f"{where} did not finish: {finished.detail if finished else 'no end'}")
    if not cycles:
        raise EngineError(f"{where} generated nothing: {finished.detail or finished.reason}")
    single = [cycle for cycle in cycles if not cycle.drafted]
    undrafted = Counter(cycle.decision.reason for cycle in single)
    return Run(
        prompt=task.prompt,
        arm=task.arm.name,
        repeat=task.repeat,
        totals=metrics.fold(records),
        ttft=cycles[0].clock,
        tokens=tuple(token for cycle in cycles for token in cycle.emitted),
        prompt_tokens=task.tokens,
        prompt_seconds=sum(r.seconds for r in records if isinstance(r, PromptDone)),
        passes=tuple(Pass(cycle.drafted, len(cycle.emitted)) for cycle in cycles),
        undrafted=tuple(undrafted.most_common()),
        single_seconds=sum(cycle.t_v for cycle in single),
        finish=finished.reason,
        notes=next((r.notes for r in records if isinstance(r, Started)), ()),
        text="".join(cycle.text for cycle in cycles) + finished.text,
    )


def load_average() -> float | None:
    """Processes that wanted a core in the last minute, or None where the system does not say."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None
