"""Live states made by hand, for the tests of the panels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from specctl.events import Cycle, Decision, Interval, PromptDone, Started
from specctl.tui.messages import Event, Ready
from specctl.tui.state import Live

T_1 = 0.02


def cycle(
    k: int,
    accepted: int,
    index: int = 0,
    reason: str | None = None,
    source: str = "draft-simple",
    **changes: Any,
) -> Cycle:
    """Plain: 20 ms. Drafted: 4 + 30 + 2 ms, so that break-even is 0.80 accepted."""
    values: dict[str, Any] = {
        "index": index,
        "asked": (source,),
        "source": source if k else None,
        "limit": 8,
        "drafted": tuple(range(k)),
        "accepted": accepted,
        "emitted": tuple(range(accepted + 1)),
        "text": "",
        "t_d": 0.004 if k else 0.0,
        "t_v": 0.030 if k else 0.020,
        "t_o": 0.002 if k else 0.0,
        "t_native": 0.018,
        "t_1": T_1,
        "n_past": 100,
        "clock": 0.0,
        "decision": Decision("draft" if k else "plain", reason or ("" if k else "no match")),
    }
    return Cycle(**(values | changes))


def interval(**changes: Any) -> Interval:
    values: dict[str, Any] = {
        "seconds": 1.0,
        "passes": 10,
        "drafted_passes": 8,
        "drafted": 24,
        "accepted": 12,
        "emitted": 22,
        "accepted_at": (8, 4),
        "drafted_at": (8, 8, 8),
        "exact": True,
        "source": "server",
        "clock": 1.0,
    }
    return Interval(**(values | changes))


def live(
    events: Iterable[Event] = (), spec: tuple[str, ...] = ("draft-simple",), **ready: Any
) -> Live:
    """A state that is writing: opened, asked, prompt read, then `events`."""
    state = Live()
    values: dict[str, Any] = {
        "model": "/models/Qwen3-8B-Q4_K_M.gguf",
        "draft_model": None,
        "spec_types": spec,
        "k": 4,
        "k_max": 48,
        "n_ctx": 4096,
        "threads": 4,
        "temperature": 0.0,
        "device": "CPU",
    }
    state.apply(Ready(**(values | ready)))
    state.apply(Started("m", None, spec, 4, 101, state.n_ctx, 4, 0.0, 1, 0.0))
    state.apply(PromptDone(101, 0, 0.5))
    for event in events:
        state.apply(event)
    return state


def asked() -> Live:
    """The prompt is being read."""
    state = live()
    state.apply(Started("m", None, state.spec_types, 4, 101, state.n_ctx, 4, 0.0, 1, 0.0))
    return state


# 8 drafted cycles that accept 2 on average (break-even 0.80), 2 plain ones
GOOD = [
    *(cycle(3, accepted, index) for index, accepted in enumerate((3, 3, 3, 2, 2, 2, 1, 0))),
    cycle(0, 0, 8),
    cycle(0, 0, 9),
]
BAD = [cycle(3, index % 2, index) for index in range(10)]  # 0.5 on average
REJECTED = [cycle(4, 0, index) for index in range(10)]
PLAIN = [cycle(0, 0, index, f"no match of {index}") for index in range(8)] + [
    cycle(0, 0, 8, "measuring a plain step"),
    cycle(0, 0, 9, "measuring a plain step"),
]
HUGE = [cycle(48, accepted, index) for index, accepted in enumerate((48, 0, 1, 30))]
UNKNOWN = interval(passes=None, drafted_passes=None, drafted_at=None, exact=False)


def states() -> dict[str, Live]:
    """Every kind of state a panel meets."""
    return {
        "opening": Live(),
        "prompt": asked(),
        "good": live(GOOD),
        "bad": live(BAD),
        "rejected": live(REJECTED),
        "plain": live(PLAIN, ("none",)),
        "auto plain": live(PLAIN, ("auto",)),
        "huge": live(HUGE, ("auto",), n_ctx=64, draft_model="draft-模型-Q8_0.gguf"),
        "no t_1": live([cycle(3, 2, t_1=None)]),
        "intervals": live([interval(), interval(accepted=3)]),
        "unknown": live([UNKNOWN]),
    }
