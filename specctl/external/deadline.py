"""A bound on a whole HTTP exchange, for a client whose own time-outs bound each read alone.

A server that sends one byte of its headers now and then never lets a read time out. So a timer
shuts the exchange's sockets down; whoever waits on them is woken up at once.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any


class Exchange:
    """One exchange. `passed`: its time is over, and it was cut off."""

    def __init__(self) -> None:
        self.passed = False


class Deadline:
    """For a client that has one exchange at a time; `trace` learns its sockets.

    Looking a name up is not bounded: there is no socket yet.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self._now: Exchange | None = None
        self._lock = threading.Lock()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """The `trace` extension of httpcore: a connection was made, or wrapped in TLS."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            made = info["return_value"].get_extra_info("socket")
            with self._lock:
                self._sockets = [one for one in self._sockets if one.fileno() >= 0]
                self._sockets.append(made)
                if self._now is not None and self._now.passed:
                    _shut(made)

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[Exchange]:
        """Inside, every connection ends after `seconds`; where it does, `passed` says so."""
        exchange = Exchange()
        timer = threading.Timer(seconds, self._cut, (exchange,))
        timer.daemon = True
        self._now = exchange
        timer.start()
        try:
            yield exchange
        finally:
            timer.cancel()
            with self._lock:
                self._now = None

    def _cut(self, exchange: Exchange) -> None:
        with self._lock:
            if self._now is not exchange:  # it has just ended
                return
            exchange.passed = True
            for one in self._sockets:
                _shut(one)


def _shut(one: socket.socket) -> None:
    """Not by SSLSocket's own method, which takes the TLS state away from whoever is reading."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(one, socket.SHUT_RDWR)
