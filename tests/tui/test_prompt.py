"""The field one types into, and the search line."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.pilot import Pilot

from specctl.tui.widgets.prompt import REMEMBERED, History, PromptInput
from specctl.tui.widgets.search import SearchBar

KEYS = (
    *(f"f{n}" for n in range(1, 13)),
    "ctrl+q",
    "ctrl+c",
    "ctrl+p",
    "ctrl+f",
    "ctrl+y",
    "pageup",
)


class PromptApp(App[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding(key, f"seen('{key}')") for key in KEYS]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, history: Path | None = None) -> None:
        super().__init__()
        self.sent: list[str] = []
        self.seen: list[str] = []
        self.search: list[object] = []
        self._history = history

    def compose(self) -> ComposeResult:
        yield SearchBar()
        yield PromptInput(self._history)

    def on_mount(self) -> None:
        self.prompt.focus()

    @property
    def prompt(self) -> PromptInput:
        return self.query_one(PromptInput)

    def action_seen(self, key: str) -> None:
        self.seen.append(key)

    def on_prompt_input_submitted(self, event: PromptInput.Submitted) -> None:
        self.sent.append(event.text)

    def on_search_bar_sought(self, event: SearchBar.Sought) -> None:
        self.search.append(event.text)
        self.query_one(SearchBar).found(len(event.text))

    def on_search_bar_next(self, event: SearchBar.Next) -> None:
        self.search.append(event.step)

    def on_search_bar_closed(self) -> None:
        self.search.append(None)
        self.prompt.focus()


def on_screen(
    check: Callable[[PromptApp, Pilot[None]], Awaitable[None]], history: Path | None = None
) -> None:
    async def run() -> None:
        app = PromptApp(history)
        async with app.run_test(size=(60, 20)) as pilot:
            await pilot.pause()
            await check(app, pilot)

    asyncio.run(run())


def test_enter_sends_and_ctrl_j_makes_a_line() -> None:
    async def check(app: PromptApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter", *"ab", "ctrl+j", "c", "shift+enter", "alt+enter", "d")
        assert app.prompt.text == "ab\nc\n\nd"
        await pilot.press("enter")
        assert app.sent == ["ab\nc\n\nd"]
        assert app.prompt.text == ""
        await pilot.press("space", "enter")
        assert len(app.sent) == 1

    on_screen(check)


def test_grows_to_its_limit() -> None:
    async def check(app: PromptApp, pilot: Pilot[None]) -> None:
        assert app.prompt.size.height == 1
        await pilot.press("a", "ctrl+j", "b")
        assert app.prompt.size.height == 2
        await pilot.press(*["ctrl+j"] * 10)
        assert app.prompt.size.height == 6
        app.prompt.max_lines = 3
        await pilot.pause()
        assert app.prompt.size.height == 3
        await pilot.press("enter")
        await pilot.pause()
        assert app.prompt.size.height == 1

    on_screen(check)


def test_paste_keeps_lines_and_replaces_what_steers() -> None:
    async def check(app: PromptApp, pilot: Pilot[None]) -> None:
        app.prompt.post_message(events.Paste("a\rb\r\nc\n\x1b[2Jd"))
        await pilot.pause()
        assert app.prompt.text == "a\nb\nc\n␛[2Jd"
        await pilot.press("x")
        assert app.prompt.text.endswith("dx")
        assert app.sent == []

    on_screen(check)


def test_keys_of_the_screen_pass_through() -> None:
    async def check(app: PromptApp, pilot: Pilot[None]) -> None:
        await pilot.press(*KEYS)
        assert app.seen == list(KEYS)
        assert app.prompt.text == ""

    on_screen(check)


def test_ctrl_c_copies_where_text_is_selected() -> None:
    async def check(app: PromptApp, pilot: Pilot[None]) -> None:
        await pilot.press(*"word", "shift+left", "shift+left", "ctrl+c")
        assert app.clipboard == "rd"
        assert app.seen == []

    on_screen(check)


def test_history_is_walked_and_the_draft_kept() -> None:
    async def check(app: PromptApp, pilot: Pilot[None]) -> None:
        await pilot.press("a", "enter", "b", "ctrl+j", "c", "enter", *"draft", "up")
        assert app.prompt.text == "b\nc"
        await pilot.press("up")  # within the message first
        assert app.prompt.text == "b\nc"
        await pilot.press("up")
        assert app.prompt.text == "a"
        await pilot.press("up")
        assert app.prompt.text == "a"
        await pilot.press("down", "down")
        assert app.prompt.text == "draft"
        await pilot.press("down")
        assert app.prompt.text == "draft"

    on_screen(check)


def test_history_is_kept_for_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history.jsonl"

    async def write(app: PromptApp, pilot: Pilot[None]) -> None:
        await pilot.press(*"hi", "ctrl+j", "x", "enter", "a", "enter", "a", "enter")

    async def read(app: PromptApp, pilot: Pilot[None]) -> None:
        await pilot.press("up", "up")
        assert app.prompt.text == "hi\nx"

    on_screen(write, path)
    assert [json.loads(line) for line in path.read_text().splitlines()] == ["hi\nx", "a"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    on_screen(read, path)


def test_history_is_bounded_and_damage_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("\n".join(["{", "3", *(json.dumps(str(n)) for n in range(REMEMBERED + 9))]))
    history = History(path)
    assert len(history.messages) == REMEMBERED
    assert history.walk(-1, "") == str(REMEMBERED + 8)
    assert len(path.read_text().splitlines()) == REMEMBERED
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_history_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = History(tmp_path / "file" / "history")
    history.add("kept in memory")
    assert history.walk(-1, "") == "kept in memory"


def test_search_line() -> None:
    async def check(app: PromptApp, pilot: Pilot[None]) -> None:
        bar = app.query_one(SearchBar)
        assert not bar.display
        bar.open()
        await pilot.press(*"ab", "enter", "up", "down")
        assert bar.display
        assert app.search == ["a", "ab", 1, -1, 1]
        assert "2 found" in str(bar.query_one("#search-count").render())
        bar.found(2, 1)
        await pilot.pause()
        assert "1 of 2" in str(bar.query_one("#search-count").render())
        await pilot.press("escape")
        assert app.search[-1] is None
        assert not bar.display
        assert app.prompt.has_focus

    on_screen(check)
