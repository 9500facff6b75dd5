"""A server of any engine on the dashboard: its records as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from specctl.tui.feed import RATE, Feed
from specctl.tui.messages import Event, Note
from specctl.tui.screens.base import DashboardScreen
from specctl.tui.state import Live
from specctl.tui.widgets.dashboard import Dashboard

HELP = """\
Space        hold the picture, and go on (watching goes on behind it)
F10          save a screenshot (SVG)
F4  F7  F8   where the server shows its text: Markdown or tokens; rejected tokens; thinking
q, Ctrl-Q    quit; the server is left alone

A line (or bar) is what happened between two looks at the server's counters, or a cycle where it
streams its cycles. All requests are taken together. Break-even needs the plain speed of the same
model under the same load: --baseline TOK_S. What a server does not tell is shown as –.
"""


class WatchScreen(DashboardScreen):
    """Shows what `job` yields. `intervals`: sums, no text. `title` names the server."""

    HELP = HELP
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "hold", "hold the picture", priority=True),
        Binding("q,ctrl+c,escape", "app.quit", "quit"),
    ]

    def __init__(
        self,
        feed: Feed,
        job: Callable[[], Iterator[Event]],
        *,
        title: str,
        intervals: bool,
        recording: bool = False,
        exports: Path,
        ascii_only: bool = False,
    ) -> None:
        super().__init__(exports, ascii_only)
        self.live = Live()
        self.held = False
        self._kept: list[Event] = []  # what came while the picture is held
        self._feed = feed
        self._job = job
        self._title = title
        self._intervals = intervals
        self._recording = recording

    def compose(self) -> ComposeResult:
        """The picture and the line of keys."""
        yield self.too_small()
        yield Dashboard(self._ascii, keys=False, intervals=self._intervals)
        yield Static("", id="keys", markup=False)

    def on_mount(self) -> None:
        """Watch."""
        self._feed.submit(self._job)
        self.set_interval(1 / RATE, self._tick)
        self._show()

    def _tick(self) -> None:
        events = self._feed.take()
        for event in events:
            if isinstance(event, Note) and event.kind != "note":
                self.say(event.text, event.kind)
        self._kept += events
        if self._kept and not self.held:
            self._catch_up()
            self._show()

    def _catch_up(self) -> None:
        for event in self._kept:
            self.live.apply(event)
        self._kept.clear()

    def _show(self) -> None:
        state = "held" if self.held else ""
        self.query_one(Dashboard).sync(self.live, recording=self._recording, state=state)
        keys = "Space go on" if self.held else "Space hold"
        self.query_one("#keys", Static).update(
            f"{keys}  q quit  F10 screenshot  F1 all keys   watching {self._title}"
        )

    def action_hold(self) -> None:
        """Leave the picture as it is, or follow again."""
        self.held = not self.held
        self._catch_up()
        self._show()

    def action_view(self) -> None:
        """Markdown, or tokens."""
        if not self._intervals:
            super().action_view()

    def action_ghosts(self) -> None:
        """Rejected tokens on or off."""
        if not self._intervals:
            super().action_ghosts()

    def action_thinking(self) -> None:
        """Thinking folded or open."""
        if not self._intervals:
            super().action_thinking()
