"""Servers whose answers are scripted: what the figures must be is known exactly."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specctl.bench.results import Outcome
from specctl.bench.run import PLAIN, Arm, BenchPlan
from specctl.bench.served import Servers, Setup
from specctl.bench.served_conduct import Ready, Subject, conduct_served
from specctl.bench.workloads import Prompt
from specctl.errors import RemoteError
from specctl.events import Cycle, Decision, Interval, Record
from specctl.settings import EngineSettings, Sampling, SpecSettings

STEP = 0.010  # seconds a plain token
TOKENS = 13  # the first comes with the prompt, twelve are timed


@dataclass(frozen=True)
class Reply:
    text: str = "words"
    tokens: int = TOKENS
    first_tokens: int = 1
    sent: float = 100.0
    first: float = 0.5
    last: float = 0.5 + (TOKENS - 1) * STEP
    prompt_tokens: int = 7
    finish: str = "length"
    records: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()


def cycle(drafted: int, accepted: int, seconds: float, index: int = 1, **changes: Any) -> Cycle:
    """As a server shows one: no tokens, whole cycles. Index 0 is the prompt's pass."""
    one = Cycle(
        index=index,
        asked=(),
        source="draft" if drafted else None,
        limit=0,
        drafted=(-1,) * drafted,
        accepted=accepted,
        emitted=(-1,) * (accepted + 1),
        text="",
        t_d=0.0,
        t_v=seconds,
        t_o=0.0,
        t_native=seconds,
        t_1=None,
        n_past=7,
        clock=0.0,
        decision=Decision("draft" if drafted else "plain", ""),
        split=False,
    )
    return replace(one, **changes)


def interval(**changes: Any) -> Interval:
    base = Interval(0.06, 6, 4, 12, 7, TOKENS, (), None, True, "vllm", 0.0)
    return replace(base, **changes)


PLAIN_REPLY = Reply()
# twelve tokens in half the time: four cycles of three, 15 ms each
FAST_REPLY = Reply(last=0.5 + 0.06, records=tuple(cycle(3, 2, 0.015) for _ in range(4)))


@dataclass
class FakeFleet:
    """`answers(arm, chats)` gives the replies of one request or wave; by default half the time."""

    answers: Callable[[str, Sequence[Any]], Sequence[Reply]] | None = None
    together: bool = True
    servers: Servers = "together"
    engine: str = "llama-server"
    method: str = "ngram-simple"
    ignore_eos: bool = True
    can_ignore_eos: bool = True
    slots: int | None = 1
    started: bool = True
    log: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def open(self, arm: str) -> Iterator[_Server]:
        self.log.append(f"open {arm}")
        try:
            yield _Server(self, arm)
        finally:
            self.log.append(f"close {arm}")

    def setup(self) -> Setup:
        return Setup(
            self.engine,
            f"{self.engine} b1",
            self.servers,
            self.started,
            self.ignore_eos,
            self.can_ignore_eos,
            self.method,
            self.slots,
        )


@dataclass
class _Server:
    fleet: FakeFleet
    arm: str

    def ask(self, chats: Sequence[Any], max_tokens: int, ignore_eos: bool) -> Sequence[Reply]:
        self.fleet.log.append(f"{self.arm} ×{len(chats)} n{max_tokens} {ignore_eos}")
        if self.fleet.answers is not None:
            return self.fleet.answers(self.arm, chats)
        return [PLAIN_REPLY if self.arm == PLAIN else FAST_REPLY] * len(chats)


def plan(prompts: int = 2, **changes: Any) -> BenchPlan:
    families = ("code-edit", "chat")
    return BenchPlan(
        model="fake",
        draft=None,
        prompts=tuple(
            Prompt(families[i % 2], f"p{i}", f"prompt number {i}") for i in range(prompts)
        ),
        arms=changes.pop("arms", (Arm("ngram-simple", SpecSettings(types=("ngram-simple",))),)),
        settings=EngineSettings(threads=2),
        sampling=Sampling(),
        **{"max_tokens": TOKENS, "repeats": 1, "ignore_eog": True, **changes},
    )


def conducted(
    folder: Path, fleet: FakeFleet, what: BenchPlan | None = None, batches: Sequence[int] = ()
) -> Outcome:
    """The outcome of a benchmark of the model `folder`/fake.gguf."""
    model = folder / "fake.gguf"
    model.write_bytes(b"GGUF")
    subject = Subject(model, None, 2) if fleet.started else Subject(Path("their-model"), None, 0)
    *steps, last = conduct_served(what or plan(), batches, fleet, subject)
    assert isinstance(last, Outcome)
    assert {step.arm for step in steps if isinstance(step, Ready)} <= {
        arm.name for arm in last.plan.all_arms
    }
    return last


def failing(after: int, error: BaseException | None = None) -> Callable[..., Sequence[Reply]]:
    """Answers that work so many times."""
    count = 0

    def answers(arm: str, chats: Sequence[Any]) -> Sequence[Reply]:
        nonlocal count
        count += 1
        if count > after:
            raise error or RemoteError("the server is gone", "look at its log")
        return [PLAIN_REPLY if arm == PLAIN else FAST_REPLY] * len(chats)

    return answers
