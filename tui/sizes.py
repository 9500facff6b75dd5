"""Sizes of terminals, columns and lines, and the layout for each."""

from __future__ import annotations

LEAST = (40, 10)  # below, nothing can be read
SMALL = (60, 18)  # below either, one line of figures
WIDE = 110  # columns from which figures stand beside the text
CLASSES = ("-wide", "-narrow", "-small", "-less")


def size_class(width: int, height: int) -> str:
    """What app.tcss lays out by."""
    if width < LEAST[0] or height < LEAST[1]:
        return "-less"
    if width < SMALL[0] or height < SMALL[1]:
        return "-small"
    return "-wide" if width >= WIDE else "-narrow"
