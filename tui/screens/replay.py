"""A recording played on the dashboard: pause, speed, cycle by cycle, jumps."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from specctl.tui.feed import RATE
from specctl.tui.player import SPEEDS, Player
from specctl.tui.screens.base import DashboardScreen
from specctl.tui.widgets.dashboard import Dashboard

JUMP = 5.0  # seconds

HELP = """\
Space        pause and go on
Right/Left   one cycle further, or back (and pause)
Up/Down      faster, slower
PgDn/PgUp    five seconds further, or back
Home/End     to the beginning, to the end
F4  F7  F8   Markdown or tokens; rejected tokens; thinking
F10          save a screenshot (SVG)
q, Ctrl-Q    quit
"""


class ReplayScreen(DashboardScreen):
    """Plays on its own from the start, at `speed` times the original."""

    HELP = HELP
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "pause", priority=True),
        Binding("right", "step(1)", "next cycle", priority=True),
        Binding("left", "step(-1)", "cycle before", priority=True),
        Binding("up", "speed(1)", "faster", priority=True),
        Binding("down", "speed(-1)", "slower", priority=True),
        Binding("pagedown", "jump(1)", "further", priority=True),
        Binding("pageup", "jump(-1)", "back", priority=True),
        Binding("home", "ends(0)", "beginning", priority=True),
        Binding("end", "ends(1)", "end", priority=True),
        Binding("q,ctrl+c,escape", "app.quit", "quit"),
    ]

    def __init__(
        self, player: Player, *, speed: float = 1.0, exports: Path, ascii_only: bool = False
    ) -> None:
        super().__init__(exports, ascii_only)
        self.player = player
        self.speed = speed
        self.paused = False
        self._clock = 0.0

    def compose(self) -> ComposeResult:
        """The picture and the line of keys."""
        yield self.too_small()
        yield Dashboard(self._ascii, keys=False)
        yield Static("", id="keys", markup=False)

    def on_mount(self) -> None:
        """Play."""
        self._clock = time.monotonic()
        self.set_interval(1 / RATE, self._tick)
        self._show()

    def _tick(self) -> None:
        now = time.monotonic()
        passed, self._clock = now - self._clock, now
        if not self.paused and not self.player.at_end:
            self.player.advance(passed * self.speed)
            self._show()

    def _show(self) -> None:
        player = self.player
        mark = "end" if player.at_end else "paused" if self.paused else f"{self.speed:g}×"
        self.query_one(Dashboard).sync(player.live, state=mark)
        keys = "Space go on" if self.paused else "Space pause"
        self.query_one("#keys", Static).update(
            f"replay {player.now:.1f} of {player.length:.1f} s · {mark}   "
            f"{keys}  ←→ cycle  ↑↓ speed  PgUp/PgDn jump  q quit  F1 all keys"
        )

    def action_pause(self) -> None:
        """Stop the clock, or let it run; at the end start over."""
        if self.player.at_end:
            self.player.seek(0)
            self.paused = False
        else:
            self.paused = not self.paused
        self._show()

    def action_step(self, cycles: int) -> None:
        """One cycle, and pause there."""
        self.paused = True
        self.player.step(cycles)
        self._show()

    def action_speed(self, step: int) -> None:
        """Faster or slower."""
        nearest = min(range(len(SPEEDS)), key=lambda at: abs(SPEEDS[at] - self.speed))
        self.speed = SPEEDS[min(max(nearest + step, 0), len(SPEEDS) - 1)]
        self._show()

    def action_jump(self, direction: int) -> None:
        """Some seconds further or back."""
        self.player.seek(self.player.now + direction * JUMP)
        self._show()

    def action_ends(self, end: int) -> None:
        """The beginning or the end."""
        if end:
            self.player.finish()
        else:
            self.player.seek(0)
        self._show()
