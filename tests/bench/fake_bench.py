"""A session whose cycles are scripted: what the numbers must be is known exactly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from specctl.bench.conduct import conduct
from specctl.bench.results import Outcome
from specctl.bench.run import Arm, BenchPlan
from specctl.bench.workloads import Prompt
from specctl.events import Cycle, Decision, Finished, PromptDone, Record, Started
from specctl.settings import EngineSettings, Request, Sampling, SpecSettings

STEP = 0.010
EOG = 999


@dataclass(frozen=True)
class Cost:
    """How an arm decodes: drafts `k`, `accepted` of them stand, seconds of such a cycle."""

    k: int = 0
    accepted: int = 0
    t_d: float = 0.0
    t_v: float = STEP
    t_o: float = 0.0
    reason: str = "no drafter"


PLAIN = Cost()
GOOD = Cost(k=3, accepted=2, t_d=0.001, t_v=0.0135, t_o=0.0005)  # 3 tokens in 15 ms: 2×
SILENT = Cost(t_d=0.0005, reason="no match of 12 tokens")


class FakeModel:
    def is_eog(self, token: int) -> bool:
        return token == EOG


@dataclass
class FakeSession:
    """`costs` by spec types. `pace(n)` multiplies the seconds of the n-th generation (from 0).

    `texts(prompt tokens, types)` is what an arm says, `rows(tokens, batch)` what `replay` computes.
    `rounding` is what plain text in larger passes differs by: passes of no arm, without `extra`.
    """

    costs: Mapping[tuple[str, ...], Cost] = field(default_factory=dict)
    pace: Callable[[int], float] = lambda n: 1.0
    texts: Callable[[tuple[int, ...], tuple[str, ...]], tuple[int, ...]] | None = None
    rows: Callable[[Sequence[int], int], Any] | None = None
    finish: str = "length"
    rounding: float = 0.0

    def __post_init__(self) -> None:
        self.threads, self.notes, self.model = 1, ["a note"], FakeModel()
        self.spec = SpecSettings()
        self.calls: list[str] = []
        self.requests: list[Request] = []
        self.replays: list[tuple[Any, ...]] = []
        self.count = itertools.count()

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.append("closed")

    def use(self, spec: SpecSettings) -> tuple[str, ...]:
        self.spec = spec
        return ()

    def reset(self) -> None:
        self.calls.append("reset")

    def chat(self, messages: Sequence[Mapping[str, str]], think: Any = None) -> tuple[int, ...]:
        return tuple(ord(c) % 50 for message in messages for c in message["content"])

    def generate(self, request: Request) -> Iterator[Record]:
        types, cost = self.spec.types, self.costs.get(self.spec.types, PLAIN)
        self.requests.append(request)
        self.calls.append(",".join(types))
        factor = self.pace(next(self.count))
        text = self.texts(request.tokens, types) if self.texts else tuple(range(100, 1100))
        text = text[: request.max_tokens]
        yield Started(
            "fake", None, types, cost.k, len(request.tokens), 4096, 1, 0.0, 0, 0.0, ("a note",)
        )
        clock = 0.1 * factor
        yield PromptDone(len(request.tokens), 0, clock)
        done = 0
        for index in itertools.count():
            emitted = text[done : done + cost.accepted + 1]
            seconds = (cost.t_d + cost.t_v + cost.t_o) * factor
            clock += seconds
            drafted = (*emitted, *([7] * cost.k))[: cost.k]
            yield Cycle(
                index=index,
                asked=types,
                source=types[0] if drafted else None,
                limit=cost.k,
                drafted=drafted,
                accepted=cost.accepted,
                emitted=emitted,
                text="",
                t_d=cost.t_d * factor,
                t_v=cost.t_v * factor,
                t_o=cost.t_o * factor,
                t_native=0.0,
                t_1=STEP * factor,
                n_past=len(request.tokens) + done,
                clock=clock,
                decision=Decision("draft" if drafted else "plain", cost.reason),
            )
            done += len(emitted)
            if done >= len(text):
                break
        yield Finished(self.finish, len(request.tokens), done, clock)  # type: ignore[arg-type]

    def replay(
        self,
        tokens: Sequence[int],
        prompt: int,
        batch: int = 1,
        extra: Sequence[int] = (),
        passes: Sequence[tuple[int, int]] = (),
    ) -> Any:
        self.replays.append((tuple(tokens), prompt, batch, tuple(extra), tuple(passes)))
        assert self.rows is not None
        sampled = batch > 1 and not passes and all(token == tokens[-1] for token in extra)
        if sampled:
            return np.asarray(self.rows(tokens, 1), dtype=np.float32) + np.float32(self.rounding)
        return np.asarray(self.rows(tokens, batch), dtype=np.float32)


def arm(*types: str, **changes: Any) -> Arm:
    return Arm(",".join(types), SpecSettings(types=types, **changes))


def plan(*arms: Arm, prompts: int = 2, **changes: Any) -> BenchPlan:
    families = ("code-edit", "chat")
    return BenchPlan(
        model="fake",
        draft=None,
        prompts=tuple(
            Prompt(families[i % 2], f"p{i}", f"prompt number {i}") for i in range(prompts)
        ),
        arms=arms or (arm("ngram-simple"),),
        settings=EngineSettings(),
        sampling=changes.pop("sampling", Sampling()),
        **{"max_tokens": 12, "repeats": 3, **changes},
    )


def finished(folder: Path, session: FakeSession, what: BenchPlan | None = None) -> Outcome:
    """The outcome of a scripted benchmark of the model `folder`/fake.gguf."""
    model = folder / "fake.gguf"
    model.write_bytes(b"GGUF")
    *_, last = conduct(what or plan(), model, None, lambda *_: session)
    assert isinstance(last, Outcome)
    return last
