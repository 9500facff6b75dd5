"""Why a server cannot be watched; each says what to do about it.

RemoteError
├── GoneError           nobody answers, or the line was cut: asking again may help
│   └── SilentError     a stream is open, and nothing has come for long
├── KeyRefusedError     401 or 403
├── NotAnEngineError    something answers, and it is no engine that specctl knows
├── MetricsOffError     the engine is known, its counters are switched off
└── JunkError           an answer that cannot be read: no metrics, no JSON, too large
"""

from __future__ import annotations

from specctl.errors import RemoteError


class GoneError(RemoteError):
    """Nobody answers, or the line was cut."""


class SilentError(GoneError):
    """A stream is open, and nothing has come for long: an idle server, or a dead line."""


class KeyRefusedError(RemoteError):
    """The server wants a key, or does not accept this one."""


class NotAnEngineError(RemoteError):
    """Something answers, and it is no engine that specctl knows."""


class MetricsOffError(RemoteError):
    """The engine is known, and its counters are switched off."""


class JunkError(RemoteError):
    """An answer that cannot be read; `status` where it is the status that was not expected."""

    def __init__(self, message: str, hint: str | None = None, status: int | None = None) -> None:
        super().__init__(message, hint)
        self.status = status
