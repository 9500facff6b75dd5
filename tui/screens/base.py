"""What all screens around the dashboard do alike: help, views, exports."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Static

from specctl.paths import write_whole
from specctl.tui.screens.help import HelpScreen
from specctl.tui.screens.sized import SizedScreen
from specctl.tui.sizes import LEAST
from specctl.tui.svg import screen_svg
from specctl.tui.widgets.dashboard import Dashboard
from specctl.tui.widgets.transcript import Transcript


class DashboardScreen(SizedScreen):
    """A screen around the dashboard, with the keys that mean the same on all of them.

    `HELP` is what F1 shows; `exports` is where pictures and transcripts go.
    """

    HELP = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "all keys", priority=True),
        Binding("f4", "view", "Markdown or tokens", priority=True),
        Binding("f7", "ghosts", "rejected tokens", priority=True),
        Binding("f8", "thinking", "thinking", priority=True),
        Binding("f10", "screenshot", "screenshot", priority=True),
    ]

    def __init__(self, exports: Path, ascii_only: bool) -> None:
        super().__init__()
        self._exports = exports
        self._ascii = ascii_only

    @property
    def transcript(self) -> Transcript:
        """The text of the dashboard."""
        return self.query_one(Dashboard).transcript

    def too_small(self) -> Static:
        """What stands in place of everything where nothing could be read."""
        return Static(f"specctl needs {LEAST[0]}×{LEAST[1]}", id="small", markup=False)

    def export(self, suffix: str, text: str) -> None:
        """Save as a new file with the time in its name, and say where."""
        path = self._exports / (time.strftime("%Y-%m-%d-%H%M%S") + suffix)

        def write() -> str:
            write_whole(path, text)
            return f"saved {path}"

        self.attempt(write)

    def action_help(self) -> None:
        """Every key."""
        self.clear_toasts()
        self.app.push_screen(HelpScreen(self.HELP))

    def action_view(self) -> None:
        """Markdown, or tokens."""
        self.transcript.view = "tokens" if self.transcript.view == "markdown" else "markdown"

    def action_ghosts(self) -> None:
        """Rejected tokens on or off."""
        self.transcript.ghosts = not self.transcript.ghosts

    def action_thinking(self) -> None:
        """Thinking folded or open."""
        self.transcript.fold_thinking = not self.transcript.fold_thinking

    def action_screenshot(self) -> None:
        """The screen as SVG."""
        self.export(".svg", screen_svg(self.app))
