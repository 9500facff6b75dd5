"""Figures, bytes and durations as text. Sizes are binary and printed so (KiB, MiB, GiB)."""

from __future__ import annotations

import re

from specctl.errors import UsageError

KIB = 1024
MIB = 1024**2
GIB = 1024**3
_FACTORS = {"": GIB, "b": 1, "k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB}


def format_bytes(count: float, digits: int = 1) -> str:
    """`1536` → `1.5 KiB`; whole bytes below one KiB."""
    for unit, factor in (("TiB", 1024 * GIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if round(abs(count) * 1024 / factor, digits) >= 1024:
            return f"{count / factor:.{digits}f} {unit}"
    return f"{count:.0f} B"


def format_seconds(seconds: float) -> str:
    """`0.0123` → `12.3 ms`, `75` → `1 min 15 s`; two or three figures, never more."""
    if seconds < 0:
        return "-" + format_seconds(-seconds)
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.09995:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"


def number(value: float | None, form: str = ".2f", unit: str = "") -> str:
    """A figure, or `–` for what is not known."""
    return "–" if value is None else f"{value:{form}}{unit}"


def percent(value: float | None) -> str:
    """`0.725` → `72 %`; `–` for what is not known."""
    return "–" if value is None else f"{value * 100:.0f} %"


def printable(text: str) -> str:
    """Without control and direction characters, whoever wrote it: safe for any terminal."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "�" for sign in text)


def parse_size(text: str) -> int:
    """Bytes of `16`, `16G`, `16GiB`, `512M`; a bare number means GiB.

    Raises:
        UsageError: not a size.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([bkmgt])(?:i?b)?)?\s*", text.lower())
    if match is None:
        raise UsageError(f"{text!r} is not a size", "write it like 16, 16G, 7.5GiB or 512M")
    size = float(match[1]) * _FACTORS[match[2] or ""]
    if size >= 1 << 63:
        raise UsageError(f"{text!r} is more than any machine has")
    return int(size)


def a_or_an(noun: str) -> str:
    """`a model`, `an encoder`, `an mtp head`: the last one is spelt out when it is read."""
    spoken = noun.lower()
    return f"an {noun}" if spoken.startswith(("a", "e", "i", "o", "u", "mtp")) else f"a {noun}"
