"""What is asked for, what the hub has, and what lies on this machine already: a job for `pull`."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from specctl.errors import HubError, UsageError
from specctl.hub import elsewhere, partial, store
from specctl.hub.errors import NetworkError, NotFoundError, OfflineError, is_transient
from specctl.hub.fetch import FetchPolicy
from specctl.hub.progress import Note, Progress
from specctl.hub.refusals import no_such_file
from specctl.hub.remote import Hub, Listing, RemoteFile, Wanted, confirm, list_repo
from specctl.hub.split import split_parts
from specctl.hub.store import Entry
from specctl.units import format_bytes, format_seconds

T = TypeVar("T")
LOOK_UP_ATTEMPTS = 3  # where nobody answers at all, nothing is lost by giving up early


@dataclass(frozen=True, slots=True)
class Item:
    """One file of a job: what the hub has, where it belongs, and where it lies already, if so."""

    want: Wanted
    remote: RemoteFile
    target: Path
    found: Entry | None
    kept: int  # bytes of an earlier try that count

    @property
    def missing(self) -> int:
        """Bytes still to fetch."""
        return 0 if self.found else self.remote.size - self.kept


@dataclass(frozen=True, slots=True)
class Job:
    """All files of a pull, looked up."""

    items: tuple[Item, ...]

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(item.remote.size for item in self.items)

    @property
    def missing(self) -> int:
        """Bytes to fetch."""
        return sum(item.missing for item in self.items)


def parse_reference(text: str, revision: str | None = None) -> Wanted:
    """`hf:owner/repo/file.gguf` (the file may lie in folders) as a wanted file.

    Raises:
        UsageError: not of that form.
    """
    body = text.removeprefix("hf:").removeprefix("//")
    owner, _, rest = body.partition("/")
    repo, _, file = rest.partition("/")
    if not (owner and repo and file) or file.endswith("/"):
        raise UsageError(f"{text!r} names no file", "write it as hf:owner/repo/file.gguf")
    return Wanted(f"{owner}/{repo}", file, revision=revision)


def expand(wanted: Iterable[Wanted]) -> tuple[Wanted, ...]:
    """Every part of every split model, each file once. Size and hash stay with the named part."""
    seen: dict[tuple[str, str, str | None], Wanted] = {}
    named = {(want.repo, want.file): want for want in wanted}
    for want in named.values():
        for part in split_parts(want.file):
            known = named.get((want.repo, part)) or Wanted(want.repo, part, revision=want.revision)
            seen.setdefault((want.repo, part, want.revision), known)
    return tuple(seen.values())


def find(repo: str, file: str, size: int | None = None, sha256: str | None = None) -> Path | None:
    """Where a file lies on this machine already; no network, no hashing.

    Size and hash must fit where both sides know them; a file in specctl's own store that the hub
    once vouched for counts even where a profile's older figures differ. Of a split model all parts
    must lie in one folder.
    """
    entry = _find(Wanted(repo, file, size, sha256))
    return entry.path if entry else None


def _find(want: Wanted) -> Entry | None:
    fitting = next(_fitting(want), None)
    if fitting is not None:
        return fitting
    own = store.find_own(want.repo, want.file)
    return own if own and own.verified == "yes" else None


def _fitting(want: Wanted) -> Iterator[Entry]:
    own = store.find_own(want.repo, want.file)
    others = elsewhere.candidates(want.repo, want.file, want.sha256)
    for entry in (*((own,) if own else ()), *others):
        if want.size is not None and entry.size != want.size:
            continue
        if want.sha256 and entry.sha256 and entry.sha256 != want.sha256:
            continue
        if entry.own or _parts_beside(entry, want.file):
            yield entry


def _parts_beside(entry: Entry, file: str) -> bool:
    """llama.cpp opens a split model from one folder: a part alone elsewhere is of no use."""
    parts = split_parts(file)
    if len(parts) == 1:
        return True
    own_name = Path(file).name
    return all(
        entry.path.with_name(entry.path.name.replace(own_name, Path(part).name)).is_file()
        for part in parts
    )


def look_up(
    wanted: Iterable[Wanted], hub: Hub, policy: FetchPolicy
) -> Generator[Note | Progress, None, Job]:
    """Ask the hub once per repo; find what is here already; complete split models.

    Raises:
        OfflineError: the network is forbidden and something is missing.
        NotFoundError: no such repo or file (nearest names in the hint), or a part is missing.
        HubError: refused, or no answer.
    """
    files = expand(wanted)
    if not files:
        raise UsageError("nothing to pull", "name a file: hf:owner/repo/file.gguf")
    if hub.offline:
        return _offline(files, hub.offline)
    listings: dict[tuple[str, str | None], Listing] = {}
    items = []
    for want in files:
        key = (want.repo, want.revision)
        if key not in listings:
            try:
                listings[key] = yield from listing_of(want, hub, policy)
            except NetworkError as error:
                if not all(_find(want) for want in files):
                    raise
                yield Note(f"{error.message}; using the files that are here, unchecked")
                return _offline(files, "no network")
        items.append((yield from _item(want, listings[key], hub, policy)))
    return Job(tuple(items))


def listing_of(want: Wanted, hub: Hub, policy: FetchPolicy) -> Generator[Note, None, Listing]:
    """The listing of a file's repo; asked again after a transient refusal, within the policy."""
    return (
        yield from _patiently(functools.partial(list_repo, hub, want.repo, want.revision), policy)
    )


def confirmed(
    remote: RemoteFile, hub: Hub, policy: FetchPolicy
) -> Generator[Note, None, RemoteFile]:
    """The same for one file's headers: see `remote.confirm`."""
    return (yield from _patiently(functools.partial(confirm, hub, remote), policy))


def _patiently(ask: Callable[[], T], policy: FetchPolicy) -> Generator[Note, None, T]:
    attempt = 0
    while True:
        try:
            return ask()
        except HubError as error:
            attempt += 1
            hopeless = isinstance(error, NetworkError) and attempt >= LOOK_UP_ATTEMPTS
            wait = policy.wait(attempt, error) if is_transient(error) else None
            if wait is None or hopeless:
                raise
            yield Note(f"{error.message}; asking again in {format_seconds(wait)}")
        time.sleep(wait)


def _offline(files: tuple[Wanted, ...], why: str) -> Job:
    found = [(want, _find(want)) for want in files]
    missing = [want for want, entry in found if entry is None]
    if missing:
        names = ", ".join(
            f"{want}" + (f" ({format_bytes(want.size)})" if want.size else "") for want in missing
        )
        raise OfflineError(
            f"not on this machine, and {why} forbids fetching: {names}",
            "pull them while online, or: specctl models import FILE",
        )
    return Job(
        tuple(
            Item(
                want,
                RemoteFile(want.repo, want.file, "", entry.size, entry.sha256 or want.sha256, None),
                *(store.target_path(want.repo, want.file), entry, 0),
            )
            for want, entry in found
            if entry is not None
        )
    )


def _item(
    want: Wanted, listing: Listing, hub: Hub, policy: FetchPolicy
) -> Generator[Note | Progress, None, Item]:
    remote = listing.get(want.file)
    if remote is None:
        raise _absent(want, listing, hub)
    sizeless = remote.size < 0
    if sizeless:
        remote = yield from confirmed(remote, hub, policy)
    for what, believed, listed in (
        ("bytes", want.size, remote.size),
        ("sha256", want.sha256, remote.sha256),
    ):
        if believed is not None and listed is not None and believed != listed:
            yield Note(
                f"{want}: expected {what} {believed}, the hub has {listed}; taking the hub's"
            )
    target = store.target_path(want.repo, want.file)
    older = store.find_own(want.repo, want.file)
    found = yield from proven(remote)
    if found is not None:
        return Item(want, remote, target, found, 0)
    if not sizeless:  # may we have it? before byte 1 of any file of the job
        remote = yield from confirmed(remote, hub, policy)
    if older is not None:
        yield Note(f"{want}: the stored copy is not what the hub has now; fetching the new one")
    return Item(want, remote, target, None, partial.kept_bytes(target, remote)[0])


def _absent(want: Wanted, listing: Listing, hub: Hub) -> NotFoundError:
    names = tuple(entry.file for entry in listing.files)
    parts = split_parts(want.file)
    have = [part for part in parts if part in names]
    if len(parts) > 1 and have:
        return NotFoundError(
            f"{want.repo} has only {len(have)} of the {len(parts)} parts of this model: "
            f"{want.file} is missing",
            "an upload in progress? nothing was fetched; choose another quant",
        )
    return no_such_file(hub, want.repo, want.file, names)


def proven(remote: RemoteFile) -> Generator[Progress, None, Entry | None]:
    """A file on this machine that is this one by hash; one of the right size is hashed first."""
    for entry in _fitting(Wanted(remote.repo, remote.file, remote.size, remote.sha256)):
        if entry.sha256 is not None and entry.sha256 == remote.sha256:
            return entry
        sha256, verdict = yield from _checking(remote, entry)
        if not entry.own:
            elsewhere.remember(entry.path, sha256)
        elif verdict:
            store.record(entry.path, remote.repo, remote.file, remote.commit, sha256, verified=True)
            return store.entry_of(entry.path)
        if verdict is not False:
            return dataclasses.replace(entry, sha256=sha256, verified="yes" if verdict else "no")
    return None


def _checking(
    remote: RemoteFile, entry: Entry
) -> Generator[Progress, None, tuple[str, bool | None]]:
    hasher = partial.Hasher(remote)
    for step in store.feed(entry.path, hasher):
        yield Progress(
            *("checking", remote.file, 1, 1, step.done, entry.size, step.done, entry.size),
            *(None, None),
        )
    return hasher.sha256, hasher.verdict()
