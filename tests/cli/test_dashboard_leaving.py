"""What is left behind when the home screen is left: looks and pulls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("textual")

from specctl.cli import dashboard, screen
from specctl.cli.render import err
from specctl.tui.feed import Drain
from specctl.tui.home_state import Action, Event, Home, Looking, Pulled, Pulling


@pytest.fixture(autouse=True)
def _stderr_of_this_test(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    err.cache_clear()
    yield
    err.cache_clear()


def ended(*events: Event) -> tuple[Home, Drain[Event]]:
    """A pull that the screen shows as running, and what has come of it since the last look."""
    home, pulls = Home(), Drain[Event]()
    home.apply(Pulling("a/b", "fetching", 50, 100))
    for event in events:
        pulls.put(event)
    return home, pulls


@pytest.mark.parametrize(
    "end",
    [
        Pulled("a/b: 100.0 MiB fetched in 4 s"),
        Pulled("a/b: sha256 is not that of the hub", "error"),
    ],
)
def test_a_pull_that_has_ended_meanwhile_is_not_called_stopped(
    end: Pulled, capsys: pytest.CaptureFixture[str]
) -> None:
    home, pulls = ended(end)
    dashboard._end_pull(home, pulls)
    assert capsys.readouterr().err == end.text + "\n"
    assert home.pulling is None


def test_one_that_does_not_end_is_told_by_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "PATIENCE", 0.05)
    home, pulls = ended()
    home.apply(Pulling("hf:a/b[red]x", "fetching"))
    hold = threading.Event()

    def stalled() -> Iterator[Event]:
        hold.wait(20)
        yield Looking()

    pulls.submit(stalled)
    dashboard._end_pull(home, pulls)
    hold.set()
    said = capsys.readouterr().err
    assert "specctl pull hf:a/b[red]x goes on there" in said
    assert home.pulling is None


class Desk:
    """Looks that take until they are let go on, one section after the other."""

    def __init__(self) -> None:
        self.begun, self.release = threading.Event(), threading.Event()
        self.sections = 0
        self.ended = False

    def look(self) -> Iterator[Event]:
        try:
            for _ in range(3):
                self.sections += 1
                self.begun.set()
                assert self.release.wait(20)
                yield Looking()
        finally:
            self.ended = True

    def stop_pull(self) -> None:
        """Nothing runs."""


@pytest.mark.parametrize("chosen", [Action("bench", ("bench",)), None])
def test_no_look_runs_beside_a_command(
    chosen: Action | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    desk: Any = Desk()

    def shown(make: Any, _theme: Any) -> None:
        home_screen = make()
        home_screen.chosen = chosen
        home_screen._looks.submit(desk.look)
        assert desk.begun.wait(20)
        if chosen is not None:
            threading.Timer(0.2, desk.release.set).start()

    monkeypatch.setattr(screen, "run", shown)
    assert dashboard._shown(desk, Home(), None) == chosen
    assert desk.ended == (chosen is not None)  # quitting waits for nothing
    desk.release.set()
    assert desk.sections == 1  # the rest of it is not looked at
