"""The home screen as a picture, without a terminal."""

from __future__ import annotations

import asyncio

from specctl.tui.app import SpecctlApp
from specctl.tui.feed import RATE, Drain
from specctl.tui.home_desk import HomeDesk
from specctl.tui.home_state import Event, Home
from specctl.tui.screens.home import HomeScreen
from specctl.tui.svg import screen_svg

PATIENCE = 60.0  # seconds that looking may take


def picture(
    desk: HomeDesk, home: Home, size: tuple[int, int], theme: str | None, ascii_only: bool = False
) -> str:
    """The screen as SVG, once everything was looked at. `size` is columns, lines."""
    looks: Drain[Event] = Drain()
    pulls: Drain[Event] = Drain()
    screen = HomeScreen(desk, home, looks, pulls, ascii_only=ascii_only)

    async def draw() -> str:
        app = SpecctlApp(screen, theme)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await asyncio.to_thread(looks.wait, PATIENCE)
            await pilot.pause(2 / RATE)
            return screen_svg(app)

    try:
        return asyncio.run(draw())
    finally:
        looks.close()
        pulls.close()
