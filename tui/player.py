"""A recording in time: which records have been seen at a moment. Pure; the screen turns the clock.

Between the end of an answer and the next question at most `PAUSE` seconds pass.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from specctl.events import Cycle, Finished, Interval, PromptDone, Record, Started
from specctl.tui.state import Live

PAUSE = 1.0  # seconds
SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0, 30.0, 100.0)


def timeline(records: Sequence[Record]) -> list[float]:
    """Seconds from the start at which each record came, never falling."""
    times: list[float] = []
    begin = now = 0.0
    first = True  # cycle of its answer
    for record in records:
        match record:
            case Started():
                begin = now = now + (PAUSE if times else 0.0)
                first = True
            case PromptDone():
                now = max(now, begin + record.seconds)
            case Cycle() | Interval():
                if first and isinstance(record, Cycle) and record.index:
                    # the recording begins in the middle of this answer: nothing to wait for
                    begin = now + record.t_c - record.clock
                first = False
                now = max(now, begin + record.clock)
            case Finished():
                now = max(now, begin + record.seconds)
        times.append(now)
    return times


class Player:
    """A position in a recording, and the state there."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._times = timeline(records)
        self.position = 0  # records seen
        self.now = 0.0  # seconds
        self.live = Live()

    @property
    def length(self) -> float:
        """Seconds of the whole recording."""
        return self._times[-1] if self._times else 0.0

    @property
    def at_end(self) -> bool:
        """Everything has been seen."""
        return self.position == len(self._records)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now = min(self.length, self.now + seconds)
        self._go(bisect_right(self._times, self.now))

    def step(self, cycles: int) -> None:
        """To the next cycle, or with -1 to the one before; other records pass along."""
        position = self.position
        for _ in range(abs(cycles)):
            position = self._next(position) if cycles > 0 else self._before(position)
        self._go(position)
        self.now = self._times[position - 1] if position else 0.0

    def seek(self, seconds: float) -> None:
        """Jump to a moment."""
        self.now = min(max(0.0, seconds), self.length)
        self._go(bisect_right(self._times, self.now) if self.now else 0)

    def finish(self) -> None:
        """To the end."""
        self.now = self.length
        self._go(len(self._records))

    def _next(self, position: int) -> int:
        while position < len(self._records):
            position += 1
            if isinstance(self._records[position - 1], Cycle | Interval):
                break
        return position

    def _before(self, position: int) -> int:
        """The place just after the cycle before the last one seen."""
        seen = [at for at in range(position) if isinstance(self._records[at], Cycle | Interval)]
        return seen[-2] + 1 if len(seen) > 1 else 0

    def _go(self, position: int) -> None:
        if position < self.position:  # a fold has no way back
            version = self.live.version
            self.live = Live(version=version + 1)
            self.position = 0
        for record in self._records[self.position : position]:
            self.live.apply(record)
        self.position = max(self.position, position)
