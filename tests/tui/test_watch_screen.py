"""The watch screen: sums of a server as a table and a picture, in every size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specctl.events import Interval
from specctl.tui.app import SpecctlApp
from specctl.tui.feed import Feed
from specctl.tui.messages import Event, Note, Ready
from specctl.tui.player import Player
from specctl.tui.screens.watch import WatchScreen
from specctl.tui.state import Live
from specctl.tui.widgets.intervals import Intervals, interval_lines
from specctl.tui.widgets.log import LogView
from specctl.tui.widgets.numbers import Numbers, number_lines

READY = Ready(
    "Qwen2.5-Coder-1.5B-Q4_K_M.gguf", None, ("draft-simple",), None, 0, 0, 0, 0.0,
    "llama-server b1-0c1e570",
)  # fmt: skip


def interval(at: int, *, passes: int = 24, drafts: int = 20, accepted: int = 50, **more: Any):
    values: dict[str, Any] = {
        "seconds": 0.9,
        "passes": passes,
        "drafted_passes": drafts,
        "drafted": 4 * drafts,
        "accepted": accepted,
        "emitted": passes + accepted,
        "accepted_at": (accepted // 2, accepted // 4, accepted // 8, accepted // 8),
        "drafted_at": None,
        "exact": True,
        "source": "llama-server",
        "clock": float(at),
        "t_1": 1 / 41.0,
    }
    return Interval(**{**values, **more})


def busy() -> list[Event]:
    """A minute: it goes well, then badly."""
    good = [interval(at, accepted=40 + at * 7 % 25) for at in range(1, 31)]
    bad = [interval(at, accepted=6 + at * 5 % 9) for at in range(31, 46)]
    alert = Note("acceptance has fallen to 0.34: its own baseline here was 0.65", "warning")
    return [
        READY,
        Note("llama-server counts when a request ends: nothing moves before"),
        *good,
        Note("the server restarted: its counters begin anew", "warning"),
        *bad,
        alert,
    ]


def staged(events: list[Event], **options: Any) -> tuple[WatchScreen, Feed]:
    feed = Feed()

    def job() -> Iterator[Event]:
        yield from events

    values: dict[str, Any] = {
        "title": "llama-server at http://127.0.0.1:8080",
        "intervals": True,
        "exports": Path(),
    }
    return WatchScreen(feed, job, **{**values, **options}), feed


def play(events: list[Event], size: tuple[int, int], look: Callable[[Any, WatchScreen], Any]):
    """Run the screen over the events, and look at it."""

    async def run() -> None:
        screen, feed = staged(events)
        async with SpecctlApp(screen).run_test(size=size) as pilot:
            await asyncio.to_thread(feed.wait)
            screen._tick()
            await pilot.pause()
            await look(pilot, screen)
        feed.close()

    asyncio.run(run())


def plain(screen: WatchScreen, kind: type) -> str:
    return screen.query_one(kind).render().plain


def test_what_it_shows(tmp_path):
    async def look(pilot: Any, screen: WatchScreen) -> None:
        table = plain(screen, Intervals)
        assert table.splitlines()[0].split()[:4] == ["at", "tok/s", "α", "drafted"]
        assert "0:45" in table.splitlines()[-1]
        numbers = plain(screen, Numbers)
        assert "plain 41.0 (given)" in numbers
        assert "by position" in numbers
        assert "of all 900 drafts" in numbers  # 45 × 20
        assert "restarted" in plain(screen, LogView)

    play(busy(), (120, 40), look)


def test_holding_the_picture_does_not_stop_the_watch():
    async def look(pilot: Any, screen: WatchScreen) -> None:
        before = plain(screen, Intervals)
        await pilot.press("space")
        screen._feed.put(interval(99))
        screen._tick()
        await pilot.pause()
        assert plain(screen, Intervals) == before
        await pilot.press("space")
        assert len(screen.live.intervals) == 46
        assert "1:39" in plain(screen, Intervals)

    play(busy(), (100, 30), look)


def test_keys_for_text_do_nothing_where_there_is_none():
    async def look(pilot: Any, screen: WatchScreen) -> None:
        await pilot.press("f4", "f7", "f8")
        assert screen.is_current

    play(busy(), (100, 30), look)


def test_an_error_leaves_the_screen_open_and_is_said():
    async def look(pilot: Any, screen: WatchScreen) -> None:
        assert screen.is_current
        assert "it broke" in plain(screen, LogView)

    play([READY, Note("it broke", "error")], (120, 40), look)


@pytest.mark.parametrize("width", [1, 7, 20, 40, 66, 120])
@pytest.mark.parametrize("height", [1, 2, 10])
def test_the_table_keeps_to_its_size(width, height):
    live = Live()
    for event in busy():
        live.apply(event)
    lines = interval_lines(live, width, height)
    assert len(lines) <= height
    assert all(line.cell_length <= width for line in lines)


def test_what_is_not_told_is_a_dash():
    live = Live()
    live.apply(READY)
    live.apply(Interval(0.5, None, None, 8, 4, None, (), None, False, "trtllm", 1.0))
    text = interval_lines(live, 80, 5)[-1].plain
    assert text.count("–") >= 4
    numbers = "\n".join(line.plain for line in number_lines(live, 80, 10))
    assert "– tok/s" in numbers
    assert "plain not known" in numbers
    assert "context" not in numbers


def test_drafting_time_where_only_that_is_told():
    live = Live()
    live.apply(READY)
    live.apply(interval(1, t_d=0.3))
    assert "draft 33 % of the time" in "\n".join(x.plain for x in number_lines(live, 80, 10))


def test_a_recording_of_intervals_replays():
    from specctl.events import Started

    head = Started("m", None, ("draft-simple",), 0, 0, 0, 0, 0.0, 0, 0.0)
    player = Player([head, interval(1), interval(2)])
    player.finish()
    assert player.live.phase == "writing"
    assert player.live.shown()[1] == "last 2 intervals"
    assert player.live.t_1 == pytest.approx(1 / 41)


SIZES = [(40, 10), (80, 24), (120, 40)]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_picture(snap_compare: Callable[..., Any], size, monkeypatch):
    monkeypatch.delenv("NO_COLOR")
    screen, feed = staged([one for one in busy() if not isinstance(one, Note)])

    async def settled(pilot: Any) -> None:
        await asyncio.to_thread(feed.wait)
        for one in busy():
            if isinstance(one, Note):  # toasts would move the picture
                screen.live.apply(one)
        screen._tick()
        screen._show()
        await pilot.pause()

    assert snap_compare(SpecctlApp(screen), terminal_size=size, run_before=settled)
    feed.close()
