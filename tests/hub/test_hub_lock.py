"""One pull at a time per file: who holds it, who is gone, and file systems that grant it to all."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hubserver import HubServer

from specctl.hub import store
from specctl.hub.errors import LockedError
from specctl.hub.fetch import FetchPolicy
from specctl.hub.lock import Lock, Owner
from specctl.hub.progress import Note
from specctl.hub.pull import pull
from specctl.hub.remote import Wanted, hub_from_environment

WANT = Wanted("org/m", "m.gguf")


def write_owner(path: Path, owner: Owner) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(path.name + ".owner").write_text(json.dumps(dataclasses.asdict(owner)))


def me() -> Owner:
    process = psutil.Process()
    return Owner(process.pid, socket.gethostname(), process.create_time(), 0.0)


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_two_of_them(tmp_path: Path) -> None:
    first, second = Lock(tmp_path / "a.lock"), Lock(tmp_path / "a.lock")
    assert first.try_acquire()
    assert not second.try_acquire()
    owner = second.owner()
    assert owner is not None
    assert owner.pid == os.getpid()
    first.release()
    assert second.try_acquire()
    assert second.left_by is None
    second.release()
    assert second.owner() is None


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        ({"pid": None}, True),  # a process that is gone
        ({"started": 1.0}, True),  # its pid runs again, as another process
        ({}, False),  # alive: the file system grants the lock to everybody
        ({"host": "another-host"}, False),  # cannot be looked at from here
    ],
)
def test_second_look_at_the_owner(
    tmp_path: Path, change: dict[str, object], taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = psutil.Process(os.getppid())
    owner = dataclasses.replace(me(), pid=parent.pid, started=parent.create_time())
    if "pid" in change:
        change = {"pid": dead_pid()}
    owner = dataclasses.replace(owner, **change)
    write_owner(tmp_path / "a.lock", owner)
    lock = Lock(tmp_path / "a.lock")
    assert lock.try_acquire() is taken
    assert lock.left_by == (owner if taken else None)
    lock.release()


def test_pull_takes_over_from_the_dead(hub: HubServer, fast: FetchPolicy) -> None:
    hub.add(WANT.repo, {WANT.file: b"m"})
    gone = dataclasses.replace(me(), pid=dead_pid())
    write_owner(store.lock_path(store.target_path(WANT.repo, WANT.file)), gone)
    events = list(pull((WANT,), hub_from_environment(), fast))
    notes = [event.text for event in events if isinstance(event, Note)]
    assert notes == [f"m.gguf: taking over the lock of {gone}, which is gone"]


def test_pull_gives_up_when_the_other_does_not_move(hub: HubServer, fast: FetchPolicy) -> None:
    hub.add(WANT.repo, {WANT.file: b"m"})
    other = Lock(store.lock_path(store.target_path(WANT.repo, WANT.file)))
    assert other.try_acquire()
    patient = dataclasses.replace(fast, lock_seconds=0.3)
    with pytest.raises(LockedError, match=f"being pulled by pid {os.getpid()} on"):
        list(pull((WANT,), hub_from_environment(), patient))
    other.release()
    assert hub.sent == 0


def test_broken_owner_record_is_nobody(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.with_name("a.lock.owner").write_text("{")
    lock = Lock(path)
    assert lock.try_acquire()
    assert lock.left_by is None
    lock.release()


def test_lock_is_given_back_when_the_pull_is_abandoned(hub: HubServer, fast: FetchPolicy) -> None:
    hub.add(WANT.repo, {WANT.file: b"m" * 1000})
    hub.faults.cuts = [500]
    steps = pull((WANT,), hub_from_environment(), fast)
    assert isinstance(next(steps), Note)
    steps.close()  # type: ignore[attr-defined]  # a generator, seen as an iterator
    again = Lock(store.lock_path(store.target_path(WANT.repo, WANT.file)))
    assert again.try_acquire()
    again.release()
