"""Why a server cannot be watched; each says what to do about it.

RemoteError
├── GoneError           nobody answers, or the line was cut: asking again may help
├── KeyRefusedError     401 or 403
├── NotAnEngineError    something answers, and it is no engine that specctl knows
├── MetricsOffError     the engine is known, its counters are switched off
└── JunkError           an answer that cannot be read: no metrics, no JSON, too large
"""

from __future__ import annotations

from specctl.errors import RemoteError


class GoneError(RemoteError):
    """Nobody answers, or the line was cut."""


class KeyRefusedError(RemoteError):
    """The server wants a key, or does not accept this one."""


class NotAnEngineError(RemoteError):
    """Something answers, and it is no engine that specctl knows."""


class MetricsOffError(RemoteError):
    """The engine is known, and its counters are switched off."""


class JunkError(RemoteError):
    """An answer that cannot be read."""
