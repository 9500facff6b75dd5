"""t_1: a plain one-token step of the target, measured in this process and kept current."""

from __future__ import annotations

import statistics
from collections import deque

CALIBRATION_STEPS = 3  # plain cycles at the start of a session
REFRESH_AFTER = 64  # drafted cycles in a row before a plain one is forced
_WINDOW = 12  # the last plain steps that count


class StepTime:
    """The mean of the last plain steps without the slowest and the quickest, seconds.

    A mean, not a median: it is held against means of cycle times, in which a busy machine's slow
    moments count as well.
    """

    def __init__(self) -> None:
        self._steps: deque[float] = deque(maxlen=_WINDOW)
        self._drafted_since = 0

    @property
    def seconds(self) -> float | None:
        """t_1 now; None until measured."""
        if len(self._steps) < CALIBRATION_STEPS:
            return None
        steps = sorted(self._steps)
        return statistics.fmean(steps[1:-1])

    @property
    def wants_plain(self) -> str | None:
        """Why the next cycle should be plain, or None."""
        if len(self._steps) < CALIBRATION_STEPS:
            return "measuring a plain step"
        if self._drafted_since >= REFRESH_AFTER:
            return "measuring a plain step again"
        return None

    def plain(self, seconds: float) -> None:
        """A plain step took this long (verify and bookkeeping, no drafter)."""
        self._steps.append(seconds)
        self._drafted_since = 0

    def drafted(self) -> None:
        """A cycle had a draft."""
        self._drafted_since += 1
