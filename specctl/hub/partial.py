"""The half-fetched file: `<name>.part` with its journal `<name>.part.json` beside it.

The journal says which content the bytes belong to, and how many of them were surely on the disk
at the last checkpoint. After a killed process the kernel still writes what it was given, so the
part's own length counts; after a reboot only the checkpoint does.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import psutil

from specctl.hub.remote import RemoteFile

READ_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Journal:
    """Which content a part belongs to. `durable` bytes were flushed during boot `boot`."""

    repo: str
    file: str
    commit: str
    size: int
    sha256: str | None
    blob_id: str | None
    durable: int
    boot: str

    def same_content(self, remote: RemoteFile) -> bool:
        """By hash where there is one; without any, only the same commit is the same content."""
        if self.size != remote.size:
            return False
        if remote.sha256 or self.sha256:
            return self.sha256 == remote.sha256
        if remote.blob_id or self.blob_id:
            return self.blob_id == remote.blob_id
        return self.commit == remote.commit


def part_path(target: Path) -> Path:
    """Where the bytes lie until they are all there and checked."""
    return target.with_name(target.name + ".part")


def _journal_path(target: Path) -> Path:
    return target.with_name(target.name + ".part.json")


def boot_id() -> str:
    """Tells one boot of the machine from the next."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{psutil.boot_time():.0f}"


def read_journal(target: Path) -> Journal | None:
    """The journal, or None where there is none that can be read."""
    try:
        return Journal(**json.loads(_journal_path(target).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def write_journal(target: Path, remote: RemoteFile, durable: int) -> None:
    """Replace the journal in one step."""
    journal = Journal(
        remote.repo,
        remote.file,
        remote.commit,
        remote.size,
        remote.sha256,
        remote.blob_id,
        durable,
        boot_id(),
    )
    write_json(_journal_path(target), asdict(journal))


def write_json(path: Path, value: dict[str, object]) -> None:
    """Write and rename: a reader sees the old file or the new one."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with open(fresh, "w") as handle:
            json.dump(value, handle, indent=1)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(fresh, path)
    finally:  # a full disk leaves nothing behind
        fresh.unlink(missing_ok=True)


def drop(target: Path) -> None:
    """Forget part and journal."""
    part_path(target).unlink(missing_ok=True)
    _journal_path(target).unlink(missing_ok=True)


def drop_journal(target: Path) -> None:
    """Forget the journal of a part that has become the file."""
    _journal_path(target).unlink(missing_ok=True)


def kept_bytes(target: Path, remote: RemoteFile) -> tuple[int, str | None]:
    """How many bytes of a part can be used for this content, and why not all, if so."""
    try:
        length = part_path(target).stat().st_size
    except OSError:
        return 0, None
    journal = read_journal(target)
    if journal is None:
        return 0, "its journal is missing"
    if not journal.same_content(remote):
        return 0, "the file changed on the hub"
    if length > remote.size:
        return 0, f"it is longer ({length} bytes) than the file ({remote.size})"
    if journal.boot != boot_id() and journal.durable < length:
        return journal.durable, "the machine was restarted since; bytes not surely on disk dropped"
    return length, None


class Hasher:
    """sha256 and, for small files, git's own hash, side by side."""

    def __init__(self, remote: RemoteFile) -> None:
        self._remote = remote
        self._sha256 = hashlib.sha256()
        self._git = hashlib.sha1(f"blob {remote.size}\0".encode(), usedforsecurity=False)
        self._needs_git = remote.sha256 is None and remote.blob_id is not None

    def update(self, data: bytes) -> None:
        """Take the next bytes."""
        self._sha256.update(data)
        if self._needs_git:
            self._git.update(data)

    @property
    def sha256(self) -> str:
        """Of everything so far."""
        return self._sha256.hexdigest()

    def verdict(self) -> bool | None:
        """Right, wrong, or None where the hub told no hash."""
        if self._remote.sha256 is not None:
            return self.sha256 == self._remote.sha256
        if self._remote.blob_id is not None:
            return self._git.hexdigest() == self._remote.blob_id
        return None


def blocks(handle: IO[bytes], length: int) -> Iterator[bytes]:
    """The next `length` bytes of a file, in blocks; fewer where the file ends."""
    while length > 0:
        data = handle.read(min(READ_BLOCK, length))
        if not data:
            return
        length -= len(data)
        yield data
