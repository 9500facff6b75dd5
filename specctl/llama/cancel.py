"""Stop a generation from another thread or a signal, also in the middle of a native call."""

from __future__ import annotations

import ctypes
import sys
from typing import Any


class CancelledError(Exception):
    """The user asked to stop; the memory holds what was finished, and its mirror knows."""


class Cancel:
    """A flag that llama.cpp polls while it computes (CPU backend; elsewhere between passes).

    The poll is libc's own `strlen` on a two-byte buffer: an empty string means go on, a byte means
    stop. No Python runs per graph node.
    """

    def __init__(self) -> None:
        self._flag = ctypes.create_string_buffer(2)

    def set(self) -> None:
        """Ask to stop; safe from any thread."""
        self._flag[0] = b"\x01"

    def clear(self) -> None:
        """Ready for the next generation."""
        self._flag[0] = b"\x00"

    @property
    def is_set(self) -> bool:
        """Was a stop asked for?"""
        return self._flag[0] != b"\x00"

    def attach(self, lib: Any, context: Any) -> None:
        """Let llama.cpp poll this flag in `context`; the caller keeps `self` alive as long."""
        libc = ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)
        poll = ctypes.cast(libc.strlen, lib.ggml_abort_callback)
        lib.llama_set_abort_callback(context, poll, ctypes.cast(self._flag, ctypes.c_void_p))
