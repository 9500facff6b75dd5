"""The dashboard without a terminal: its figures as lines of text, its screen as a picture."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from specctl.events import Record
from specctl.tui.app import SpecctlApp
from specctl.tui.player import Player
from specctl.tui.screens.replay import ReplayScreen
from specctl.tui.state import Live
from specctl.tui.svg import screen_svg
from specctl.tui.widgets.cycles import chart_lines, chart_of
from specctl.tui.widgets.glyphs import glyphs
from specctl.tui.widgets.numbers import number_lines

CHART_LINES, NUMBER_LINES = 8, 14


def panel_lines(live: Live, width: int, ascii_only: bool = False) -> list[str]:
    """The chart of the last cycles, then the numbers, in at most `width` cells."""
    signs = glyphs(ascii_only)
    chart = chart_lines(chart_of(live), min(width, 100), CHART_LINES, signs)
    numbers = number_lines(live, min(width, 100), NUMBER_LINES, signs, keys=False)
    return [line.plain.rstrip() for line in (*chart, *numbers)]


def picture(
    records: Sequence[Record], size: tuple[int, int], theme: str | None, at: float | None
) -> str:
    """The replay's screen as SVG: at second `at`, or at the end. `size` is columns, lines."""
    player = Player(records)
    player.finish() if at is None else player.seek(at)
    screen = ReplayScreen(player, exports=Path())
    screen.paused = True

    async def draw() -> str:
        app = SpecctlApp(screen, theme)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            return screen_svg(app)

    return asyncio.run(draw())
