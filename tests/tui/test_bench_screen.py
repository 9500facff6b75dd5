"""The bench on the screen: filling, steering, stopping, at every size."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench_stage import Stage, make_app, plan, stage
from fake_bench import FakeSession
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from specctl.bench import workloads
from specctl.bench.run import BenchPlan
from specctl.tui import bench_app
from specctl.tui.bench_app import BenchApp
from specctl.tui.bench_state import BenchLive, Place
from specctl.tui.bench_words import detail_lines, header_lines, prompt_lines
from specctl.tui.bench_worker import Pulse
from specctl.tui.screens import bench as bench_screen
from specctl.tui.screens.bench import BenchScreen
from specctl.tui.screens.bench_more import CyclesScreen, PromptsScreen, ReportScreen
from specctl.tui.screens.help import HelpScreen
from specctl.tui.widgets.glyphs import glyphs
from specctl.tui.widgets.matrix import Matrix, lay_out, matrix_lines
from specctl.tui.widgets.speedbar import bar, scale_of

SIZES = ((40, 10), (80, 24), (120, 40), (160, 45))
ARMS = ("ngram-simple", "ngram-cache", "auto")


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        await asyncio.sleep(0.01)


def text_of(app: BenchApp) -> list[str]:
    """The lines on the screen."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    return [strip.text[:width] for strip in strips[:height]]


async def runs_done(app: BenchApp, session: Stage, count: int) -> None:
    """Until so many runs are done; the warm-up passes with them."""
    done = len(app.live.runs)
    session.go(count - done + (0 if done else len(app.live.plan.all_arms) + 1))
    await until(lambda: len(app.live.runs) == count)


def drive(
    tmp_path: Path,
    story: Callable[[BenchApp, Any, Stage], Any],
    what: BenchPlan | None = None,
    size: tuple[int, int] = (80, 24),
    ascii_only: bool = False,
) -> BenchApp:
    """Run a story; whatever happens, the worker ends."""
    session = stage()
    app = make_app(tmp_path, session, what or plan(*ARMS), ascii_only)

    async def whole() -> None:
        async with app.run_test(size=size) as pilot:
            try:
                await story(app, pilot, session)
            finally:
                app._worker.unseen()
                app._worker.stop.give_up()
                session.go(10_000)

    asyncio.run(whole())
    assert app._worker.join(5)
    return app


@pytest.mark.parametrize("size", SIZES)
def test_it_fills_at_every_size(tmp_path: Path, size: tuple[int, int]) -> None:
    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        await runs_done(app, session, 12)
        await pilot.pause(0.1)
        shown = "\n".join(text_of(app))
        assert "2.00×" in shown
        assert "code-edit" in shown
        assert "total" in shown
        assert "left" in shown or "measuring" in shown
        assert "▲" in shown

    drive(tmp_path, story, size=size)


def test_each_verdict_has_a_word_or_sign_of_its_own(tmp_path: Path) -> None:
    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        await runs_done(app, session, 5)
        await pilot.pause(0.1)
        shown = "\n".join(text_of(app))
        for words in ("▲ faster", "▼ slower", "= no difference", "never drafted"):
            assert words in shown
        assert "code-edit, ngram-simple" in shown
        assert "accepted per cycle 2.00, break-even 0.50: above" in shown
        assert "α 67 % with 100 % coverage" in shown
        assert "so far 1 of 2 prompts × 1" in shown
        await pilot.press("right")
        await pilot.pause()
        assert "accepted per cycle 0.00, break-even 0.75: below" in "\n".join(text_of(app))

    drive(tmp_path, story, plan(*ARMS, "ngram-mod"), size=(160, 45))


def test_the_running_cell_is_marked(tmp_path: Path) -> None:
    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        await runs_done(app, session, 1)
        await pilot.pause(0.1)
        row = next(line for line in text_of(app) if "▸ code-edit" in line)
        assert "▸ running 0/4" in row
        assert "ngram-simple on code-edit/p0   repeat 1 of 2" in "\n".join(text_of(app))

    drive(tmp_path, story, size=(120, 40))


def test_little_is_drawn_while_a_run_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    matrix_render, lines_render = Matrix.render, bench_screen._Lines.render

    def matrix(self: Matrix) -> Any:
        drawn.append("matrix")
        return matrix_render(self)

    def lines(self: Any) -> Any:
        drawn.append(self.id)
        return lines_render(self)

    monkeypatch.setattr(bench_app, "PULSE", 0.5)
    monkeypatch.setattr(Matrix, "render", matrix)
    monkeypatch.setattr(bench_screen._Lines, "render", lines)

    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        await runs_done(app, session, 3)
        await pilot.pause(0.3)
        assert "matrix" in drawn
        drawn.clear()
        await asyncio.sleep(1.1)  # the fourth run is under way
        assert set(drawn) == {"header"}
        assert 1 <= len(drawn) <= 3

    drive(tmp_path, story)


def test_drill_down_and_back(tmp_path: Path) -> None:
    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        await runs_done(app, session, 8)
        await pilot.press("enter")
        assert isinstance(app.screen, PromptsScreen)
        await pilot.pause(0.05)
        shown = "\n".join(text_of(app))
        assert "code-edit, ngram-simple: prompts" in shown
        assert "code-edit/p0" in shown
        assert "code-edit/p1" in shown
        await pilot.press("down", "enter")
        assert isinstance(app.screen, CyclesScreen)
        await pilot.pause(0.05)
        shown = "\n".join(text_of(app))
        assert "ngram-simple on code-edit/p1" in shown
        assert "repeat 1" in shown
        assert "12 tokens in 4 cycles" in shown
        assert "accepted per cycle, cycles 1 to 4" in shown
        await pilot.press("escape", "escape")
        assert isinstance(app.screen, BenchScreen)

    drive(tmp_path, story)


def test_a_page_that_is_open_goes_on(tmp_path: Path) -> None:
    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        await runs_done(app, session, 1)
        await pilot.press("enter")
        await pilot.pause(0.05)
        assert "waiting" in "\n".join(text_of(app))
        await runs_done(app, session, 4)
        await pilot.pause(0.1)
        assert "2.00×" in "\n".join(text_of(app))

    drive(tmp_path, story)


def test_a_click_selects_and_a_second_one_opens(tmp_path: Path) -> None:
    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        await runs_done(app, session, 8)
        await pilot.pause(0.05)
        matrix = app._bench.matrix
        layout = lay_out(app.live, matrix.selected, *matrix.content_size)
        y = 1 + 2 * layout.row_height  # the third row
        x = 1 + layout.label + layout.plain + layout.cell + 3  # padding, then the second arm
        await pilot.click(matrix, offset=(x, y))
        assert matrix.selected == Place("summarise", "ngram-cache")
        assert isinstance(app.screen, BenchScreen)
        await pilot.click(matrix, offset=(x, y))
        assert isinstance(app.screen, PromptsScreen)

    drive(tmp_path, story, size=(120, 40))


def test_ctrl_c_stops_and_keeps_what_is_complete(tmp_path: Path) -> None:
    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        await runs_done(app, session, 9)  # two prompts of four arms, one run of the third
        await until(lambda: session.calls.count("reset") == 5 + 10)  # after the warm-up
        await pilot.pause(0.1)
        await pilot.press("ctrl+c")
        await pilot.pause(0.05)
        assert "stopping" in "\n".join(text_of(app))
        session.go(1)
        await until(lambda: app.live.phase == "done")
        await until(lambda: isinstance(app.screen, ReportScreen))
        await pilot.pause(0.05)
        assert "the report of 8 runs" in "\n".join(text_of(app))
        await pilot.press("escape")
        await pilot.pause(0.05)
        shown = "\n".join(text_of(app))
        assert "stopped: what is complete" in shown
        assert "r report" in shown
        await pilot.press("r")
        assert isinstance(app.screen, ReportScreen)

    app = drive(tmp_path, story)
    assert app._worker.outcome is not None
    assert app._worker.outcome.interrupted


def test_ctrl_c_with_nothing_complete_ends_it(tmp_path: Path) -> None:
    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        await runs_done(app, session, 1)
        await pilot.press("ctrl+c")
        session.go(1)
        await until(lambda: app.live.phase == "failed")

    app = drive(tmp_path, story)
    assert isinstance(app._worker.error, KeyboardInterrupt)


def test_ctrl_q_leaves_and_stops(tmp_path: Path) -> None:
    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        await runs_done(app, session, 5)
        await pilot.press("ctrl+q")
        await until(lambda: app._exit)
        assert app._worker.stop.asked

    app = drive(tmp_path, story)
    assert app._worker.outcome is not None
    assert len(app._worker.outcome.runs) == 4


def test_the_report_comes_by_itself(tmp_path: Path) -> None:
    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        session.go(1000)
        await until(lambda: isinstance(app.screen, ReportScreen))
        await pilot.pause(0.05)
        assert "the report of 64 runs" in "\n".join(text_of(app))
        await pilot.press("end")
        await pilot.press("escape")
        await pilot.pause(0.05)
        shown = "\n".join(text_of(app))
        assert "64/64 runs" in shown
        assert "done" in shown
        assert "text: same" in shown

    drive(tmp_path, story)


def test_an_error_leaves_at_once(tmp_path: Path) -> None:
    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        await until(lambda: app.live.phase == "failed")

    app = drive(tmp_path, story, plan(max_tokens=5000))
    assert "--ctx" in str(getattr(app._worker.error, "hint", ""))


def test_help_lists_the_keys(tmp_path: Path) -> None:
    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        await pilot.press("f1")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        assert isinstance(app.screen, BenchScreen)

    drive(tmp_path, story)


def test_resizing_while_it_runs(tmp_path: Path) -> None:
    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        for count, size in enumerate(((160, 45), (40, 10), (30, 6), (80, 24)), 1):
            await pilot.resize_terminal(*size)
            await runs_done(app, session, 4 * count)
            await pilot.pause(0.1)
            shown = "\n".join(text_of(app))
            assert ("make the window" in shown) == (size == (30, 6))
            assert ("total" in shown) == (size != (30, 6))

    drive(tmp_path, story)


def test_ascii_alone_where_the_terminal_has_no_more(tmp_path: Path) -> None:
    async def story(app: BenchApp, pilot: Any, session: Stage) -> None:
        await runs_done(app, session, 12)
        for keys in ((), ("enter",), ("enter",), ("escape", "escape")):
            await pilot.press(*keys)
            await pilot.pause(0.05)
            for line in text_of(app):
                assert line.isascii(), line
        assert "+ faster" in "\n".join(text_of(app))

    drive(tmp_path, story, size=(120, 40), ascii_only=True)


# ---------------------------------------------------------------- lines


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> BenchLive:
    """All families, five arms, stopped on the way."""
    from specctl.bench.conduct import conduct

    types = (*ARMS, "ngram-mod", "ngram-simple+ngram-mod+suffix-with-a-long-name")
    what = plan(*types, families=workloads.FAMILIES, repeats=2)
    model = tmp_path_factory.mktemp("bench") / "fake.gguf"
    model.write_bytes(b"GGUF")
    session = FakeSession(stage().costs, pace=lambda n: 1 + 0.05 * (n % 7))
    live = BenchLive(what)
    for step in conduct(what, model, None, lambda *_: session):
        live.apply(step)
        if len(live.runs) == 130:
            break
    return live


@settings(max_examples=100)
@given(
    width=st.integers(20, 200), height=st.integers(1, 50), ascii_only=st.booleans(), at=st.data()
)
def test_no_line_is_wider_than_the_screen(
    half_done: BenchLive, width: int, height: int, ascii_only: bool, at: st.DataObject
) -> None:
    signs = glyphs(ascii_only)
    workload = at.draw(st.sampled_from(half_done.workloads))
    place = Place(workload, at.draw(st.sampled_from(half_done.arms)))
    pulse = Pulse(tokens=7)
    parts = {
        "matrix": matrix_lines(half_done, place, width, height, signs),
        "detail": detail_lines(half_done, place, width, height, signs),
        "header": header_lines(half_done, pulse, 0.0, False, width, min(height, 3), 1.0, signs),
    }
    for name, lines in parts.items():
        assert len(lines) <= height, name
        assert all(cell_len(line.plain) <= width for line in lines), name
    for line in prompt_lines(half_done, place, 0, width, signs):
        assert cell_len(line.plain) <= width
    layout = lay_out(half_done, place, width, height)
    if height >= 3 and workload is not None:
        families = [w for w in half_done.workloads if w is not None]
        assert workload in families[layout.top : layout.top + layout.rows]
    columns = half_done.arms[layout.left : layout.left + layout.columns]
    assert place.arm in columns


def test_bars_are_measured_from_zero_and_marked_at_one(half_done: BenchLive) -> None:
    signs = glyphs(True)
    fast = half_done.cell(Place(None, "ngram-simple")).row
    slow = half_done.cell(Place(None, "ngram-cache")).row
    assert fast is not None
    assert slow is not None
    assert scale_of([fast.speed, slow.speed]) >= 2.0
    long, short = (bar(row.speed, 40, 2.0, signs).plain for row in (fast, slow))
    assert len(long) == len(short) == 40
    assert long[20] == short[20] == "|"
    assert short[:20].rstrip() == short[:20].rstrip().replace("|", "")
    assert abs(short[:20].count("#") - 40 * (slow.speed.speedup or 0) / 2) <= 2
    assert long[:20] == "#" * 20
