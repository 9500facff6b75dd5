"""Drafts of tiny targets, their costs as told: what must come out is known exactly."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from specctl.bench import selfdraft
from specctl.bench.costs import MeasuredCosts, Timing
from specctl.bench.selfdraft import make
from specctl.bench.selfdraft_plan import DraftPlan
from specctl.bench.selfdraft_steps import Outcome, Step
from specctl.bench.workloads import Prompt
from specctl.hub import drafts
from specctl.settings import EngineSettings

SETTINGS = EngineSettings(n_ctx=512, threads=1)
PROMPTS = (Prompt("words", "one", " amber anchor"), Prompt("words", "two", " cedar cherry"))


def plan(target: Path, **changes: Any) -> DraftPlan:
    known: dict[str, Any] = {
        "name": target.name, "target": target, "prompts": PROMPTS, "workload": "words",
        "quants": ("Q8_0",), "settings": SETTINGS, "ks": (1, 2, 4), "max_tokens": 40, "rounds": 2,
    }  # fmt: skip
    return DraftPlan(**{**known, **changes})


def steps_of(plan: DraftPlan) -> Generator[Step, None, None]:
    from specctl.engine.session import open_session

    return make(plan, open_session)


def outcome_of(plan: DraftPlan) -> Outcome:
    *_, last = steps_of(plan)
    assert isinstance(last, Outcome)
    return last


def left() -> list[str]:
    """What the drafts' folder holds."""
    return (
        sorted(path.name for path in drafts.folder().glob("*")) if drafts.folder().exists() else []
    )


def told_costs(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Call it with a draft's step over the target's; verifying costs nothing more."""

    def told(step: float) -> None:
        def measured(*_: Any, **__: Any) -> Generator[Any, None, MeasuredCosts]:
            plain, draft = Timing((0.01,) * 3), Timing((0.01 * step,) * 3)
            yield from ()
            return MeasuredCosts(30, plain, ((2, plain), (5, plain)), draft, draft, draft)

        monkeypatch.setattr(selfdraft, "measure_costs", measured)

    return told
