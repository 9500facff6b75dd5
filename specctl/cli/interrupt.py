"""Ctrl-C that stops an answer, also in the middle of a native call."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_ENDINGS = ("SIGINT", "SIGTERM", "SIGHUP")


@contextlib.contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Inside, the first Ctrl-C calls `stop` from a thread; a second one is a KeyboardInterrupt.

    A Python signal handler runs only between byte codes of the main thread, so a long native call
    would hold it up. The interpreter's wake-up socket is written at once; a thread listens to it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    presses = 0

    def handler(_signal: int, _frame: FrameType | None) -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            raise KeyboardInterrupt

    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def listen() -> None:
        while byte := reader.recv(1):
            if byte[0] == signal.SIGINT:
                stop()

    listener = threading.Thread(target=listen, daemon=True)
    before = signal.signal(signal.SIGINT, handler)
    old_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(old_fd)
        signal.signal(signal.SIGINT, before)
        writer.close()
        listener.join(timeout=1)
        reader.close()


@contextlib.contextmanager
def on_endings(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Inside, `handler` is called for SIGINT, SIGTERM and SIGHUP, as far as there are such.

    One that whoever started us has ignored (nohup, a shell's `&`) stays ignored.
    """
    signals = [getattr(signal, name) for name in _ENDINGS if hasattr(signal, name)]
    heard = [one for one in signals if signal.getsignal(one) != signal.SIG_IGN]
    before = {one: signal.signal(one, handler) for one in heard}
    try:
        yield
    finally:
        for one, old in before.items():
            signal.signal(one, old)


@contextlib.contextmanager
def ended_alike() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP end it as Ctrl-C does; a second signal changes nothing."""
    asked = False

    def handler(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if not asked:
            asked = True
            raise KeyboardInterrupt

    with on_endings(handler):
        yield
