"""Who is next: round robin over clients, first come first served within one."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """For one taker and any number of givers, from any thread. Holds at most `most` entries."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, client: str, entry: T) -> bool:
        """False: it is full, or closed."""
        with self._changed:
            if self._closed or self._length() >= self._most:
                return False
            self._lines.setdefault(client, deque()).append(entry)
            self._changed.notify()
            return True

    def take(self) -> T | None:
        """The next entry, waited for; None once it is closed. Its client goes to the end."""
        with self._changed:
            while not self._lines and not self._closed:
                self._changed.wait()
            if not self._lines:
                return None
            client, line = self._lines.popitem(last=False)
            entry = line.popleft()
            if line:
                self._lines[client] = line
            return entry

    def remove(self, entry: T) -> bool:
        """Take `entry` out, wherever it is; False: it is not there (any more)."""
        with self._changed:
            for client, line in self._lines.items():
                if entry in line:
                    line.remove(entry)
                    if not line:
                        del self._lines[client]
                    return True
            return False

    def close(self) -> list[T]:
        """Nothing more goes in or out; what was waiting."""
        with self._changed:
            self._closed = True
            left = [entry for line in self._lines.values() for entry in line]
            self._lines.clear()
            self._changed.notify_all()
            return left

    def __len__(self) -> int:
        with self._changed:
            return self._length()

    def _length(self) -> int:
        return sum(map(len, self._lines.values()))
