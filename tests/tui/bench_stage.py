"""A scripted benchmark whose runs wait for a word: every moment of it can be looked at."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.text import Text

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from fake_bench import GOOD, SILENT, Cost, FakeSession, arm

from specctl.bench.results import Outcome
from specctl.bench.run import BenchPlan
from specctl.bench.workloads import Prompt
from specctl.settings import EngineSettings, Request, Sampling
from specctl.tui.bench_app import BenchApp
from specctl.tui.bench_worker import BenchWorker

SLOW = Cost(k=4, accepted=0, t_d=0.003, t_v=0.014, t_o=0.0005)  # one token in 17.5 ms: 0.57×
SAME = Cost(k=1, accepted=1, t_v=0.0199)  # two tokens in 19.9 ms: no difference
FAMILIES = ("code-edit", "template-fill", "summarise", "chat")


@dataclass
class Stage(FakeSession):
    """Generations wait for `go`. A recorded pass at `hold` cycles waits for `on` as well."""

    allowed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def go(self, runs: int = 1) -> None:
        """Let so many more generations pass."""
        self.allowed.release(runs)

    def generate(self, request: Request) -> Iterator[Any]:
        """As scripted, when it may."""
        records = super().generate(request)
        yield next(records)
        assert self.allowed.acquire(timeout=20), "the test never let this generation pass"
        yield from records


def stage(**changes: Any) -> Stage:
    """Four arms' worth of costs: good, slow, no difference, silent."""
    costs = {
        ("ngram-simple",): GOOD,
        ("ngram-cache",): SLOW,
        ("auto",): SAME,
        ("ngram-mod",): SILENT,
    }
    return Stage(costs, **changes)


def plan(
    *types: str, families: tuple[str, ...] = FAMILIES, each: int = 2, **more: Any
) -> BenchPlan:
    """Two prompts of each family."""
    return BenchPlan(
        model="a-model-with-a-name-Q4_K_M.gguf",
        draft=None,
        prompts=tuple(
            Prompt(family, f"p{i}", f"{family} number {i}")
            for family in families
            for i in range(each)
        ),
        arms=tuple(arm(*one.split("+")) for one in types or ("ngram-simple",)),
        settings=EngineSettings(),
        sampling=Sampling(),
        **{"max_tokens": 12, "repeats": 2, **more},
    )


def report_of(outcome: Outcome, width: int) -> Text:
    """Stands for the command's report."""
    return Text(f"the report of {len(outcome.runs)} runs at {width} cells\n" * 40)


def make_worker(tmp_path: Path, session: FakeSession, what: BenchPlan) -> BenchWorker:
    """A worker whose engine is the script."""
    model = tmp_path / "fake.gguf"
    model.write_bytes(b"GGUF")
    return BenchWorker(what, model, None, lambda: lambda *_: session)


def make_app(
    tmp_path: Path, session: FakeSession, what: BenchPlan, ascii_only: bool = False
) -> BenchApp:
    """The screen of it."""
    return BenchApp(make_worker(tmp_path, session, what), report_of, ascii_only)
