"""A thread that drains iterators of events, and a buffer the screen empties at its own pace.

The engine is never slowed by the screen: the thread only appends. The screen takes all that has
come, at most `RATE` times per second.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from specctl.errors import SpecctlError
from specctl.tui.messages import Event, Note

RATE = 8.0  # times per second that a screen looks for new events
E = TypeVar("E")


class Drain(Generic[E]):
    """Runs jobs one after the other in a thread of its own.

    `take()` returns what has come since the last call, in order. `busy` is true while a job runs
    or waits. A job that raises ends with an error note, never silently.
    `cut`: closing ends a running job at its next event.
    """

    def __init__(self, cut: bool = False) -> None:
        self._cut = cut
        self._events: deque[E | Note] = deque()
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Iterator[E]], bool] | None]
        self._jobs = queue.SimpleQueue()
        self._waiting = 0
        self._keeping = 0
        self._closing = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """A job runs or waits."""
        return self._waiting > 0

    @property
    def keeping(self) -> int:
        """Jobs that run or wait and that closing must not lose."""
        return self._keeping

    def submit(self, job: Callable[[], Iterator[E]], keep: bool = False) -> None:
        """Run `job()` after those before it; with `keep`, even when it is closing."""
        with self._lock:
            self._waiting += 1
            self._keeping += keep
        self._jobs.put((job, keep))

    def put(self, event: E) -> None:
        """An event from elsewhere (gauges, notes)."""
        self._events.append(event)

    def take(self) -> list[E | Note]:
        """All events since the last call."""
        taken: list[E | Note] = []
        try:
            while True:
                taken.append(self._events.popleft())
        except IndexError:
            return taken

    def refuse(self) -> None:
        """From now on no job begins but those to be kept."""
        self._closing = True

    def close(self, seconds: float = 5.0) -> bool:
        """End after the running job (`cut`: after its next event) and those to be kept, without
        the others that wait; false if that takes longer.
        """
        self.refuse()
        self._jobs.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def wait(self, seconds: float = 5.0) -> bool:
        """Wait until no job runs or waits (tests)."""
        end = time.monotonic() + seconds
        while self.busy and time.monotonic() < end:
            time.sleep(0.005)
        return not self.busy

    def _do(self, events: Iterator[E]) -> None:
        for event in events:
            self._events.append(event)
            if self._cut and self._closing:
                break

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, keep = item
            try:
                if keep or not self._closing:
                    self._do(job())
            except SpecctlError as error:
                hint = f" ({error.hint})" if error.hint else ""
                self._events.append(Note(error.message + hint, "error"))
            except Exception as error:  # a bug is shown, not swallowed; the thread lives on
                text = f"{type(error).__name__}: {error} (a bug in specctl)"
                self._events.append(Note(text, "error"))
            finally:
                with self._lock:
                    self._waiting -= 1
                    self._keeping -= keep


Feed = Drain[Event]  # what the dashboard's screens take
