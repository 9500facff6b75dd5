"""A scripted machine that a search for the best settings runs on: what must come out is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fake_bench import STEP, Cost, FakeSession

from specctl.bench.tune import Candidate, candidates
from specctl.bench.tune_job import tune
from specctl.bench.tune_state import State
from specctl.bench.tune_steps import Answer, Job, Step
from specctl.bench.workloads import Prompt
from specctl.settings import EngineSettings, Request, Sampling, SpecSettings

PAIR = candidates(("draft-simple",), ("draft-simple",))
ALONE = candidates((), ())
SLOW = Cost(k=3, accepted=0, t_d=0.002, t_v=0.018)


def times(speedup: float, k: int = 4, accepted: int = 3) -> Cost:
    """An arm that is this much faster than plain decoding."""
    return Cost(k=k, accepted=accepted, t_v=(accepted + 1) * STEP / speedup)


@dataclass
class Machine:
    """Opens scripted sessions and keeps the time. `speeds` by candidate, `threads` by number;
    `noise` multiplies the seconds of each generation; `stop_at`: Ctrl-C in that one.
    """

    speeds: dict[str, Cost] = field(default_factory=dict)
    threads: dict[int, float] = field(default_factory=dict)
    noise: Callable[[int], float] = lambda n: 1.0
    texts: Callable[[tuple[int, ...], tuple[str, ...]], tuple[int, ...]] | None = None
    stop_at: int | None = None
    now: float = 0.0
    generated: int = 0
    opened: list[tuple[bool, str, int | None]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def open(
        self, model: Path, draft: Path | None, specs: Sequence[SpecSettings], settings: Any
    ) -> FakeSession:
        self.opened.append((draft is not None, settings.draft.kv_type_k, settings.threads))
        slow = 1 / self.threads.get(settings.threads, 1.0)
        return Scripted(self, slow)


class Scripted(FakeSession):
    def __init__(self, machine: Machine, slow: float) -> None:
        super().__init__(
            texts=machine.texts, pace=lambda n: slow * machine.noise(machine.generated)
        )
        self.machine = machine
        self.rows = lambda tokens, batch: [0.0] * 1200

    def generate(self, request: Request) -> Iterator[Any]:
        machine, spec = self.machine, self.spec
        if machine.stop_at is not None and machine.generated >= machine.stop_at:
            raise KeyboardInterrupt
        name = ",".join(spec.types) + (f" k={spec.k}" if spec.k else "")
        if len(spec.types) > 1:
            name += f" n-max={spec.draft.n_max}"
        self.costs = {
            spec.types: machine.speeds.get(name, SLOW if spec.types != ("none",) else Cost())
        }
        for record in super().generate(request):
            yield record
        machine.generated += 1
        machine.now += record.seconds


def prompts(count: int = 4) -> tuple[Prompt, ...]:
    return tuple(Prompt(("code-edit", "chat")[n % 2], f"p{n}", f"prompt {n}") for n in range(count))


def job(tmp_path: Path, some: Sequence[Candidate] = PAIR, **changes: Any) -> Job:
    for name in ("target.gguf", "draft.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    drafted = any(one.draft for one in some)
    values: dict[str, Any] = {
        "model": tmp_path / "target.gguf",
        "draft": tmp_path / "draft.gguf" if drafted else None,
        "candidates": tuple(some),
        "methods": ("draft-simple",) if drafted else (),
        "prompts": prompts(),
        "settings": EngineSettings(),
        "sampling": Sampling(),
        "threads": (2,),
        "minutes": 10.0,
        "max_tokens": 32,
        **changes,
    }
    return Job(**values)


def state(tmp_path: Path, what: Job, machine: Machine, head: Any = "the same") -> State:
    return State(tmp_path / "tune" / "state.jsonl", {"head": head}, what.prompts, machine.clock)


def search(tmp_path: Path, machine: Machine, what: Job | None = None) -> tuple[Answer, list[Step]]:
    what = what or job(tmp_path)
    steps = list(tune(what, machine.open, state(tmp_path, what, machine)))
    last = steps[-1]
    assert isinstance(last, Answer)
    return last, steps


def winner(answer: Answer) -> str | None:
    return answer.choice.winner.name if answer.choice.winner else None
