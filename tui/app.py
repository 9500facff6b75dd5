"""The application around one screen: themes, quitting, a terminal that is always given back."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen


class SpecctlApp(App[None]):
    """Shows `first`; ends with Ctrl-Q. `crash` is the exception that ended it, if one did."""

    CSS_PATH = "app.tcss"
    TITLE = "specctl"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "quit", priority=True, show=False)
    ]

    def __init__(self, first: Screen[None], theme: str | None = None) -> None:
        _accept_any_byte()
        super().__init__()
        self._first = first
        self.crash: Exception | None = None
        if theme is not None:
            self.theme = theme

    def on_mount(self) -> None:
        """Show it."""
        self.push_screen(self._first)

    def _handle_exception(self, error: Exception) -> None:
        """Kept for the command to report: what Textual prints goes to the log."""
        self.crash = self.crash or error
        super()._handle_exception(error)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: what the keys of the screen do, then Textual's own."""
        ours = [kind for kind in type(screen).__mro__ if kind.__module__.startswith("specctl.")]
        declared = [one for kind in ours for one in vars(kind).get("BINDINGS", ())]
        for binding in Binding.make_bindings(declared):
            if binding.description:
                text = binding.description[0].upper() + binding.description[1:]
                run = partial(self._run_on, screen, binding.action)
                yield SystemCommand(text, f"key {binding.key}", run)
        yield from super().get_system_commands(screen)

    async def _run_on(self, screen: Screen[Any], action: str) -> None:
        await self.run_action(action, screen)


def _accept_any_byte() -> None:
    """Pasted bytes that are no UTF-8 become �; Textual's own reader ends the app over them."""
    try:
        from textual.drivers import linux_driver
    except ImportError:  # Windows reads characters
        return
    strict = codecs.getincrementaldecoder

    def lenient(encoding: str) -> Callable[[], codecs.IncrementalDecoder]:
        return partial(strict(encoding), errors="replace")

    setattr(linux_driver, "getincrementaldecoder", lenient)  # noqa: B010 - it exports nothing
