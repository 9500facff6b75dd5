"""The home screen under a pilot: what keys do, what is asked before, what goes to the desk."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from home_stage import DOWNLOADED, ScriptedDesk, model, play, settle

from specctl.tui.app import SpecctlApp
from specctl.tui.home_state import SECTIONS, Action, Failed, ResultRow, Seen
from specctl.tui.messages import Note
from specctl.tui.screens.ask import ConfirmScreen, MenuScreen
from specctl.tui.screens.help import HelpScreen
from specctl.tui.screens.home import HomeScreen
from specctl.tui.screens.page import TextScreen
from specctl.tui.widgets.homepanel import HomePanel, Lines


def shown(screen: HomeScreen, name: str) -> str:
    return screen.query_one(f"#home-{name}").render().plain


def toasts(screen: HomeScreen) -> str:
    return "\n".join(one.message for one in screen.app._notifications)


async def until(true: Any, pilot: Any, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        await pilot.pause(0.02)


def test_all_four_sections_are_there():
    async def look(pilot: Any, screen: HomeScreen) -> None:
        assert "A model can use 10.9 GiB" in shown(screen, "machine")
        assert "model-1-8b" in shown(screen, "recommended")
        assert "demo-f16" in shown(screen, "downloaded")
        assert "auto 1.43×" in shown(screen, "results")
        assert "looking" not in shown(screen, "title")

    play(look)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 10)])
def test_tab_goes_round_and_the_section_in_focus_is_open(size):
    async def look(pilot: Any, screen: HomeScreen) -> None:
        seen = []
        for _ in range(5):
            seen.append(screen.home.focus)
            panel = screen.query_one(f"#home-{screen.home.focus}", HomePanel)
            assert screen.focused is panel
            assert panel.content_size.height >= 2
            await pilot.press("tab")
            await pilot.pause()
        assert seen == ["downloaded", "results", "machine", "recommended", "downloaded"]
        await pilot.press("shift+tab", "shift+tab")
        assert screen.home.focus == "recommended"

    play(look, size=size)


def test_a_key_right_after_tab_meets_the_new_section():
    async def look(pilot: Any, screen: HomeScreen) -> None:
        screen.action_turn(1)  # results; nothing has been drawn or focused since
        screen.action_open()
        await pilot.pause()
        assert isinstance(screen.app.screen, TextScreen)

    play(look)


def test_arrows_go_on_into_the_next_section():
    async def grid(pilot: Any, screen: HomeScreen) -> None:
        await pilot.press("up")
        assert screen.home.focus == "machine"  # above it in the grid
        await pilot.press("right")
        assert screen.home.focus == "recommended"
        await pilot.press(*["down"] * 4)
        assert screen.home.focus == "results"
        await pilot.press("left")
        assert screen.home.focus == "downloaded"

    async def stack(pilot: Any, screen: HomeScreen) -> None:
        await pilot.press("up")
        assert screen.home.focus == "recommended"
        await pilot.press("end", "down")
        assert screen.home.focus == "downloaded"

    play(grid)
    play(stack, size=(80, 24))


def test_enter_on_a_model_is_a_menu_with_the_commands():
    async def look(pilot: Any, screen: HomeScreen) -> None:
        await pilot.press("down", "enter")
        assert isinstance(screen.app.screen, MenuScreen)
        await pilot.press("escape")
        assert screen.chosen is None
        await pilot.press("enter", "down", "enter")
        assert screen.chosen is not None
        assert screen.chosen.line == "specctl bench --quick --tui --model demo-f16"
        assert screen.app._exit

    play(look)


@pytest.mark.parametrize(("key", "verb"), [("c", "chat"), ("b", "bench")])
def test_a_key_starts_it_at_once(key, verb):
    async def look(pilot: Any, screen: HomeScreen) -> None:
        await pilot.press(key)
        assert screen.chosen is not None
        assert (screen.chosen.verb, screen.chosen.argv[-1]) == (verb, "demo")

    play(look)


def test_what_is_not_here_cannot_be_chatted_with_and_says_why():
    async def look(pilot: Any, screen: HomeScreen) -> None:
        screen.home.go("recommended")
        await pilot.press("c")
        assert screen.chosen is None
        assert "nothing to chat: Enter pulls it" in toasts(screen)
        await pilot.press("down", "c")  # the second one is here
        assert screen.chosen is not None

    play(look)


def test_a_pull_is_asked_about_then_shown_then_looked_at():
    desk = ScriptedDesk()

    async def look(pilot: Any, screen: HomeScreen) -> None:
        screen.home.go("recommended")
        await pilot.press("enter")
        assert isinstance(screen.app.screen, ConfirmScreen)
        await pilot.press("n")
        assert not desk.pulls
        await pilot.press("p", "enter")
        await until(lambda: desk.pulls, pilot)
        assert desk.pulls[0].argv == ("pull", "model-1-8b:Q4_K_M+draft-simple")
        desk.steps.release(2)
        await until(lambda: "50.0 MiB of 100.0 MiB" in shown(screen, "pull"), pilot)
        assert screen.query_one("#home-pull").display
        await pilot.press("tab", "c")  # not while it runs
        assert screen.chosen is None
        assert "a pull is running" in toasts(screen)
        looked = desk.looked
        desk.steps.release(9)
        await until(lambda: screen.home.pulling is None, pilot)
        await until(lambda: desk.looked == looked + 1, pilot)
        assert "100.0 MiB fetched" in toasts(screen)
        await pilot.pause(0.2)
        assert not screen.query_one("#home-pull").display

    play(look, desk)


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
def test_esc_stops_a_pull_and_says_that_it_is_kept(key):
    desk = ScriptedDesk()

    async def look(pilot: Any, screen: HomeScreen) -> None:
        screen.home.go("recommended")
        await pilot.press("p", "y")
        await until(lambda: desk.pulls, pilot)
        await pilot.press(key)
        await until(lambda: screen.home.pulling is None, pilot)
        assert "what was fetched is kept" in toasts(screen)
        assert screen.app._running
        await pilot.press(key)
        assert "Ctrl-Q quits" in toasts(screen)

    play(look, desk)


def test_a_result_opens_as_a_page_and_a_broken_one_does_nothing():
    async def look(pilot: Any, screen: HomeScreen) -> None:
        screen.home.go("results")
        await pilot.press("enter")
        assert isinstance(screen.app.screen, TextScreen)
        page = screen.app.screen.query_one("#page").render()
        assert "specctl bench page a at 117 cells" in str(page)
        await pilot.press("escape", "down", "enter")
        assert screen.app.screen is screen
        await pilot.press("down", "enter")
        assert screen.chosen is not None
        assert screen.chosen.argv == ("replay", "/c.jsonl")

    play(look)


def test_a_page_that_cannot_be_made_is_a_message():
    action = Action("page", ("bench", "page", "gone"))
    gone = Seen("results", (ResultRow("gone", "2026-11-30", "gone", actions=(action,)),))

    async def look(pilot: Any, screen: HomeScreen) -> None:
        screen.home.go("results")
        await pilot.press("enter")
        assert screen.app.screen is screen
        assert "no result gone" in toasts(screen)

    play(look, ScriptedDesk((gone,)))


def test_refresh_looks_again_and_keeps_the_row():
    desk = ScriptedDesk()

    async def look(pilot: Any, screen: HomeScreen) -> None:
        await pilot.press("down", "down")
        row = screen.home.row
        desk.seen = (Seen("downloaded", (model("new.gguf"), *DOWNLOADED.rows)),)
        await pilot.press("r")
        await settle(pilot, screen)
        assert desk.looked == 2
        assert screen.home.row == row
        assert "new.gguf" in shown(screen, "downloaded")

    play(look, desk)


def test_notes_and_failures_are_said_where_they_belong():
    desk = ScriptedDesk((Failed("downloaded", "cannot read /x: Permission denied"), Note("a word")))

    async def look(pilot: Any, screen: HomeScreen) -> None:
        assert "cannot read /x" in shown(screen, "downloaded")
        assert "a word" in toasts(screen)
        assert shown(screen, "results") == "looking …"
        await pilot.press("enter", "c", "p", "down", "end")  # nothing to do it with
        assert screen.app._running

    play(look, desk)


def test_a_click_selects_and_a_second_one_opens():
    async def look(pilot: Any, screen: HomeScreen) -> None:
        await pilot.click("#home-recommended", offset=(6, 4))  # border, then two lines a row
        assert (screen.home.focus, screen.home.parts["recommended"].at) == ("recommended", 1)
        await pilot.click("#home-recommended", offset=(6, 4))
        assert isinstance(screen.app.screen, MenuScreen)

    play(look)


def test_resizing_lays_out_anew():
    async def look(pilot: Any, screen: HomeScreen) -> None:
        for size in ((40, 10), (160, 45), (20, 5), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.2)
            panels = [panel for panel in screen.query(HomePanel) if panel.region.height]
            below = [one.region for one in screen.query(Lines) if one.region.height]
            if size == (20, 5):
                assert not any(panel.is_on_screen for panel in screen.query(HomePanel))
                continue
            assert len(panels) == len(SECTIONS)
            bottom = max(panel.region.bottom for panel in panels)
            assert bottom <= size[1] - 2
            assert max(region.bottom for region in below) == size[1]

    play(look)


def test_help_and_the_palette_know_the_keys():
    async def look(pilot: Any, screen: HomeScreen) -> None:
        app = screen.app
        assert isinstance(app, SpecctlApp)
        titles = [command.title for command in app.get_system_commands(screen)]
        assert {"All keys", "Chat", "Bench", "Pull", "Look again"} <= set(titles)
        await pilot.press("f1")
        assert isinstance(app.screen, HelpScreen)

    play(look)


def test_the_first_picture_does_not_wait_for_the_looking():
    """The sections stand there while the desk has not said a word."""
    desk = ScriptedDesk()
    original = desk.look

    def slow() -> Any:
        assert desk.steps.acquire(timeout=20)
        yield from original()

    desk.look = slow  # type: ignore[method-assign]

    async def run() -> None:
        from specctl.tui.feed import Drain
        from specctl.tui.home_state import Home

        looks, pulls = Drain(), Drain()
        screen = HomeScreen(desk, Home(), looks, pulls)
        async with SpecctlApp(screen).run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            assert shown(screen, "machine") == "looking …"
            assert "looking" in shown(screen, "title")
            desk.steps.release()
            await settle(pilot, screen)
            assert "A model can use" in shown(screen, "machine")
        looks.close()
        pulls.close()

    asyncio.run(run())
