"""One pull at a time per file: a lock of the operating system, with its owner written beside it.

The lock is `flock` (Windows: `msvcrt.locking`): it goes with its process, however that ends. Some
network file systems grant it to everybody; the owner record is the second look.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import psutil


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lock. `started` is the process's own start: it tells a reused pid apart."""

    pid: int
    host: str
    started: float
    since: float

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}, since {time.strftime('%H:%M:%S', self._local)}"

    @property
    def _local(self) -> time.struct_time:
        return time.localtime(self.since)


def _self() -> Owner:
    process = psutil.Process()
    return Owner(process.pid, socket.gethostname(), process.create_time(), time.time())


def _alive(owner: Owner) -> bool:
    """Whether the owner still runs; a process on another host counts as running."""
    if owner.host != socket.gethostname():
        return True
    try:
        process = psutil.Process(owner.pid)
        return process.status() != psutil.STATUS_ZOMBIE and (
            abs(process.create_time() - owner.started) < 1
        )
    except psutil.Error:
        return False


class Lock:
    """The lock of one file. `try_acquire` says True once it is ours; `owner` who else has it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._record = path.with_name(path.name + ".owner")
        self._handle: IO[bytes] | None = None
        self.left_by: Owner | None = None  # a dead owner whose lock was taken over

    def owner(self) -> Owner | None:
        """Who wrote himself down last, if the record can be read."""
        try:
            return Owner(**json.loads(self._record.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it.

        Raises:
            OSError: the lock file cannot be made.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle = open(self._path, "ab")  # noqa: SIM115 - held until release
        try:
            taken = _take(handle)
        except BaseException:
            handle.close()
            raise
        left = self.owner() if taken else None
        if left is not None and _alive(left):  # a file system that grants the lock to everybody
            taken = left.pid == os.getpid() and left.host == socket.gethostname()
        if not taken:
            handle.close()
            return False
        self.left_by = left
        self._handle = handle
        self._record.write_text(json.dumps(asdict(_self())))
        return True

    def release(self) -> None:
        """Give it back. The lock file stays: removing it would race with the next taker."""
        if self._handle is not None:
            self._record.unlink(missing_ok=True)
            self._handle.close()
            self._handle = None


def _take(handle: IO[bytes]) -> bool:
    if sys.platform == "win32":
        import msvcrt

        try:
            handle.seek(0)
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def released(lock: Lock) -> Iterator[None]:
    """Give the lock back on the way out."""
    try:
        yield
    finally:
        lock.release()
