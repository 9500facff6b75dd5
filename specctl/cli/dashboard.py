"""`specctl dashboard`: the home screen, and whatever is started from it, until it is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specctl import __version__
from specctl.bench.results import check_writable
from specctl.cli import options as o
from specctl.cli import screen
from specctl.cli.render import err, out
from specctl.cli.replay import picture_size
from specctl.errors import UsageError
from specctl.paths import write_whole
from specctl.units import parse_size

if TYPE_CHECKING:
    from specctl.cli.home_desk import LocalDesk
    from specctl.tui.feed import Drain
    from specctl.tui.home_state import Action, Event, Home

PATIENCE = 3.0  # seconds: at most for a pull's next step, and for a look's before a command runs


def dashboard(
    once: Annotated[bool, typer.Option("--once", help="Print it as text, and end.")] = False,
    theme: Annotated[str | None, typer.Option("--theme", help="textual-light, nord, …")] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Save the screen as a picture, open none.")
    ] = None,
    size: Annotated[str, typer.Option("--size", help="Of the picture, columns x lines.")] = (
        "120x40"
    ),
    vram: o.Vram = None,
    ram: o.Ram = None,
    gpu: o.Gpu = None,
) -> None:
    """The home screen: this machine, what is recommended for it, what is here, recent results.

    Chat, bench, pull, tune and replay start from there, and it comes back when they are left; the
    command that each of them is stands below. F1 lists the keys. Where the full screen cannot
    open, and with --once, the same is printed as text. Nothing is asked of the network unless you
    pull something.
    """
    from specctl.cli.home_desk import LocalDesk, Simulation
    from specctl.tui.home_state import Home

    sizes = [None if text is None else parse_size(text) for text in (vram, ram)]
    desk = LocalDesk(Simulation(sizes[0], sizes[1], gpu))
    if (vram, ram, gpu) != (None, None, None):
        desk.machine()  # what cannot be meant is said before anything is shown
    home = Home(title=__version__)
    if svg is not None:
        check_writable(svg)
        _picture(desk, home, svg, picture_size(size), theme)
        return
    reason = screen.why_not()
    if once or reason is not None:
        if not once and reason != screen.NO_TERMINAL:
            print(f"as text: {reason}", file=sys.stderr)
        _print(desk, home)
        return
    while (action := _shown(desk, home, theme)) is not None:
        if not _run(action):
            return


def _print(desk: LocalDesk, home: Home) -> None:
    """The four sections as text."""
    from specctl.tui.widgets.glyphs import glyphs
    from specctl.tui.widgets.homelines import plain_lines

    for event in desk.look():
        home.apply(event)
    for line in plain_lines(home, out().width, glyphs(screen.ascii_only())):
        print(line)


def _picture(
    desk: LocalDesk, home: Home, path: Path, size: tuple[int, int], theme: str | None
) -> None:
    if path.suffix.lower() != ".svg":
        raise UsageError(f"--svg {path} is no .svg file", "name the picture like screen.svg")
    if theme is not None:
        screen.check_theme(theme)
    from specctl.tui.home_picture import picture

    write_whole(path, picture(desk, home, size, theme, screen.ascii_only()))
    err().print(f"saved as {path}", style="dim", markup=False, soft_wrap=True)


def _shown(desk: LocalDesk, home: Home, theme: str | None) -> Action | None:
    """The home screen until it is left: what to run then, or None."""
    from specctl.tui.feed import Drain
    from specctl.tui.screens.home import HomeScreen

    looks: Drain[Event] = Drain(cut=True)
    pulls: Drain[Event] = Drain()
    shown: list[HomeScreen] = []

    def make() -> HomeScreen:
        shown.append(HomeScreen(desk, home, looks, pulls, ascii_only=screen.ascii_only()))
        return shown[0]

    chosen = None
    try:
        screen.run(make, theme)
        chosen = shown[0].chosen
    finally:
        desk.stop_pull()
        # a command, which may measure, must not begin beside a look; on leaving nothing waits
        looks.close(PATIENCE if chosen is not None else 0.0)
        _end_pull(home, pulls)
    return chosen


def _end_pull(home: Home, pulls: Drain[Event]) -> None:
    """Wait for a pull that was told to stop, and say what the screen did not show: how it ended."""
    from specctl.tui.home_state import Pulled
    from specctl.tui.messages import Note

    pulls.close(PATIENCE)
    for event in pulls.take():
        home.apply(event)
        if isinstance(event, Pulled | Note):
            style = {"error": "red", "warning": "yellow"}.get(event.kind)
            err().print(event.text, style=style, markup=False, soft_wrap=True)
    if home.pulling is not None:
        name, home.pulling = home.pulling.name, None
        words = f"stopped; what was fetched is kept: specctl pull {name} goes on there"
        err().print(words, markup=False, soft_wrap=True)


def _run(action: Action) -> bool:
    """Run a command line of specctl in this process; whether to go back to the home screen.

    What it has printed stays to be read, unless it was a screen that was left in order.
    """
    from specctl.cli.app import run_line

    err().print(f"$ {action.line}", style="dim", markup=False)
    code: object = 0
    try:
        run_line(list(action.argv), bool(os.environ.get("SPECCTL_DEBUG")))
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    if code in (0, None) and action.verb in ("chat", "replay"):
        return True
    ended = "" if code in (0, None) else f"it ended with exit code {code}. "
    try:
        err().input(f"{ended}Enter: back to the home screen; Ctrl-C: leave ")
    except (KeyboardInterrupt, EOFError):
        err().print()
        return False
    return True
