"""The chat screen under keys, with a scripted desk behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
import records as r
from scripted_desk import ScriptedDesk
from textual.pilot import Pilot

from specctl.tui.app import SpecctlApp
from specctl.tui.desk import Again, Ask, Change, Command, Open
from specctl.tui.feed import Feed
from specctl.tui.messages import Gauges, Note
from specctl.tui.screens.choose import ChooseScreen
from specctl.tui.screens.help import HelpScreen
from specctl.tui.screens.live import LiveScreen
from specctl.tui.sizes import size_class
from specctl.tui.widgets.dashboard import Dashboard
from specctl.tui.widgets.numbers import Numbers
from specctl.tui.widgets.prompt import PromptInput

ANSWER = (
    r.started("hi"),
    r.prompt(),
    r.cycle(0, ("Once", " upon"), drafted=3, rejected=" a time"),
    r.cycle(1, (" there",)),
    r.finished(3),
)


class Stage:
    """A live screen under a pilot."""

    def __init__(self, pilot: Pilot[None], screen: LiveScreen, feed: Feed) -> None:
        self.pilot, self.screen, self.feed = pilot, screen, feed

    async def settle(self) -> None:
        """All jobs done and drawn."""
        await asyncio.to_thread(self.feed.wait)
        self.screen._tick()
        await self.pilot.pause()

    async def until(self, true: Callable[[], bool]) -> None:
        for _ in range(200):
            self.screen._tick()
            if true():
                await self.pilot.pause()
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never came")

    @property
    def text(self) -> str:
        return self.screen.query_one(Dashboard).transcript.plain_text()

    @property
    def keys(self) -> str:
        return str(self.screen.query_one("#keys").render())


def on_stage(
    desk: ScriptedDesk,
    play: Callable[[Stage], Coroutine[None, None, None]],
    folder: Path,
    size: tuple[int, int] = (120, 40),
    **options: object,
) -> LiveScreen:
    """Play something on the screen; the screen afterwards."""
    feed = Feed()
    screen = LiveScreen(desk, feed, exports=folder, **options)  # type: ignore[arg-type]

    async def run() -> None:
        app = SpecctlApp(screen)
        async with app.run_test(size=size) as pilot:
            stage = Stage(pilot, screen, feed)
            await stage.settle()
            await play(stage)

    try:
        asyncio.run(run())
    finally:
        assert feed.close()
    return screen


def test_a_message_is_sent_and_its_answer_shown(tmp_path):
    async def play(stage: Stage) -> None:
        await stage.pilot.press(*"hi", "enter")
        await stage.settle()
        assert "Once upon there" in stage.text
        assert "hi" in stage.text

    desk = ScriptedDesk(ANSWER)
    on_stage(desk, play, tmp_path)
    assert desk.jobs == [Open(), Ask("hi")]


def test_typing_ahead_while_the_model_opens(tmp_path):
    async def play(stage: Stage) -> None:
        assert stage.screen.live.ready is not None

    desk = ScriptedDesk(ANSWER)
    screen = on_stage(desk, play, tmp_path, ask="hi")
    assert desk.jobs == [Open(), Ask("hi")]
    assert screen.live.turns[0].text == "Once upon there"


def test_f2_switches_off_and_back_to_what_was_on(tmp_path):
    async def play(stage: Stage) -> None:
        await stage.pilot.press("f2")
        await stage.settle()
        assert stage.screen.live.spec_types == ("none",)
        assert "F2 speculation on" in stage.keys
        await stage.pilot.press("f2")
        await stage.settle()
        assert stage.screen.live.spec_types == ("auto",)
        assert "F2 speculation off" in stage.keys

    on_stage(ScriptedDesk(), play, tmp_path)


def test_k_goes_down_and_up_by_steps_and_up_again_to_no_cap(tmp_path):
    seen = []

    async def play(stage: Stage) -> None:
        for key in ("f5", "f5", "f6", "f6", "f6", "f6"):
            await stage.pilot.press(key)
            await stage.settle()
            seen.append(stage.screen.live.k)

    on_stage(ScriptedDesk(), play, tmp_path)
    assert seen == [32, 24, 32, 48, 64, None]


def test_the_drafter_is_chosen_from_a_list(tmp_path):
    async def play(stage: Stage) -> None:
        await stage.pilot.press("f3")
        assert isinstance(stage.pilot.app.screen, ChooseScreen)
        await stage.pilot.press("down", "enter")
        await stage.settle()
        assert stage.screen.live.spec_types == ("ngram-simple",)

    on_stage(ScriptedDesk(), play, tmp_path)


def test_ctrl_c_stops_the_answer_and_keeps_its_text(tmp_path):
    desk = ScriptedDesk(ANSWER, hold=True)

    async def play(stage: Stage) -> None:
        await stage.pilot.press(*"hi", "enter")
        await stage.until(lambda: stage.screen.live.phase == "writing")
        assert stage.keys.startswith("^C stop")
        await stage.pilot.press("ctrl+c")
        await stage.settle()
        assert stage.screen.live.turns[0].text == "Once upon"
        assert stage.screen.live.phase == "ready"
        assert stage.keys.startswith("Enter send")

    on_stage(desk, play, tmp_path)
    assert desk.stopped


def test_a_change_while_it_writes_comes_out_of_the_running_answer(tmp_path):
    desk = ScriptedDesk(ANSWER, hold=True)

    async def play(stage: Stage) -> None:
        await stage.pilot.press(*"hi", "enter")
        await stage.until(lambda: stage.screen.live.phase == "writing")
        await stage.pilot.press("f2")
        desk.go.set()
        await stage.settle()
        assert stage.screen.live.spec_types == ("none",)
        assert stage.screen.live.turns[0].text == "Once upon there"

    on_stage(desk, play, tmp_path)
    assert [type(job) for job in desk.jobs] == [Open, Ask, Change]


def test_answer_again_waits_for_a_running_one(tmp_path):
    desk = ScriptedDesk(ANSWER, ANSWER, hold=True)

    async def play(stage: Stage) -> None:
        await stage.pilot.press(*"hi", "enter")
        await stage.until(lambda: stage.screen.live.phase == "writing")
        await stage.pilot.press("ctrl+r")
        desk.go.set()
        await stage.settle()
        assert not any(isinstance(job, Again) for job in desk.jobs)
        await stage.pilot.press("ctrl+r")
        await stage.settle()
        assert isinstance(desk.jobs[-1], Again)

    on_stage(desk, play, tmp_path)


def test_commands_and_what_is_none(tmp_path):
    async def play(stage: Stage) -> None:
        await stage.pilot.press(*"/stats", "enter")
        await stage.settle()
        assert stage.screen.live.log[-1].text == "acceptance by position: 90 80 %"
        await stage.pilot.press(*"/nope", "enter")
        await stage.settle()
        assert stage.screen.live.log[-1].kind == "error"
        assert stage.screen.live.phase == "ready"

    desk = ScriptedDesk()
    on_stage(desk, play, tmp_path)
    assert desk.jobs[1:] == [Command("/stats"), Command("/nope")]


@pytest.mark.parametrize("key", ["f1", "escape"])
def test_help_opens_and_closes_and_typing_goes_on(tmp_path, key):
    async def play(stage: Stage) -> None:
        await stage.pilot.press("f1")
        assert isinstance(stage.pilot.app.screen, HelpScreen)
        await stage.pilot.press(key)
        assert stage.pilot.app.screen is stage.screen
        await stage.pilot.press(*"hi")
        assert stage.screen.query_one(PromptInput).text == "hi"

    on_stage(ScriptedDesk(), play, tmp_path)


def test_files_are_saved_and_said(tmp_path):
    async def play(stage: Stage) -> None:
        await stage.pilot.press(*"hi", "enter")
        await stage.settle()
        await stage.pilot.press("f10", "ctrl+s", "f9")
        await stage.settle()

    desk = ScriptedDesk(ANSWER)
    on_stage(desk, play, tmp_path)
    svg, markdown = (next(tmp_path.glob(f"*.{suffix}")) for suffix in ("svg", "md"))
    assert "Once" in markdown.read_text()
    assert "accepted" in svg.read_text()
    assert "http://" not in svg.read_text().replace("http://www.w3.org/", "")
    assert "https://" not in svg.read_text().replace("https://www.textualize.io", "")
    assert desk.recording


def test_quitting_by_word_and_by_key(tmp_path):
    async def by_word(stage: Stage) -> None:
        await stage.pilot.press(*"/quit", "enter")
        assert not stage.pilot.app.is_running or stage.pilot.app._exit

    async def by_key(stage: Stage) -> None:
        await stage.pilot.press("ctrl+q")
        assert not stage.pilot.app.is_running or stage.pilot.app._exit

    on_stage(ScriptedDesk(), by_word, tmp_path)
    on_stage(ScriptedDesk(), by_key, tmp_path)


def test_a_model_that_does_not_open_ends_the_screen(tmp_path):
    async def play(stage: Stage) -> None:
        assert stage.screen.live.phase == "failed"

    on_stage(ScriptedDesk(ready=Note("no such model", "error")), play, tmp_path)


def test_gauges_are_read_and_shown(tmp_path):
    gauges = Gauges(ram_used=8 << 30, ram_total=16 << 30)

    async def play(stage: Stage) -> None:
        await stage.settle()

    screen = on_stage(ScriptedDesk(), play, tmp_path, gauges=lambda: gauges)
    assert screen.live.gauges == gauges


def test_layout_by_size():
    assert size_class(160, 45) == size_class(110, 18) == "-wide"
    assert size_class(80, 24) == size_class(109, 40) == "-narrow"
    assert size_class(40, 10) == size_class(59, 40) == size_class(200, 17) == "-small"
    assert size_class(39, 10) == size_class(40, 9) == "-less"


@pytest.mark.parametrize("size", [(160, 45), (120, 40), (80, 24), (60, 18), (40, 10), (20, 5)])
def test_every_size_draws_and_survives_a_resize(tmp_path, size):
    async def play(stage: Stage) -> None:
        await stage.pilot.press(*"hi", "enter")
        await stage.settle()
        await stage.pilot.resize_terminal(*size)
        await stage.pilot.pause()
        dashboard = stage.screen.query_one(Dashboard)
        if size == (20, 5):
            assert not dashboard.display
        else:
            assert dashboard.transcript.size.height >= 4
            assert dashboard.transcript.size.width >= 36
        await stage.pilot.resize_terminal(120, 40)
        await stage.pilot.pause()
        assert "Once upon there" in stage.text

    on_stage(ScriptedDesk(ANSWER), play, tmp_path)


def test_the_palette_lists_what_the_keys_do_and_does_it(tmp_path):
    async def play(stage: Stage) -> None:
        commands = {c.title: c for c in stage.pilot.app.get_system_commands(stage.screen)}
        assert {"Speculation on/off", "Temperature up", "All keys"} <= set(commands)
        await commands["Speculation on/off"].callback()
        await stage.settle()
        assert stage.screen.live.spec_types == ("none",)

    on_stage(ScriptedDesk(), play, tmp_path)


def test_temperature_by_key_goes_in_tenths_and_not_below_zero(tmp_path):
    desk = ScriptedDesk()

    async def play(stage: Stage) -> None:
        await stage.pilot.press("ctrl+up")
        await stage.settle()
        stage.screen.live.temperature = 0.05
        await stage.pilot.press("ctrl+down")
        await stage.settle()

    changes: list[Change] = []
    desk.change = changes.append  # type: ignore[method-assign]
    on_stage(desk, play, tmp_path)
    assert [change.temperature for change in changes] == [0.8, 0.0]


def test_the_figures_come_back_after_a_small_terminal(tmp_path):
    async def play(stage: Stage) -> None:
        await stage.pilot.press(*"hi", "enter")
        await stage.settle()
        height = stage.screen.query_one(Numbers).size.height
        assert height > 4
        for size in ((40, 10), (120, 40)):
            await stage.pilot.resize_terminal(*size)
            await stage.pilot.pause()
        assert stage.screen.query_one(Numbers).size.height == height

    on_stage(ScriptedDesk(ANSWER), play, tmp_path)


def test_a_crash_is_kept_for_the_command(tmp_path):
    class Broken(LiveScreen):
        def _tick(self) -> None:
            raise ZeroDivisionError("oh")

    app = SpecctlApp(Broken(ScriptedDesk(), Feed(), exports=tmp_path))

    async def run() -> None:
        async with app.run_test() as pilot:
            await asyncio.sleep(0.3)
            await pilot.pause()

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())
    assert isinstance(app.crash, ZeroDivisionError)


def test_a_commands_answer_is_seen_where_there_is_no_log(tmp_path):
    seen: list[str] = []

    async def play(stage: Stage) -> None:
        await stage.pilot.press(*"/stats", "enter")
        await stage.settle()
        seen.extend(note.message for note in stage.screen.app._notifications)

    on_stage(ScriptedDesk(ANSWER), play, tmp_path, size=(80, 24))
    assert any("acceptance by position" in text for text in seen)
    seen.clear()
    on_stage(ScriptedDesk(ANSWER), play, tmp_path, size=(120, 40))
    assert seen == []


def test_a_long_answer_to_a_command_is_a_page_that_esc_closes(tmp_path):
    class Talkative(ScriptedDesk):
        def _command(self, line):
            for number in range(8):
                yield Note(f"line {number} of {line}")

    async def play(stage: Stage) -> None:
        await stage.pilot.press("f7")  # a toast
        assert len(stage.pilot.app._notifications) == 1
        await stage.pilot.press(*"/stats", "enter")
        await stage.settle()
        page = stage.pilot.app.screen
        assert isinstance(page, HelpScreen)
        assert "line 0 of /stats" in str(page.query_one("Static").render())
        assert len(stage.pilot.app._notifications) == 0
        await stage.pilot.press("escape")
        assert stage.pilot.app.screen is stage.screen

    on_stage(Talkative(), play, tmp_path, size=(80, 24))


def test_a_page_waits_for_what_is_being_typed(tmp_path):
    class Talkative(ScriptedDesk):
        def _command(self, line):
            for number in range(8):
                yield Note(f"line {number} of {line}")

    async def play(stage: Stage) -> None:
        await stage.pilot.press(*"hi", "enter")
        await stage.until(lambda: stage.screen.live.phase == "writing")
        await stage.pilot.press(*"/stats", "enter", *"quick")
        desk.go.set()
        await stage.settle()
        assert stage.pilot.app.screen is stage.screen
        assert stage.screen.query_one(PromptInput).text == "quick"
        stage.screen.query_one(PromptInput).clear()
        await stage.settle()
        assert isinstance(stage.pilot.app.screen, HelpScreen)

    desk = Talkative(ANSWER, hold=True)
    on_stage(desk, play, tmp_path, size=(80, 24))


@pytest.mark.parametrize("key", ["f1", "f3"])
def test_toasts_go_when_a_dialog_opens(tmp_path, key):
    async def play(stage: Stage) -> None:
        await stage.pilot.press("f7")
        assert len(stage.pilot.app._notifications) == 1
        await stage.pilot.press(key)
        assert len(stage.pilot.app._notifications) == 0

    on_stage(ScriptedDesk(), play, tmp_path)


def test_saving_in_the_middle_is_promised_and_done_on_leaving(tmp_path):
    desk = ScriptedDesk(ANSWER, ANSWER, hold=True)

    async def play(stage: Stage) -> None:
        await stage.pilot.press(*"hi", "enter")
        await stage.until(lambda: stage.screen.live.phase == "writing")
        await stage.pilot.press(*"more", "enter", *"/save c.json", "enter")
        await stage.pilot.pause()
        said = [note.message for note in stage.pilot.app._notifications]
        assert said == ["will be saved when the answer is done"]
        assert stage.feed.keeping == 1
        stage.feed.refuse()  # as the command does on leaving
        desk.stop()

    on_stage(desk, play, tmp_path)
    assert desk.jobs == [Open(), Ask("hi"), Command("/save c.json")]


def test_f4_is_named_once_there_is_an_answer(tmp_path):
    async def play(stage: Stage) -> None:
        assert "F4" not in stage.keys
        await stage.pilot.press(*"hi", "enter")
        await stage.settle()
        assert "F4 tokens" in stage.keys
        assert len(stage.keys) <= 78
        await stage.pilot.press("f4")
        assert "F4 Markdown" in stage.keys
        assert len(stage.keys) <= 78

    on_stage(ScriptedDesk(ANSWER), play, tmp_path)


@pytest.mark.parametrize("moment", ["before it opens", "as it opens", "once it is open"])
def test_what_is_sent_at_any_stage_of_opening_is_asked_once(tmp_path, moment):
    opening, opened = threading.Event(), threading.Event()

    class Slow(ScriptedDesk):
        def do(self, job):
            for event in super().do(job):
                if isinstance(job, Open):
                    opening.wait(5)
                    yield event
                    opened.set()
                else:
                    yield event

    desk = Slow(ANSWER)
    feed = Feed()
    screen = LiveScreen(desk, feed, exports=tmp_path)

    async def run() -> None:
        async with SpecctlApp(screen).run_test(size=(80, 24)) as pilot:
            half = len("hello") // 2
            await pilot.press(*"hello"[:half])
            if moment == "before it opens":
                await pilot.press(*"hello"[half:], "enter")
            opening.set()
            if moment == "as it opens":
                await pilot.press(*"hello"[half:], "enter")
            await asyncio.to_thread(opened.wait, 5)
            screen._tick()
            if moment == "once it is open":
                await pilot.press(*"hello"[half:], "enter")
            await pilot.pause()
            await asyncio.to_thread(feed.wait)
            screen._tick()
            assert screen.query_one(PromptInput).text == ""

    try:
        asyncio.run(run())
    finally:
        opening.set()
        assert feed.close()
    assert desk.jobs == [Open(), Ask("hello")]
    assert screen.live.turns[0].text == "Once upon there"
