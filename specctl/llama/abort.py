"""The last net: where llama.cpp stops the process by itself, say so, and leave the terminal usable.

It stops on what it did not expect, mostly in a file that nothing refused before. There is no way
back into Python from there: the C++ above it is in no state to go on.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from specctl.llama import log

_restore: list[Callable[[], None]] = []
_first = threading.Lock()


@contextlib.contextmanager
def restored_by(restore: Callable[[], None]) -> Iterator[None]:
    """Inside, an abort calls this first: it gives the terminal back, as descriptor 2 too."""
    _restore.append(restore)
    try:
        yield
    finally:
        _restore.remove(restore)


def catch(lib: Any) -> None:
    """Hear of aborts (ggml_set_abort_callback). A build without it aborts as it always did."""
    with contextlib.suppress(AttributeError):
        setter = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        setter(("ggml_set_abort_callback", lib._lib))(ctypes.cast(_callback, ctypes.c_void_p))


def sentence(message: str) -> str:
    """What a user reads; `message` is `path/file.cpp:line: text`."""
    place, _, said = message.strip().partition(" ")
    what = f"{place.replace(chr(92), '/').rsplit('/', 1)[-1]} {said}"
    if "GGML_ASSERT" not in said and log.reason():  # of a device: its own words came before
        what += f" ({log.reason()})"
    return f"error: llama.cpp stopped the process: {what}; the model file may be damaged"


def _aborted(message: bytes) -> None:
    if not _first.acquire(blocking=False):
        threading.Event().wait()  # several threads fail alike: the first one speaks and ends all
    for restore in reversed(_restore):
        with contextlib.suppress(Exception):
            restore()
    with contextlib.suppress(OSError):
        os.write(2, f"{sentence((message or b'').decode('utf-8', 'replace'))}\n".encode())
    if not faulthandler.is_enabled():  # who enabled it wants the stack that an abort shows
        os._exit(1)


# As long as the module: one that is garbage-collected crashes the process.
_callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(_aborted)
