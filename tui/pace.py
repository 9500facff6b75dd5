"""How often to draw while the model writes: as often as a small share of the time allows.

The engine's Python and the screen share one interpreter lock, so what the screen computes the model
may wait for. A frame that is cheap on one machine is dear on another, hence no fixed rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.015  # of the time that drawing may take while the model writes
LONGEST = 1.0  # seconds after which it draws whatever it costs
_CREDIT = 0.1  # seconds of a quiet screen that may be saved up


class Pace:
    """A bucket that fills with `SHARE` of the passing time and from which drawing is paid.

    `clock` is the time that passes, `spent` what this thread has computed, both in seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock, self._spent = clock, spent
        self._at, self._was = clock(), spent()
        self._drew = self._at
        self._credit = 0.0

    def may_draw(self) -> bool:
        """Is the last frame paid off? Ask before each frame, in the thread that draws."""
        now, spent = self._clock(), self._spent()
        income = SHARE * (now - self._at) - (spent - self._was)
        self._credit = min(max(self._credit + income, -SHARE * LONGEST), SHARE * _CREDIT)
        self._at, self._was = now, spent
        # The rest of the thread's work is paid from the same bucket: it may never fill.
        if self._credit < 0 and now - self._drew < LONGEST:
            return False
        self._drew = now
        return True
