"""The picture that live chat, replay and watching share: header, transcript, cycles, numbers, log.

At 110 columns and more the figures stand beside the text, below that under it; see app.tcss.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container

from specctl.tui.state import Live
from specctl.tui.widgets.cycles import CycleView
from specctl.tui.widgets.header import Header
from specctl.tui.widgets.intervals import Intervals
from specctl.tui.widgets.log import LogView
from specctl.tui.widgets.numbers import Numbers
from specctl.tui.widgets.transcript import Transcript


class Dashboard(Container):
    """All of the picture. `sync` draws what has changed."""

    def __init__(
        self, ascii_only: bool = False, keys: bool = True, intervals: bool = False
    ) -> None:
        """`keys`: advice may name the keys of the chat. `intervals`: there is no text to show."""
        super().__init__()
        self.intervals = intervals
        self._ascii = ascii_only
        self._keys = keys

    def compose(self) -> ComposeResult:
        """Header above, then text and figures."""
        yield Header(ascii=self._ascii)
        with Container(id="body"):
            if self.intervals:
                yield Intervals(ascii=self._ascii)
            else:
                yield Transcript(ascii=self._ascii)
            with Container(id="figures"):
                yield CycleView(ascii=self._ascii)
                numbers = Numbers(ascii=self._ascii)
                numbers.keys = self._keys
                yield numbers
                yield LogView(ascii=self._ascii)

    @property
    def transcript(self) -> Transcript:
        """The text."""
        return self.query_one(Transcript)

    def sync(self, live: Live, *, recording: bool = False, state: str = "") -> None:
        """Show all of it; `state` is a word for the header (paused)."""
        header = self.query_one(Header)
        header.tell(recording=recording, state=state)
        header.sync(live)
        if self.intervals:
            self.query_one(Intervals).sync(live)
        else:
            if live.ready is not None:
                self.transcript.model = live.ready.model
            self.transcript.sync(live)
        self.query_one(CycleView).sync(live)
        self.query_one(Numbers).sync(live)
        self.query_one(LogView).sync(live)
