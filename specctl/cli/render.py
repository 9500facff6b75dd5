"""Consoles and small pieces of text that several commands share."""

from __future__ import annotations

import functools

from rich.console import Console


@functools.cache
def out() -> Console:
    """stdout: data. Rich drops colour by itself for pipes and NO_COLOR."""
    return Console(highlight=False)


@functools.cache
def err() -> Console:
    """stderr: notes, progress, warnings."""
    return Console(stderr=True, highlight=False)
