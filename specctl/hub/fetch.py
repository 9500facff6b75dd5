"""One file over a line that may be cut, slow, stalled or lying; resumed at the byte, hash checked.

The bytes go to `<name>.part`; the final name appears only when size and hash are right, by one
rename. Every request goes through the hub's resolve address, so an expired storage address is
never used twice.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import re
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from specctl.errors import HubError
from specctl.hub import partial
from specctl.hub.errors import (
    DamagedError,
    DiskFullError,
    NetworkError,
    RateLimitError,
    ServerError,
    StalledError,
    StoreError,
    is_transient,
)
from specctl.hub.progress import Note, Step
from specctl.hub.refusals import explain_response, explain_transport
from specctl.hub.remote import Hub, RemoteFile, check_identity, session, size_lie
from specctl.units import MIB, format_bytes, format_seconds

if TYPE_CHECKING:
    import httpx2

REPORT_SECONDS = 0.1
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """When to give up on a line, a server, a lock. Seconds, bytes, bytes per second.

    A line is stalled when less than `least_rate` came through on average for `stall_seconds`.
    `attempts` count in a row without a new byte; the wait between them doubles from
    `backoff_seconds` to `backoff_cap`. A `Retry-After` beyond `patience_seconds` is not waited for.
    One request asks for at most `window` bytes (storage limits plain requests to 50 GB);
    every `checkpoint` bytes the part is flushed to the disk.
    """

    stall_seconds: float = 20.0
    least_rate: float = 1024.0
    connect_seconds: float = 10.0
    attempts: int = 7
    backoff_seconds: float = 1.0
    backoff_cap: float = 30.0
    patience_seconds: float = 300.0
    window: int = 8 << 30
    checkpoint: int = 64 * MIB
    lock_seconds: float = 600.0

    def wait(self, attempt: int, error: HubError) -> float | None:
        """Seconds before attempt number `attempt` + 1; None: not worth waiting for."""
        if attempt >= self.attempts:
            return None
        if isinstance(error, RateLimitError) and error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.patience_seconds else None
        wait = min(self.backoff_cap, self.backoff_seconds * 2 ** (attempt - 1))
        return float(
            wait * random.uniform(0.75, 1.0)
        )  # many clients must not come back in one moment


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file under its final name. `verified`: against the hub's hash (None: it told none)."""

    sha256: str
    verified: bool | None
    fetched: int


def fetch(
    hub: Hub, remote: RemoteFile, target: Path, policy: FetchPolicy
) -> Generator[Step | Note, None, Fetched]:
    """Fetch a file, or the rest of it, to `target`. The caller holds its lock.

    Raises:
        MovedError: the file changed on the hub since it was looked up.
        DamagedError: the announced size or hash is not what arrives.
        StoreError: the disk is full (the part is kept), or does not let us write.
        HubError: refused, or no line after all attempts (the part is kept).
    """
    fetched = 0
    for last_try in (False, True):
        kept, why = partial.kept_bytes(target, remote)
        if why is not None:
            yield Note(f"{remote.file}: cannot resume, {why}; starting at byte {kept}")
        with _disk_errors(target), _open_part(target, remote, kept) as part:
            yield from part.rehash(kept)
            yield from _transfer(hub, remote, part, policy)
        fetched += part.fetched
        if part.hasher.verdict() is not False:
            with _disk_errors(target):
                _publish(target)
            return Fetched(part.hasher.sha256, part.hasher.verdict(), fetched)
        partial.drop(target)
        if last_try or kept == 0:
            break
        yield Note(f"{remote.file}: the resumed file has the wrong hash; fetching it once more")
    raise DamagedError(
        f"{remote} arrived with the wrong hash: the hub says {remote.sha256 or remote.blob_id}, "
        f"it is {part.hasher.sha256}",
        "the copy was thrown away; try again later, or without a proxy or mirror in between",
    )


def _publish(target: Path) -> None:
    """Give the part its final name, and make the disk know both."""
    os.replace(partial.part_path(target), target)
    if os.name == "posix":
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    partial.drop_journal(target)


class _Part:
    """The open part: bytes on disk, their hash, and the journal's checkpoints."""

    def __init__(self, target: Path, remote: RemoteFile, handle: IO[bytes]) -> None:
        self.remote = remote
        self.hasher = partial.Hasher(remote)
        self.done = 0
        self.fetched = 0
        self.ranges = True  # until the server shows that it ignores them
        self._target = target
        self._handle = handle
        self._durable = 0

    def rehash(self, kept: int) -> Iterator[Step]:
        """Bring the hash to where the part ends; the disk is the only witness."""
        told = time.monotonic()
        for block in partial.blocks(self._handle, kept):
            self.hasher.update(block)
            self.done += len(block)
            if time.monotonic() - told > REPORT_SECONDS:
                told = time.monotonic()
                yield Step("checking", self.done, 0)
        self._durable = min(self.done, kept)

    def write(self, data: bytes, checkpoint: int) -> None:
        view = memoryview(data)
        while view:  # an unbuffered file may take less than it is given, just before it is full
            count = self._handle.write(view)
            self.hasher.update(view[:count].tobytes())
            self.done += count
            self.fetched += count
            view = view[count:]
        if self.done - self._durable >= checkpoint:
            self.flush()

    def flush(self) -> None:
        os.fsync(self._handle.fileno())
        self._durable = self.done
        partial.write_journal(self._target, self.remote, self._durable)

    def restart(self) -> None:
        self._handle.seek(0)
        self._handle.truncate()
        self.hasher = partial.Hasher(self.remote)
        self.done = self._durable = 0


@contextmanager
def _open_part(target: Path, remote: RemoteFile, kept: int) -> Iterator[_Part]:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial.write_journal(target, remote, kept)
    path = partial.part_path(target)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    with open(descriptor, "r+b", buffering=0) as handle:
        handle.truncate(kept)
        part = _Part(target, remote, handle)
        try:
            yield part
        finally:
            part.flush()


@contextmanager
def _disk_errors(target: Path) -> Iterator[None]:
    """What the disk says, in words. The network's errors are no OSErrors here."""
    try:
        yield
    except OSError as error:
        raise explain_disk(error, target) from error


def explain_disk(error: OSError, target: Path) -> StoreError:
    """A full disk, a quota, a file size limit, a missing permission."""
    what = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in _FULL:
        kept = partial.part_path(target)
        size = kept.stat().st_size if kept.exists() else 0
        return DiskFullError(
            f"no room for the rest of {target.name}: {what} in {target.parent}",
            f"the first {format_bytes(size)} are kept; make room and run the same command again, "
            "or put models on another disk with SPECCTL_MODELS",
        )
    return StoreError(
        f"cannot write {error.filename or target}: {what}",
        "choose another folder with SPECCTL_MODELS",
    )


def _transfer(
    hub: Hub, remote: RemoteFile, part: _Part, policy: FetchPolicy
) -> Generator[Step | Note, None, None]:
    attempt = 0
    while part.done < remote.size:
        before = part.done
        try:
            yield from _stream(hub, remote, part, policy)
            attempt = 0
        except HubError as error:
            if not is_transient(error):
                raise
            attempt = 1 if part.done > before else attempt + 1
            wait = policy.wait(attempt, error)
            if wait is None:
                raise
            yield Note(
                f"{remote.file}: {error.message}; resuming at byte {part.done} "
                f"in {format_seconds(wait)}"
            )
            time.sleep(wait)


def _stream(
    hub: Hub, remote: RemoteFile, part: _Part, policy: FetchPolicy
) -> Generator[Step, None, None]:
    """One request: from where the part ends, to the end of the window."""
    import httpx2

    end = min(remote.size, part.done + policy.window)
    headers = hub.headers()
    if part.ranges and (part.done > 0 or end < remote.size):
        headers["Range"] = f"bytes={part.done}-{end - 1}"
    timeout = httpx2.Timeout(policy.connect_seconds, read=policy.stall_seconds)
    client = session(hub)
    try:
        with client.stream("GET", hub.url(remote), headers=headers, timeout=timeout) as response:
            skip = _accept(response, hub, part)
            yield from _read(response, part, skip, policy)
    except httpx2.ReadTimeout as error:
        raise StalledError(f"nothing came for {policy.stall_seconds:g} s", _STALLED) from error
    except (httpx2.ReadError, httpx2.RemoteProtocolError) as error:
        raise NetworkError(f"the line was cut ({error})", "run the same command again") from error
    except httpx2.HTTPError as error:
        raise explain_transport(error, hub) from error
    if part.done < end:
        raise NetworkError(f"the server stopped at byte {part.done} of {remote.size}", _STALLED)


_STALLED = "the part is kept; run the same command again to resume"


def _accept(response: httpx2.Response, hub: Hub, part: _Part) -> int:
    """Judge a response by its headers. Returns how many bytes to skip until ours begin."""
    remote = part.remote
    for answer in (*response.history, response):
        size = answer.headers.get("X-Linked-Size", "")
        check_identity(
            remote,
            answer.headers.get("X-Repo-Commit"),
            answer.headers.get("X-Linked-ETag", "").removeprefix("W/").strip('"'),
            int(size) if size.isdigit() else None,
        )
    status = response.status_code
    span = re.fullmatch(
        r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", response.headers.get("Content-Range", "")
    )
    if span and span[3] != "*" and int(span[3]) != remote.size:
        raise size_lie(remote, int(span[3]))
    if status == 206 and span and span[1] and int(span[1]) == part.done:
        return 0
    if status in (206, 416):  # not the range that was asked for: do without ranges
        part.ranges = False
        raise ServerError(f"the server answers a range with {status} and another one", _STALLED)
    if status >= 400:
        refused = status in (401, 403, 404) and "X-Error-Code" not in response.headers
        if response.history and refused:  # the storage behind the hub: its address has expired
            raise ServerError(f"the storage behind the hub answered {status}", _STALLED)
        raise explain_response(response, hub, remote.repo, remote.file, remote.commit)
    if status != 200:
        raise ServerError(f"the hub answered {status} for {remote}", _STALLED)
    length = response.headers.get("Content-Length", "")
    if length.isdigit() and int(length) != remote.size:
        raise size_lie(remote, int(length))
    return part.done


def _read(
    response: httpx2.Response, part: _Part, skip: int, policy: FetchPolicy
) -> Generator[Step, None, None]:
    """The body, chunk by chunk as it comes; a server that starts at 0 is skipped through."""
    remote = part.remote
    mine, skipped = part.hasher.sha256, hashlib.sha256()
    mark = told = time.monotonic()
    since = 0
    for chunk in response.iter_raw():
        since += len(chunk)
        if skip:
            skipped.update(chunk[:skip])
            passed, chunk = min(skip, len(chunk)), chunk[skip:]
            skip -= passed
            if skip == 0 and skipped.hexdigest() != mine:
                part.restart()
                raise ServerError("the part is not the beginning of this file", _STALLED)
        if part.done + len(chunk) > remote.size:
            raise size_lie(remote, part.done + len(chunk))
        part.write(chunk, policy.checkpoint)
        now = time.monotonic()
        if now - told >= REPORT_SECONDS:
            told = now
            yield Step("fetching", part.done, part.fetched)
        if now - mark >= policy.stall_seconds:
            if since < policy.least_rate * (now - mark):
                raise StalledError(
                    f"only {since} bytes came in {format_seconds(now - mark)}", _STALLED
                )
            mark, since = now, 0
    yield Step("fetching", part.done, part.fetched)
