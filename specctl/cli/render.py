"""Consoles and small pieces of text that several commands share."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable

from rich.console import Console
from rich.text import Text


@functools.cache
def out() -> Console:
    """stdout: data. Rich drops colour by itself for pipes and NO_COLOR."""
    return Console(highlight=False)


@functools.cache
def err() -> Console:
    """stderr: notes, progress, warnings."""
    return Console(stderr=True, highlight=False)


def rendered(width: int, draw: Callable[[Console], None]) -> Text:
    """What `draw` prints on a console of `width` cells, as text for a screen."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        highlight=False,
        color_system=None if "NO_COLOR" in os.environ else "standard",
    )
    with console.capture() as captured:
        draw(console)
    return Text.from_ansi(captured.get())
