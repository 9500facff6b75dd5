"""The application around the bench screens: takes the worker's steps, stops it, and leaves."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import App
from textual.binding import Binding, BindingType
from textual.message import Message

from specctl.bench.results import Outcome
from specctl.tui.bench_state import BenchLive
from specctl.tui.bench_worker import BenchWorker
from specctl.tui.screens.bench import BenchScreen
from specctl.tui.screens.bench_more import PromptsScreen, ReportScreen, _Page
from specctl.tui.screens.help import HelpScreen
from specctl.tui.widgets.matrix import Matrix

PULSE = 5.0  # seconds between two looks at a run that is timed: each costs it 20 ms of a slow core
MakeReport = Callable[[Outcome, int], Text]

HELP = """\
Arrows    select a cell of the matrix; Home/End: first, last row
Enter     its prompts, then the cycles of one; so does a second click
Esc       back
r         the whole report, once it is done
Ctrl-C    stop: what every arm has done is kept and reported
Ctrl-Q    leave, and stop as Ctrl-C does; the report is printed
""" + "".join(
    f"\n{paragraph}\n"
    for paragraph in (
        "A cell is the measured speed-up over plain decoding on the same prompts: total tokens "
        "over total seconds. The upright line in a bar is plain decoding, 1.0; the shaded end "
        "reaches from the slowest to the fastest repeat. Faster and slower are said only beyond "
        "the noise of the repeats; anything else is no difference.",
        "While it runs, a cell speaks of the prompts that every arm has done. Texts are compared "
        "with plain decoding's at the end.",
        "The screen draws between the runs; while a run is timed it draws three lines every five "
        "seconds. Keys and the mouse draw at once: leave them alone if you want the last percent.",
    )
)


class Arrived(Message):
    """The worker has handed over a step."""


class BenchApp(App[None]):
    """Shows one benchmark until the person leaves. `make_report` renders it for a width, cells."""

    TITLE = "specctl bench"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "leave", "leave", priority=True, show=False),
        Binding("ctrl+c", "stop", "stop", priority=True, show=False),
        Binding("f1", "help", "keys", priority=True, show=False),
    ]

    def __init__(
        self,
        worker: BenchWorker,
        make_report: MakeReport,
        ascii_only: bool = False,
        theme: str | None = None,
    ) -> None:
        super().__init__()
        self.live = BenchLive(worker.plan)
        self._worker = worker
        self._make_report = make_report
        self._ascii = ascii_only
        self._warned = False
        self._bench = BenchScreen(self.live, worker, ascii_only)
        if theme is not None:
            self.theme = theme

    def on_mount(self) -> None:
        """First paint, then the engine."""
        self.push_screen(self._bench)
        self.set_interval(PULSE, self._pulse)
        if threading.current_thread() is threading.main_thread():
            with contextlib.suppress(NotImplementedError):  # Windows
                loop = asyncio.get_running_loop()
                loop.add_signal_handler(signal.SIGINT, self.action_stop)
        self.call_after_refresh(self._worker.start, lambda: self.post_message(Arrived()))

    def on_arrived(self, _: Arrived) -> None:
        """Fold the steps in, draw, and let the next run begin."""
        if not self.screen_stack:  # the last ones come while it closes
            return
        before = self.live.phase
        for step in self._worker.take():
            self.live.apply(step)
        if self.live.phase == "failed":
            self.exit()
            return
        self._bench.sync(True)
        if isinstance(self.screen, _Page):
            self.screen.sync(True)
        if self.live.phase == "done" != before:
            self._finished()
        self.screen.call_after_refresh(self._worker.drawn)

    def _pulse(self) -> None:
        if (
            self.screen_stack
            and self.screen is self._bench
            and self.live.phase not in ("done", "failed")
        ):
            self._bench.sync(False)

    def _finished(self) -> None:
        if self.screen is self._bench:
            self.action_report()
        else:
            self.notify("Done: r shows the report.", markup=False)

    def on_matrix_opened(self, event: Matrix.Opened) -> None:
        """Enter on a cell."""
        self.push_screen(PromptsScreen(self.live, event.place, self._ascii))

    def action_report(self) -> None:
        """The whole report."""
        outcome = self.live.outcome
        if outcome is None:
            self.notify("The report comes when all runs are done.", markup=False)
        elif not isinstance(self.screen, ReportScreen):
            make = self._make_report
            self.push_screen(ReportScreen(lambda width: make(outcome, width), self._ascii))

    def action_stop(self) -> None:
        """End the measurement with what is complete; the check of texts only when asked twice."""
        if self.live.phase == "done":
            self.notify("It is done. Ctrl-Q leaves and prints the report.", markup=False)
        elif self.live.phase == "checking":
            if self._warned:
                self._worker.stop.give_up()
            self._warned = True
            self.notify(
                "Differing texts are being decoded again. Ctrl-C once more gives the result up.",
                severity="warning",
                markup=False,
            )
        else:
            self._worker.stop.ask()
            self._bench.sync(False)

    def action_leave(self) -> None:
        """Leave; a measurement that runs is stopped as by Ctrl-C."""
        if self.live.phase not in ("done", "failed", "checking"):
            self._worker.stop.ask()
        self.exit()

    def action_help(self) -> None:
        """Every key."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(HELP))
