"""`specctl bench --tui`: the door to the bench screen, and the way back from it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rich.console import Console

from specctl import paths
from specctl.bench.conduct import Opener
from specctl.bench.results import Outcome
from specctl.bench.run import BenchPlan
from specctl.cli import bench_view as view
from specctl.cli import screen
from specctl.cli.render import err, out, rendered
from specctl.errors import SpecctlError
from specctl.resolve import Resolved

if TYPE_CHECKING:
    from rich.text import Text

    from specctl.tui.bench_worker import BenchWorker


def run(plan: BenchPlan, files: Resolved) -> Outcome | None:
    """Measure on the full screen until it is left; None, with a note, where it cannot open.

    A measurement that runs when the screen is left is stopped as by Ctrl-C, and its end is waited
    for; another Ctrl-C then gives it up.

    Raises:
        KeyboardInterrupt: nothing was complete.
        SpecctlError: as `conduct`, or the screen itself failed.
    """
    reason = screen.why_not()
    if reason is not None:
        err().print(f"--tui: {reason}: the plain view instead", style="dim")
        return None
    out(), err()  # made before the streams are moved aside
    from specctl.tui.bench_app import BenchApp
    from specctl.tui.bench_worker import BenchWorker

    worker = BenchWorker(plan, files.model, files.draft, _opener)
    app = BenchApp(worker, _report, screen.ascii_only())
    with screen.own_terminal(paths.cache_dir() / "native.log"):
        try:
            with screen.ended_by_signals(app.exit):
                app.run()
        finally:
            worker.unseen()
            if worker.outcome is None:
                worker.stop.ask()
    _wait(worker)
    if worker.error is not None:
        raise worker.error
    if app.return_code:
        raise SpecctlError("the screen broke down", "without --tui the benchmark needs none")
    assert worker.outcome is not None
    from specctl.tui.bench_words import OPEN_NOTE

    err().print(OPEN_NOTE, style="dim")
    return worker.outcome


def _opener() -> Opener:
    from specctl.engine.session import open_session

    return open_session


def _wait(worker: BenchWorker) -> None:
    """For the thread's end; a Ctrl-C while a native call cannot be ended leaves at once."""
    if worker.outcome is None and worker.error is None:
        err().print("waiting for the check of texts that differ; Ctrl-C gives the result up …")
    try:
        worker.join()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        sys.stdout.flush()
        os._exit(130)  # the thread holds the model: it cannot be taken down in order


def _report(outcome: Outcome, width: int) -> Text:
    """What is printed on leaving, for a screen of this width."""
    from specctl.tui.bench_words import OPEN_NOTE

    def draw(console: Console) -> None:
        view.report(console, outcome.report, outcome.busy)
        console.print(OPEN_NOTE, style="dim")

    return rendered(width, draw)
