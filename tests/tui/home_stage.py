"""A home screen with a scripted desk: what is looked at and pulled comes when the test says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from specctl.errors import UsageError
from specctl.tui.app import SpecctlApp
from specctl.tui.feed import Drain
from specctl.tui.home_state import (
    Action,
    Event,
    Home,
    Looking,
    MachineRow,
    ModelRow,
    Proposal,
    Pulled,
    Pulling,
    ResultRow,
    Seen,
)
from specctl.tui.screens.home import HomeScreen

DOCTOR = Action("page", ("doctor",), "this machine")
MACHINE = Seen(
    "machine",
    (
        MachineRow(
            "machine",
            (
                ("CPU", "AMD Ryzen 7 5800X 8-Core Processor\n8 cores to use, AVX2"),
                ("RAM", "31.2 GiB, 27.4 GiB available\n38.2 GB/s, measured 2026-11-02"),
                ("GPU 0", "NVIDIA GeForce RTX 3060\n12.0 GiB, 11.4 GiB free\n360 GB/s, data sheet"),
                ("Disk", "212.0 GiB free for models\n~/.local/share/specctl/models"),
                ("Engine", "llama-cpp-python 0.3.36, CPU only, 153 architectures"),
            ),
            "A model can use 10.9 GiB on NVIDIA GeForce RTX 3060: 11.4 GiB free − 512.0 MiB.",
            ("NVIDIA GeForce RTX 3060 is idle: this build has no GPU backend for it",),
            (DOCTOR,),
        ),
    ),
)


def pull(name: str, size: str = "5.3 GiB") -> Action:
    ask = (f"{name}: {size} to fetch", "into /models, 212.0 GiB free")
    return Action("pull", ("pull", name), "Pull it?", ask)


def run(name: str) -> tuple[Action, ...]:
    return (
        Action("chat", ("chat", "--model", name), "chat with it"),
        Action("bench", ("bench", "--quick", "--tui", "--model", name), "bench it"),
        Action("tune", ("tune", name), "tune it"),
    )


def proposal(index: int, here: bool = False, **changes: Any) -> Proposal:
    name = f"model-{index}-8b:Q4_K_M+draft-simple"
    values: dict[str, Any] = {
        "key": name,
        "name": f"model-{index}-8b Q4_K_M",
        "drafter": "draft-simple K 2 (model-0.6b)",
        "speed": "≈33–47 → 37–83 tok/s",
        "get": "" if here else "≈ 5.3 GiB",
        "facts": ("apache-2.0", "7.4/10.9 GiB", "class 3", "ctx ≤ 8K"),
        "actions": run(name) if here else (pull(name),),
    }
    return Proposal(**(values | changes))


RECOMMENDED = Seen(
    "recommended",
    (proposal(1), proposal(2, here=True), proposal(3), proposal(4)),
    "all speeds are estimates (≈)",
)


def model(name: str, size: str = "4.7 GiB", note: str = "") -> ModelRow:
    return ModelRow(name, name, size, note, run(name))


DOWNLOADED = Seen(
    "downloaded",
    (
        model("demo", "93.8 MiB", "SmolLM2-135M Q4_1"),
        model("demo-f16", "", "the same as F16, made when first used"),
        model("俳句-ひねもすのたりのたりかな-7B-a-name-that-goes-on-and-on-Q4_K_M.gguf"),
        model("model-2-8b:Q4_K_M+draft-simple", note="with its draft, Hugging Face cache"),
    ),
)
RESULTS = Seen(
    "results",
    (
        ResultRow(
            "a.json",
            "2026-11-30 09:12",
            "SmolLM2-135M-Instruct.F16.gguf",
            (
                ("faster", "auto 1.43× faster (1.39–1.51)"),
                ("slower", "ngram-cache 0.71× slower (0.69–0.74)"),
                ("never drafted", "ngram-mod never drafted"),
            ),
            "stopped early",
            actions=(Action("page", ("bench", "page", "a"), "its report"),),
        ),
        ResultRow("b.json", "2026-11-29 22:01", "b.json", broken="b.json is damaged: no 'report'"),
        ResultRow(
            "c.jsonl",
            "2026-11-28 10:00",
            "recording, qwen15-f16.gguf",
            note="auto: “Say it again.”",
            actions=(Action("replay", ("replay", "/c.jsonl"), "replay it"),),
        ),
    ),
)
ALL = (MACHINE, RECOMMENDED, DOWNLOADED, RESULTS)


def home(*events: Event) -> Home:
    """A state after these, or after all sections were seen."""
    state = Home(title="0.1.0")
    for event in events or ALL:
        state.apply(event)
    return state


@dataclass
class ScriptedDesk:
    """Looks give `seen`. A pull waits for `steps.release()` between its events."""

    seen: tuple[Event, ...] = ALL
    looked: int = 0
    pulls: list[Action] = field(default_factory=list)
    steps: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    stopped: threading.Event = field(default_factory=threading.Event)

    def look(self) -> Iterator[Event]:
        self.looked += 1
        yield Looking()
        yield from self.seen

    def pull(self, action: Action) -> Iterator[Event]:
        self.pulls.append(action)
        self.stopped.clear()
        name = action.argv[-1]
        for done in range(0, 101, 25):
            yield Pulling(name, "fetching", done, 100, f"{done}.0 MiB of 100.0 MiB  24.0 MiB/s")
            assert self.steps.acquire(timeout=20), "the test never let this pull go on"
            if self.stopped.is_set():
                yield Pulled(f"{name}: stopped; what was fetched is kept")
                return
        yield Pulled(f"{name}: 100.0 MiB fetched")

    def stop_pull(self) -> None:
        self.stopped.set()
        self.steps.release()

    def page(self, action: Action) -> Callable[[int], Text]:
        if action.argv[-1] == "gone":
            raise UsageError("no result gone")
        return lambda width: Text(f"{action.line} at {width} cells\n" * 60)


Look = Callable[[Any, HomeScreen], Awaitable[None]]


async def settle(pilot: Any, screen: HomeScreen) -> None:
    """Until what the desk has said is on the screen."""
    await asyncio.to_thread(screen._looks.wait)
    await pilot.pause()
    screen._tick()
    await pilot.pause()


def play(look: Look, desk: ScriptedDesk | None = None, size: tuple[int, int] = (120, 40)) -> None:
    """Run the screen until `look` has looked."""

    async def run_it() -> None:
        looks: Drain[Event] = Drain()
        pulls: Drain[Event] = Drain()
        screen = HomeScreen(desk or ScriptedDesk(), Home(title="0.1.0"), looks, pulls)
        async with SpecctlApp(screen).run_test(size=size) as pilot:
            await pilot.pause()
            await settle(pilot, screen)
            await look(pilot, screen)
        looks.close()
        pulls.close()

    asyncio.run(run_it())
