"""Ctrl-C during a native call that logs: kept until the call returns.

llama.cpp's log comes back into Python, where a signal handler would run and its KeyboardInterrupt
would be lost inside the callback.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Raises KeyboardInterrupt at its end if Ctrl-C came inside (main thread only)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
