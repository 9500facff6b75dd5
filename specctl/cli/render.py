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


def number(value: float | None, form: str = ".2f", unit: str = "") -> str:
    """A figure, or `–` for what is not known."""
    return "–" if value is None else f"{value:{form}}{unit}"


def percent(value: float | None) -> str:
    """`0.725` → `72 %`; `–` for what is not known."""
    return "–" if value is None else f"{value * 100:.0f} %"
