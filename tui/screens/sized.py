"""What every screen does: classes by size, toasts."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.screen import Screen

from specctl.errors import SpecctlError
from specctl.tui.sizes import CLASSES, size_class


class SizedScreen(Screen[None]):
    """A screen whose layout follows the terminal's size."""

    def on_resize(self, event: events.Resize) -> None:
        """Set the class that app.tcss lays out by."""
        now = size_class(event.size.width, event.size.height)
        for name in CLASSES:
            self.set_class(name == now, name)

    def say(self, text: str, kind: str = "note") -> None:
        """A short message that goes away by itself."""
        severity = {"error": "error", "warning": "warning"}.get(kind, "information")
        self.notify(text, severity=severity, timeout=8 if kind == "error" else 4, markup=False)  # type: ignore[arg-type]

    def clear_toasts(self) -> None:
        """Before a dialog opens: they would cover it."""
        self.app.clear_notifications()

    def attempt(self, action: Callable[[], str]) -> None:
        """Do it and say what it answers; a failure becomes a message."""
        try:
            self.say(action())
        except SpecctlError as error:
            self.say(error.message + (f" ({error.hint})" if error.hint else ""), "error")
