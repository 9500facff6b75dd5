"""What all screens do alike: classes by size, toasts, exports."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from textual import events
from textual.screen import Screen

from specctl.errors import SpecctlError

LEAST = (40, 10)  # columns, lines: below, nothing can be read
SMALL = (60, 18)  # below either, one line of figures
WIDE = 110  # columns from which figures stand beside the text
_CLASSES = ("-wide", "-narrow", "-small", "-less")


def size_class(width: int, height: int) -> str:
    """The layout for a terminal of this size."""
    if width < LEAST[0] or height < LEAST[1]:
        return "-less"
    if width < SMALL[0] or height < SMALL[1]:
        return "-small"
    return "-wide" if width >= WIDE else "-narrow"


class SizedScreen(Screen[None]):
    """A screen whose layout follows the terminal's size."""

    def on_resize(self, event: events.Resize) -> None:
        """Set the class that app.tcss lays out by."""
        now = size_class(event.size.width, event.size.height)
        for name in _CLASSES:
            self.set_class(name == now, name)

    def say(self, text: str, kind: str = "note") -> None:
        """A short message that goes away by itself."""
        severity = {"error": "error", "warning": "warning"}.get(kind, "information")
        self.notify(text, severity=severity, timeout=8 if kind == "error" else 4, markup=False)  # type: ignore[arg-type]

    def attempt(self, action: Callable[[], str]) -> None:
        """Do it and say what it answers; a failure becomes a message."""
        try:
            self.say(action())
        except SpecctlError as error:
            self.say(error.message + (f" ({error.hint})" if error.hint else ""), "error")


def write_export(folder: Path, suffix: str, text: str) -> Path:
    """A new file with the time in its name.

    Raises:
        SpecctlError: it cannot be written.
    """
    path = folder / (time.strftime("%Y-%m-%d-%H%M%S") + suffix)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpecctlError(f"cannot write {path}: {error.strerror}") from error
    return path
