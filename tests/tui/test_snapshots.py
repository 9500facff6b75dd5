"""The whole screen as pictures, fed from records. `pytest --snapshot-update` after looking at them.

A changed picture fails with a report that shows both side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import records as r

from specctl.events import Record
from specctl.recording import read
from specctl.tui.app import SpecctlApp
from specctl.tui.player import Player
from specctl.tui.screens.replay import ReplayScreen

RECORDING = Path(__file__).parents[2] / "docs" / "recordings" / "docstrings.jsonl"
SIZES = [(40, 10), (80, 24), (120, 40), (160, 45)]
SnapCompare = Callable[..., Any]


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")


def app(records: Sequence[Record], at: float | None = None, ascii_only: bool = False) -> SpecctlApp:
    """The replay of `records`, standing still at second `at` or at the end."""
    player = Player(records)
    player.finish() if at is None else player.seek(at)
    screen = ReplayScreen(player, exports=Path(), ascii_only=ascii_only)
    screen.paused = True
    return SpecctlApp(screen)


def answer(*cycles: Record, message: str = "Say it again.", **started: object) -> list[Record]:
    emitted = sum(len(cycle.emitted) for cycle in cycles)  # type: ignore[union-attr]
    return [r.started(message, **started), r.prompt(), *cycles, r.finished(emitted)]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("at", [20.0, None], ids=["running", "finished"])
def test_a_real_recording(snap_compare: SnapCompare, size: tuple[int, int], at: float | None):
    assert snap_compare(app(list(read(RECORDING)), at), terminal_size=size)


def test_below_break_even(snap_compare: SnapCompare):
    cycles = [
        r.cycle(i, ("a ", "b ")[: 1 + (i % 4 == 0)], drafted=4, t_v=0.06, rejected=" no")
        for i in range(30)
    ]
    assert snap_compare(app(answer(*cycles)), terminal_size=(120, 40))


def test_no_drafts_at_all(snap_compare: SnapCompare):
    cycles = [r.cycle(i, ("word ",), reason="off: nothing to propose") for i in range(30)]
    assert snap_compare(app(answer(*cycles)), terminal_size=(80, 24))


def test_thinking(snap_compare: SnapCompare):
    cycles = [
        r.cycle(0, ("I wonder", " about this."), drafted=3, rejected=" that"),
        r.cycle(1, ("</think>",)),
        r.cycle(2, ("It is **four**.",)),
    ]
    assert snap_compare(app(answer(*cycles, thinking=True)), terminal_size=(80, 24))


def test_wide_characters_keep_the_borders_straight(snap_compare: SnapCompare):
    line = "春の海 ひねもすのたり 👩‍👩‍👧 🇯🇵 e\u0301te\u0301 한국어 "
    cycles = [r.cycle(i, (line, "終わり\n"), drafted=2, rejected="冬") for i in range(12)]
    records = answer(*cycles, message="俳句 👋🏽")
    assert snap_compare(app(records), terminal_size=(120, 40))


def test_an_answer_that_failed(snap_compare: SnapCompare):
    cycles = [r.cycle(i, ("word ",)) for i in range(5)]
    records = [r.started(), r.prompt(), *cycles, r.finished(5, "error")]
    assert snap_compare(app(records), terminal_size=(80, 24))


def test_in_ascii(snap_compare: SnapCompare):
    records = list(read(RECORDING))
    assert snap_compare(app(records, 20.0, ascii_only=True), terminal_size=(80, 24))


def test_in_the_light(snap_compare: SnapCompare):
    light = app(list(read(RECORDING)), 20.0)
    light.theme = "textual-light"
    assert snap_compare(light, terminal_size=(120, 40))


def test_without_colour(snap_compare: SnapCompare, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(app(list(read(RECORDING)), 20.0), terminal_size=(80, 24))
