"""Several files as one job: looked up, checked for room, fetched, each step a record.

`pull` yields `Note`, `Progress`, `Ready` (one file) and, last, `Done`. It prints nothing. Closing
the iterator or Ctrl-C keeps what was fetched; the next `pull` goes on at that byte.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator

from specctl.hub import partial, store
from specctl.hub.errors import DiskFullError, LockedError, MovedError, StoreError
from specctl.hub.fetch import FetchPolicy, explain_disk, fetch
from specctl.hub.lock import Lock, released
from specctl.hub.lookup import Item, Job, confirmed, listing_of, look_up, proven
from specctl.hub.progress import Done, Event, Note, Progress, Ready, Step
from specctl.hub.remote import Hub, RemoteFile, Wanted
from specctl.hub.store import Entry
from specctl.units import GIB, MIB, format_bytes, format_seconds

RATE_SECONDS = 10.0  # the rate shown is that of the last ten seconds
MOVES = 3  # how often a file may change on the hub under one pull


def check_room(job: Job) -> None:
    """Is there room for all of it, in the folder where it goes, before the first byte?

    The margin is 2 % of what is missing, at least 16 MiB and at most 1 GiB.

    Raises:
        DiskFullError: with the numbers.
        StoreError: the folder cannot be made or written.
    """
    if job.missing == 0:
        return
    target = next(item.target for item in job.items if item.missing)
    folder = target.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(f"cannot write in {folder}", "choose another folder with SPECCTL_MODELS")
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise explain_disk(error, target) from error
    margin = int(min(GIB, max(16 * MIB, job.missing * 0.02)))
    if free < job.missing + margin:
        short = job.missing + margin - free
        raise DiskFullError(
            f"not enough room in {folder}: {format_bytes(job.missing)} to fetch and "
            f"{format_bytes(margin)} margin, {format_bytes(free)} free",
            f"make {format_bytes(short)} of room, or put models on another disk with "
            "SPECCTL_MODELS",
        )


class _Meter:
    """Bytes of the whole job to rate and remaining time; only fetched bytes make a rate."""

    def __init__(self, job: Job) -> None:
        self.total = job.total
        self._count = len(job.items)
        self._before = 0  # bytes of the files that are finished
        self._fetched = 0  # bytes fetched for them
        self._todo = sum(item.remote.size for item in job.items if not item.found)
        self._marks: deque[tuple[float, int]] = deque()

    def progress(self, index: int, remote: RemoteFile, step: Step) -> Progress:
        rate = self._rate(self._fetched + step.fetched) if step.phase == "fetching" else None
        done = self._before + step.done
        return Progress(
            *(step.phase, remote.file, index, self._count, step.done, remote.size),
            *(done, self.total, rate, (self._todo - step.done) / rate if rate else None),
        )

    def _rate(self, fetched: int) -> float | None:
        now = time.monotonic()
        if self._marks and fetched < self._marks[-1][1]:  # a file was started over
            self._marks.clear()
        self._marks.append((now, fetched))
        while now - self._marks[0][0] > RATE_SECONDS:
            self._marks.popleft()
        began, at = self._marks[0]
        return (fetched - at) / (now - began) if now - began > 0.5 and fetched > at else None

    def resized(self, by: int) -> None:
        """A file changed on the hub under the pull."""
        self.total += by
        self._todo += by

    def finished(self, one: Ready, item: Item) -> None:
        """A file is here."""
        self._before += one.size
        self._fetched += one.fetched
        self._todo -= 0 if item.found else one.size


def pull(wanted: Iterable[Wanted], hub: Hub, policy: FetchPolicy | None = None) -> Iterator[Event]:
    """Get every file onto this machine and say on the way what happens.

    Raises:
        HubError: see specctl/hub/errors.py; what was fetched is kept.
    """
    policy = policy or FetchPolicy()
    began = time.monotonic()
    job = yield from look_up(wanted, hub, policy)
    check_room(job)
    meter = _Meter(job)
    ready = []
    for index, item in enumerate(job.items, 1):
        one = yield from _bring(item, index, hub, policy, meter)
        meter.finished(one, item)
        ready.append(one)
        yield one
    yield Done(
        tuple(one.path for one in ready),
        sum(one.size for one in ready),
        sum(one.fetched for one in ready),
        time.monotonic() - began,
    )


def _bring(
    item: Item, index: int, hub: Hub, policy: FetchPolicy, meter: _Meter
) -> Generator[Note | Progress, None, Ready]:
    if item.found:
        return _ready(item.found, item.remote)
    lock = Lock(store.lock_path(item.target))
    with released(lock):
        try:
            yield from _acquire(lock, item, policy)
        except OSError as error:
            raise explain_disk(error, item.target) from error
        remote = item.remote
        found = yield from proven(remote)  # whoever held the lock may have finished it
        if found:
            return _ready(found, remote)
        for move in range(MOVES):
            try:
                return (yield from _fetch(item, remote, index, hub, policy, meter))
            except MovedError as error:
                if move == MOVES - 1:
                    raise
                yield Note(f"{error.message}; looking it up again")
                listing = yield from listing_of(item.want, hub, policy)
                again = listing.get(remote.file)
                if again is None:
                    raise
                again = yield from confirmed(again, hub, policy)
                meter.resized(again.size - remote.size)
                remote = again
        raise AssertionError("the loop returns or raises")


def _fetch(
    item: Item, remote: RemoteFile, index: int, hub: Hub, policy: FetchPolicy, meter: _Meter
) -> Generator[Note | Progress, None, Ready]:
    steps = fetch(hub, remote, item.target, policy)
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            result = end.value
            break
        yield step if isinstance(step, Note) else meter.progress(index, remote, step)
    store.record(
        *(item.target, remote.repo, remote.file, remote.commit, result.sha256),
        verified=bool(result.verified),
    )
    if result.verified is None:
        yield Note(f"{remote}: the hub tells no hash for it; not verified")
    return Ready(
        *(remote.file, item.target, store.OWN, remote.size, result.verified, result.fetched)
    )


def _ready(entry: Entry, remote: RemoteFile) -> Ready:
    verified = entry.sha256 == remote.sha256 if entry.sha256 and remote.sha256 else None
    return Ready(remote.file, entry.path, entry.where, entry.size, verified, 0)


def _acquire(lock: Lock, item: Item, policy: FetchPolicy) -> Generator[Note, None, None]:
    """Wait for another pull of this file, as long as its part grows; say who it is.

    Raises:
        LockedError: the other one has not moved for `lock_seconds`.
    """
    part = partial.part_path(item.target)
    since, told, size = time.monotonic(), -1e9, -1
    while not lock.try_acquire():
        now = time.monotonic()
        grown = part.stat().st_size if part.exists() else 0
        owner = lock.owner() or "another process"
        if grown != size:
            since, size = now, grown
        if now - since > policy.lock_seconds:
            raise LockedError(
                f"{item.remote} is being pulled by {owner}, "
                f"and nothing came for {format_seconds(policy.lock_seconds)}",
                "end that process if it hangs, then run the same command again",
            )
        if now - told > 30:
            told = now
            yield Note(
                f"{item.remote.file} is being pulled by {owner} "
                f"({format_bytes(grown)} of {format_bytes(item.remote.size)}); waiting"
            )
        time.sleep(0.2)
    if lock.left_by is not None:
        yield Note(f"{item.remote.file}: taking over the lock of {lock.left_by}, which is gone")
