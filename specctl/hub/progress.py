"""The records of a pull: what the faces show. Bytes and seconds; nothing printed here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Note:
    """Something the user should know: a retry, a restart, a lock."""

    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """How far one file is: `done` of its bytes are here, `fetched` of them came just now."""

    phase: Literal["checking", "fetching"]
    done: int
    fetched: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the job is, bytes. `rate` bytes/s, `eta` seconds; None until there is a rate."""

    phase: Literal["checking", "fetching"]
    file: str
    index: int
    count: int
    file_done: int
    file_total: int
    done: int
    total: int
    rate: float | None
    eta: float | None


@dataclass(frozen=True, slots=True)
class Ready:
    """One file is here. `verified` None: the hub told no hash. `fetched` bytes came just now."""

    file: str
    path: Path
    where: str
    size: int
    verified: bool | None
    fetched: int


@dataclass(frozen=True, slots=True)
class Done:
    """All files are here, in the order asked for (a split model: its parts in order)."""

    paths: tuple[Path, ...]
    total: int
    fetched: int
    seconds: float


Event = Note | Progress | Ready | Done
