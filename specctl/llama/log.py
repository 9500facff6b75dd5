"""llama.cpp's own log, routed to `logging`; the last lines are kept for error reports."""

from __future__ import annotations

import ctypes
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LOGGER = logging.getLogger("specctl.llama")
_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.INFO, 4: logging.WARNING}
_CONTINUED = 5
_last: deque[str] = deque(maxlen=40)
_complaints: deque[str] = deque(maxlen=12)
_previous = [0]
_listeners: list[list[str]] = []


def _receive(level: int, text: bytes, _data: Any) -> None:
    line = (text or b"").decode("utf-8", "replace").rstrip("\n")
    if level == _CONTINUED:
        level = _previous[0]
    _previous[0] = level
    if not line.strip(" ."):
        return
    _last.append(line)
    for lines_of_it in _listeners:
        lines_of_it.append(line)
    if level >= 3:  # warnings and errors
        _complaints.append(line)
    _LOGGER.log(_LEVELS.get(level, logging.DEBUG), "%s", line)


_callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_receive)


def route(lib: Any) -> None:
    """Send the library's log here instead of to stderr. The callback lives as long as the module:
    one that is garbage-collected crashes the process.
    """
    _LOGGER.addHandler(logging.NullHandler())
    lib.llama_log_set(ctypes.cast(_callback, lib.llama_log_callback), None)


def forget() -> None:
    """Drop kept lines, so that `reason` speaks of what comes next."""
    _last.clear()
    _complaints.clear()


def reason() -> str:
    """The last complaints of llama.cpp as one line; empty when it said nothing."""
    return "; ".join(line.strip() for line in list(_complaints)[-3:])


def lines() -> tuple[str, ...]:
    """The last lines of any level, oldest first."""
    return tuple(_last)


@contextmanager
def collected() -> Iterator[list[str]]:
    """All lines of any level that are said inside."""
    found: list[str] = []
    _listeners.append(found)
    try:
        yield found
    finally:
        _listeners.pop()
