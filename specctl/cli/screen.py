"""The only door to the full screen: may it open here, on which streams, with what behind it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from specctl import paths
from specctl.cli.interrupt import on_endings
from specctl.errors import UsageError
from specctl.llama import abort
from specctl.tui.sizes import LEAST
from specctl.units import printable

try:
    import termios
except ImportError:  # Windows
    termios = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from textual.screen import Screen

    from specctl.cli.desk import Opener
    from specctl.tui.feed import Feed
    from specctl.tui.messages import Gauges

NO_TERMINAL = "not a terminal"
_SWITCH_INTERVAL = 0.0005  # seconds: how long drawing may keep the engine's thread waiting
_PATIENCE = 5.0  # seconds that a running cycle or a loading model is waited for on leaving
# Out of the other screen, cursor shown, mouse, focus, paste and key modes off: all harmless twice.
_LEAVE = "\x1b[<u\x1b[?1000;1002;1003;1004;1006;1015;2004l\x1b[?1049l\x1b[?25h"
_STREAMS = ("__stdout__", "__stderr__")


def why_not() -> str | None:
    """Why the full screen cannot open here; None where it can."""
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        return NO_TERMINAL
    if sys.stderr is None or not sys.stderr.isatty():
        return "stderr is not the terminal"
    if os.environ.get("TERM", "") == "dumb":
        return "TERM is dumb"
    size = shutil.get_terminal_size()
    if size.columns < LEAST[0] or size.lines < LEAST[1]:
        return f"the terminal is {size.columns}×{size.lines}, smaller than {LEAST[0]}×{LEAST[1]}"
    return None


def ascii_only() -> bool:
    """The terminal cannot show more than ASCII (SPECCTL_ASCII=1, or an encoding without it)."""
    if os.environ.get("SPECCTL_ASCII"):
        return os.environ["SPECCTL_ASCII"] != "0"
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    return not encoding.startswith("utf")


@contextlib.contextmanager
def own_terminal(log: Path) -> Iterator[None]:
    """Inside, Textual alone writes to the terminal; all other output, native too, goes to `log`.

    The engine's thread gets Python's lock within half a millisecond while the screen draws.
    Textual writes to `sys.__stderr__` (Windows: `__stdout__`): both become copies of the terminal,
    and the descriptors 1 and 2, which libraries write to, become the log. Where llama.cpp stops the
    process the terminal is given back first.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    settings, interval = _terminal_settings(), sys.getswitchinterval()
    kept = [os.dup(1), os.dup(2)]
    before: list[TextIO | None] = [sys.__stdout__, sys.__stderr__]
    log.parent.mkdir(parents=True, exist_ok=True)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    terminals = [
        os.fdopen(os.dup(fd), "w", encoding="ascii" if ascii_only() else "utf-8", errors="replace")
        for fd in kept
    ]

    def restore() -> None:
        """At once, from any thread: what is still drawn goes to the log."""
        for terminal in terminals:
            os.dup2(sink, terminal.fileno())
        os.write(kept[1], _LEAVE.encode())
        os.dup2(kept[1], 2)
        if settings is not None:
            _restore(settings)

    try:
        for name, terminal in zip(_STREAMS, terminals, strict=True):
            setattr(sys, name, terminal)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        sys.setswitchinterval(_SWITCH_INTERVAL)
        with abort.restored_by(restore):
            yield
    finally:
        sys.setswitchinterval(interval)
        with contextlib.suppress(OSError):
            if settings is not None:
                terminals[1].write(_LEAVE)
                _restore(settings)
            for terminal in terminals:
                terminal.flush()
        for fd, number in zip(kept, (1, 2), strict=True):
            os.dup2(fd, number)
            os.close(fd)
        os.close(sink)
        for name, stream in zip(_STREAMS, before, strict=True):
            setattr(sys, name, stream)


def _terminal_settings() -> list[Any] | None:
    """Of the terminal on stdin, where there is one (POSIX)."""
    if termios is None or sys.stdin is None or not sys.stdin.isatty():
        return None
    return termios.tcgetattr(sys.stdin.fileno())


def _restore(settings: list[Any]) -> None:
    """As it was: Textual forgets it where it was stopped and continued."""
    if termios is not None:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, settings)


def chat(opener: Opener, sink: TextIO | None, theme: str | None, no_color: bool) -> None:
    """Chat on the full screen; the models are opened once it is painted.

    Raises:
        SpecctlError: the model could not be opened.
    """
    if no_color:
        os.environ["NO_COLOR"] = "1"  # before Textual reads it
    from specctl.cli.desk import EngineDesk
    from specctl.tui.feed import Feed
    from specctl.tui.screens.live import LiveScreen

    desk, feed = EngineDesk(opener, sink), Feed()
    try:
        run(
            lambda: LiveScreen(
                desk,
                feed,
                gauges=gauges,
                exports=paths.data_dir() / "exports",
                history=paths.data_dir() / "history",
                ascii_only=ascii_only(),
            ),
            theme,
        )
    finally:
        feed.refuse()  # before the running answer ends: the next one in line is not begun
        saving = feed.keeping
        desk.stop()
        if not feed.close(_PATIENCE):  # a model that is still loading cannot be interrupted
            if feed.keeping:
                print("not saved: the engine did not stop in time", file=sys.stderr, flush=True)
            os._exit(1 if feed.keeping else 0)
        desk.close()
        if saving:
            _tell(feed)
    if desk.failure is not None:
        raise desk.failure


def _tell(feed: Feed) -> None:
    """What the screen was left too early to show: how saving went."""
    from specctl.tui.messages import Note

    for event in feed.take():
        if isinstance(event, Note):
            print(printable(event.text), file=sys.stderr)


def run(make: Callable[[], Screen[None]], theme: str | None = None) -> None:
    """Show a screen until it is left. The terminal is given back whatever happens."""
    from specctl.tui.app import SpecctlApp

    if theme is not None:
        check_theme(theme)
    with own_terminal(paths.cache_dir() / "native.log"):
        app = SpecctlApp(make(), theme)
        with ended_by_signals(app.exit):
            app.run()
    if app.crash is not None:
        raise app.crash


def check_theme(theme: str) -> None:
    """Raises UsageError where Textual has no theme of this name."""
    from textual.theme import BUILTIN_THEMES

    if theme not in BUILTIN_THEMES:
        raise UsageError(f"there is no theme {theme!r}", "one of " + ", ".join(BUILTIN_THEMES))


def ended_by_signals(leave: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
    """SIGINT, SIGTERM and SIGHUP leave the screen as Ctrl-Q does, however often they come."""
    return on_endings(lambda *_: leave())


def gauges() -> Gauges:
    """The machine just now, for the screen."""
    from specctl.hardware.gauges import read_gauges
    from specctl.tui.messages import Gauges

    now = read_gauges()
    return Gauges(now.ram_used, now.ram_total, now.vram_used, now.vram_total, now.gpu_load)
