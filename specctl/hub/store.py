"""specctl's own store of model files: plain files, no links, each with a sidecar.

`<models>/<owner>--<repo>/<file>`, and beside it `<file>.specctl.json`: where it came from, its
sha256, and size and time of change when that hash was taken: a file touched since is told apart.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

from specctl import paths
from specctl.errors import GgufError, UsageError
from specctl.gguf.header import read_header
from specctl.gguf.source import LocalSource
from specctl.hub import partial
from specctl.hub.errors import NotFoundError, StoreError
from specctl.hub.fetch import REPORT_SECONDS, explain_disk
from specctl.hub.progress import Step
from specctl.units import format_bytes

OWN = "specctl"
IMPORTED = "imported"
Verified = Literal["yes", "unchanged", "changed", "no"]
_SIDECAR = ".specctl.json"
_NOT_MODELS = (_SIDECAR, ".part", ".part.json", ".new")
_RESERVED = '<>:"|?*\\'


@dataclass(frozen=True, slots=True)
class Sidecar:
    """What is known of a stored file. `verified`: the hash was the hub's, not only computed."""

    repo: str | None
    file: str
    commit: str | None
    size: int
    sha256: str
    verified: bool
    mtime_ns: int
    unix_time: float


@dataclass(frozen=True, slots=True)
class Entry:
    """A model file on this machine. `where`: specctl, or whose folder it lies in, read-only.

    `verified`: yes, its hash was the hub's, and size and time of change are as they were then;
    unchanged, the same for a hash that was only taken here; changed, they differ; no, no hash.
    """

    name: str
    path: Path
    size: int
    where: str
    verified: Verified
    repo: str | None = None
    sha256: str | None = None

    @property
    def own(self) -> bool:
        """Whether it is ours to remove."""
        return self.where == OWN


def target_path(repo: str, file: str) -> Path:
    """Where a file of a repo belongs.

    Raises:
        StoreError: a name that would leave the store, or that file systems cannot hold.
    """
    parts = PurePosixPath(file).parts
    if not parts or file.startswith("/") or ".." in parts or any(c in _RESERVED for c in file):
        raise StoreError(f"{file!r} is not a file name that can be stored")
    return paths.models_dir() / repo.replace("/", "--") / Path(*parts)


def lock_path(target: Path) -> Path:
    """The lock file of a target, out of the way of the models."""
    root = paths.models_dir()
    return root / ".locks" / ("--".join(target.relative_to(root).parts) + ".lock")


def sidecar_path(path: Path) -> Path:
    """The sidecar of a stored file."""
    return path.with_name(path.name + _SIDECAR)


def read_sidecar(path: Path) -> Sidecar | None:
    """The sidecar, or None where there is none that can be read."""
    try:
        return Sidecar(**json.loads(sidecar_path(path).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def record(
    path: Path, repo: str | None, file: str, commit: str | None, sha256: str, verified: bool
) -> None:
    """Write the sidecar of a file that lies complete under its name."""
    status = path.stat()
    sidecar = Sidecar(
        repo, file, commit, status.st_size, sha256, verified, status.st_mtime_ns, time.time()
    )
    partial.write_json(sidecar_path(path), asdict(sidecar))


def entry_of(path: Path) -> Entry:
    """A file of the store as an entry."""
    status = path.stat()
    sidecar = read_sidecar(path)
    relative = path.relative_to(paths.models_dir()).as_posix()
    if sidecar is None:
        return Entry(relative, path, status.st_size, OWN, "no")
    fresh = (sidecar.size, sidecar.mtime_ns) == (status.st_size, status.st_mtime_ns)
    return Entry(
        f"{sidecar.repo}/{sidecar.file}" if sidecar.repo else relative,
        path,
        status.st_size,
        OWN,
        ("yes" if sidecar.verified else "unchanged") if fresh else "changed",
        sidecar.repo,
        sidecar.sha256 if fresh else None,
    )


def entries() -> list[Entry]:
    """Every finished file of the store, by name; parts and sidecars are not files."""
    root = paths.models_dir()
    found = []
    for path in sorted(root.rglob("*")):
        inner = path.relative_to(root).parts
        if inner[0].startswith(".") or path.name.endswith(_NOT_MODELS):
            continue
        if path.is_file():
            found.append(entry_of(path))
    return found


def check_folder() -> None:
    """One that is not there yet is an empty store; what stands in its place is not.

    Raises:
        StoreError: a file, or a link to nothing.
    """
    root = paths.models_dir()
    if os.path.lexists(root) and not root.is_dir():
        what = "a link to nothing" if root.is_symlink() and not root.exists() else "no folder"
        raise StoreError(f"{root} is {what}", "choose another folder with SPECCTL_MODELS")


@dataclass(frozen=True, slots=True)
class Part:
    """A half-fetched file: `have` of `size` bytes are here."""

    name: str
    path: Path
    have: int
    size: int | None


def parts() -> list[Part]:
    """Every half-fetched file of the store."""
    found = []
    for path in sorted(paths.models_dir().rglob("*.part")):
        journal = partial.read_journal(path.with_name(path.name.removesuffix(".part")))
        name = f"{journal.repo}/{journal.file}" if journal else path.name
        found.append(Part(name, path, path.stat().st_size, journal.size if journal else None))
    return found


def find_own(repo: str, file: str) -> Entry | None:
    """The stored file of a repo, if it lies complete under its name."""
    path = target_path(repo, file)
    return entry_of(path) if path.is_file() else None


def select(names: Iterator[str] | list[str], among: list[Entry]) -> list[Entry]:
    """Entries by full name, file name, or path.

    Raises:
        NotFoundError: a name that fits none, or several.
    """
    chosen = []
    for name in names:
        exact = [entry for entry in among if name in (entry.name, str(entry.path))]
        fits = exact or [entry for entry in among if entry.path.name == name]
        if len(fits) != 1:
            what = "nothing here is called" if not fits else "several files are called"
            hint = ", ".join(entry.name for entry in (fits or among)[:5])
            raise NotFoundError(f"{what} {name!r}", f"name one of: {hint}" if hint else None)
        chosen.append(fits[0])
    return chosen


class Feedable(Protocol):
    """Anything that takes bytes one block after the other."""

    def update(self, data: bytes, /) -> None:
        """Take the next bytes."""


def feed(path: Path, into: Feedable) -> Iterator[Step]:
    """Read a file into a hash, with a step every tenth of a second.

    Raises:
        StoreError: it cannot be read.
    """
    done, told = 0, time.monotonic()
    try:
        with open(path, "rb") as handle:
            for block in partial.blocks(handle, path.stat().st_size):
                into.update(block)
                done += len(block)
                if time.monotonic() - told >= REPORT_SECONDS:
                    told = time.monotonic()
                    yield Step("checking", done, 0)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error


def hash_file(path: Path) -> Generator[Step, None, str]:
    """sha256 of a file, with steps on the way. Raises StoreError."""
    digest = hashlib.sha256()
    yield from feed(path, digest)
    return digest.hexdigest()


def flaw(entry: Entry) -> str:
    """Why the file cannot be whole: no GGUF, or shorter than its tensors. Empty where it can, and
    where the hub's own hash can tell.
    """
    if entry.verified == "yes":
        return ""
    try:
        with LocalSource(entry.path) as source:
            missing = read_header(source).missing
    except GgufError as error:
        return error.message.removeprefix(f"{entry.path} ")
    return f"{format_bytes(missing)} are missing" if missing else ""


def verify(entry: Entry) -> Generator[Step, None, bool | None]:
    """Hash a file again and compare: right, wrong, or None where no hash was known.

    A stored file without a known hash is recorded with the one that it has now.
    """
    sidecar = read_sidecar(entry.path) if entry.own else None
    known = sidecar.sha256 if sidecar else entry.sha256
    actual = yield from hash_file(entry.path)
    if known is None:
        if entry.own:
            record(entry.path, None, entry.path.name, None, actual, verified=False)
        return None
    if actual == known and sidecar is not None:
        record(
            *(entry.path, sidecar.repo, sidecar.file, sidecar.commit, actual),
            verified=sidecar.verified,
        )
    return actual == known


def remove(entry: Entry) -> int:
    """Delete a file of the store with its sidecar; returns the bytes freed.

    Raises:
        UsageError: the file belongs to another program.
    """
    if not entry.own:
        raise UsageError(
            f"{entry.path} belongs to {entry.where}", f"remove it with {entry.where}'s own tools"
        )
    try:
        entry.path.unlink()
        sidecar_path(entry.path).unlink(missing_ok=True)
    except OSError as error:
        raise explain_disk(error, entry.path) from error
    for folder in entry.path.parents:
        if folder == paths.models_dir() or any(folder.iterdir()):
            break
        folder.rmdir()
    return entry.size


def import_file(source: Path) -> Generator[Step, None, Entry]:
    """Take a file into the store: a hard link where the disk allows, else a copy.

    Raises:
        UsageError: no such file, or the name is taken by another content.
        StoreError: no room, or no permission.
    """
    if not source.is_file():
        raise UsageError(f"there is no file {source}")
    with source.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise UsageError(f"{source.name} is not a GGUF file", "specctl runs GGUF models only")
    source = source.resolve()
    target = target_path(IMPORTED, source.name)
    digest = yield from hash_file(source)
    if target.exists():
        old = entry_of(target).sha256 or (yield from hash_file(target))
        if old != digest:
            raise UsageError(
                f"another file is already imported as {source.name}",
                f"rename one, or: specctl models remove {source.name}",
            )
    else:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(source, target)
        except OSError as error:
            raise explain_disk(error, target) from error
    record(target, None, source.name, None, digest, verified=False)
    return entry_of(target)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or a file system without links
        fresh = partial.part_path(target)
        try:
            shutil.copyfile(source, fresh)
            os.replace(fresh, target)
        finally:
            fresh.unlink(missing_ok=True)
