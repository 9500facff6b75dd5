"""Ctrl-C while llama.cpp logs back into Python is neither lost nor early."""

from __future__ import annotations

import ctypes
import os
import signal

import pytest

from specctl.llama.interrupt import deferred


def test_it_is_raised_once_the_call_is_over() -> None:
    done = False

    @ctypes.CFUNCTYPE(None)
    def callback() -> None:  # as the log callback does: an exception in here would be swallowed
        nonlocal done
        os.kill(os.getpid(), signal.SIGINT)
        done = True

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), deferred():
        callback()
    assert done
    assert signal.getsignal(signal.SIGINT) is before


def test_without_ctrl_c_nothing_happens() -> None:
    with deferred():
        pass
