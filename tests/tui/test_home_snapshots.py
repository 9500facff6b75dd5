"""The home screen as pictures. `pytest --snapshot-update` after looking at them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from home_stage import ALL, ScriptedDesk, model, pull, settle

from specctl.tui.app import SpecctlApp
from specctl.tui.feed import Drain
from specctl.tui.home_state import Event, Failed, Home, Pulling, Seen
from specctl.tui.screens.ask import ConfirmScreen
from specctl.tui.screens.home import HomeScreen

SnapCompare = Callable[..., Any]
SIZES = [(40, 10), (80, 24), (120, 40), (160, 45)]
MANY = Seen("downloaded", tuple(model(f"org/model-{n:03}/file-Q4_K_M.gguf") for n in range(100)))
EMPTY = (
    Seen("recommended", (), "all speeds are estimates (≈)", "Nothing fits."),
    Seen("downloaded", (), "", "nothing downloaded: Enter on a recommended row, or specctl pull"),
    Seen("results", (), "", "nothing measured yet: specctl bench --quick"),
    Failed("machine", "SPECCTL_MODELS='~nobody/x': no such user"),
)
PULLING = Pulling("model-1-8b:Q4_K_M", "fetching 1/2", 30, 100, "1.6 GiB of 5.3 GiB  24.0 MiB/s")


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")


@pytest.fixture
def compare(snap_compare: SnapCompare) -> Callable[..., bool]:
    """Compare the screen over `events`, in a size; `theme` and `ascii_only` as one wishes."""

    def run(size: tuple[int, int], *events: Event, theme: str = "", **options: Any) -> bool:
        looks: Drain[Event] = Drain()
        pulls: Drain[Event] = Drain()
        desk = ScriptedDesk(events or ALL)
        screen = HomeScreen(desk, Home(title="0.1.0"), looks, pulls, **options)
        app = SpecctlApp(screen, theme or None)

        async def settled(pilot: Any) -> None:
            await pilot.pause()
            await settle(pilot, screen)

        same = snap_compare(app, terminal_size=size, run_before=settled)
        looks.close()
        pulls.close()
        return bool(same)

    return run


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_home(compare: Callable[..., bool], size: tuple[int, int]):
    assert compare(size)


def test_in_ascii(compare: Callable[..., bool]):
    assert compare((120, 40), ascii_only=True)


def test_in_ascii_small(compare: Callable[..., bool]):
    assert compare((80, 24), ascii_only=True)


def test_in_the_light(compare: Callable[..., bool]):
    assert compare((120, 40), theme="textual-light")


def test_without_colour(compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert compare((80, 24))


def test_empty_and_failed(compare: Callable[..., bool]):
    assert compare((80, 24), *EMPTY)


def test_a_hundred_models_and_a_pull(compare: Callable[..., bool]):
    assert compare((120, 40), *ALL[:2], MANY, ALL[3], PULLING)


def test_the_question_before_a_pull(snap_compare: SnapCompare):
    looks: Drain[Event] = Drain()
    pulls: Drain[Event] = Drain()
    screen = HomeScreen(ScriptedDesk(), Home(title="0.1.0"), looks, pulls)

    async def asked(pilot: Any) -> None:
        await pilot.pause()
        await settle(pilot, screen)
        screen.app.push_screen(ConfirmScreen(pull("model-1-8b:Q4_K_M+draft-simple")))
        await pilot.pause()

    assert snap_compare(SpecctlApp(screen), terminal_size=(80, 24), run_before=asked)
    looks.close()
    pulls.close()
