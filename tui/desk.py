"""What the live screen asks of whoever runs the model: the only interface to an engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from specctl.tui.messages import Event


@dataclass(frozen=True, slots=True)
class Open:
    """Load the models."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Answer a message."""

    message: str


@dataclass(frozen=True, slots=True)
class Again:
    """Take the last answer back and answer its message anew, with another seed."""


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command, `/k 4`."""

    line: str


@dataclass(frozen=True, slots=True)
class Change:
    """Draft or sample otherwise from the next cycle on; None leaves a value as it is.

    `k` 0 means: as each drafter likes.
    """

    spec_types: tuple[str, ...] | None = None
    k: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to draft that can be chosen, and what it is in a few words."""

    spec_types: tuple[str, ...]
    summary: str


Job = Open | Ask | Again | Command | Change


class Desk(Protocol):
    """Does jobs, one after the other, as iterators of events.

    `do` is called from one worker thread only; everything else from the screen's, at any time.
    """

    def do(self, job: Job) -> Iterator[Event]:
        """The events of one job.

        Raises:
            SpecctlError: it failed; what was before stands.
        """

    def change(self, change: Change) -> None:
        """In force from the next cycle of a running job, whose events tell; with the next job
        where none runs.
        """

    def stop(self) -> None:
        """End the running answer within one cycle; its text is kept."""

    @property
    def recording(self) -> bool:
        """A recording that `record` started goes on."""

    def record(self) -> Path | None:
        """Start recording to a new file (its path), or stop (None)."""

    def choices(self) -> tuple[Choice, ...]:
        """The ways to draft that are there, the one of the start first."""

    def close(self) -> None:
        """Free everything; waits for a running cycle."""
