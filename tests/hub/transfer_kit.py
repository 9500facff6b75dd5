"""One model on a loopback hub, pulled and looked at."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest
from hubserver import HubServer

from specctl.hub import partial, store
from specctl.hub.errors import (
    NetworkError,
)
from specctl.hub.fetch import FetchPolicy
from specctl.hub.progress import Done, Event, Note, Ready
from specctl.hub.pull import pull
from specctl.hub.remote import Wanted, hub_from_environment

DATA = random.Random(1).randbytes(1_500_000)
WANT = Wanted("org/model-GGUF", "model-Q4.gguf")


def run(policy: FetchPolicy, *wanted: Wanted, offline: bool = False) -> list[Event]:
    return list(pull(wanted or (WANT,), hub_from_environment(offline), policy))


def notes(events: list[Event]) -> str:
    return "\n".join(event.text for event in events if isinstance(event, Note))


def final() -> Path:
    return store.target_path(WANT.repo, WANT.file)


def check_whole(events: list[Event], data: bytes = DATA) -> Ready:
    done = events[-1]
    assert isinstance(done, Done)
    assert done.paths[0].read_bytes() == data
    assert not partial.part_path(done.paths[0]).exists()
    ready = next(event for event in events if isinstance(event, Ready))
    assert ready.verified is True
    return ready


def half_fetched(hub: HubServer, policy: FetchPolicy, size: int) -> None:
    """Leave a part of `size` bytes behind."""
    hub.faults.cuts = [size]
    hub.faults.statuses = []
    with pytest.raises(NetworkError):
        run(dataclasses.replace(policy, attempts=1))
    assert partial.part_path(final()).stat().st_size == size
    hub.repos[WANT.repo].files[WANT.file].sent = 0
