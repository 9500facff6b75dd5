"""What reaches the screen besides the records of a generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specctl.events import Record


@dataclass(frozen=True, slots=True)
class Ready:
    """A model is open, and what is in force: `k` is the cap that was set (None: as each drafter
    likes), `k_max` the most tokens a cycle may draft.
    """

    model: str
    draft_model: str | None
    spec_types: tuple[str, ...]
    k: int | None
    k_max: int
    n_ctx: int
    threads: int
    temperature: float
    device: str = ""  # "CPU", or the GPU's name


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the person. An `error` ends the job it comes from, a `warning` does not."""

    text: str
    kind: Literal["note", "warning", "error"] = "note"


@dataclass(frozen=True, slots=True)
class Changed:
    """What is in force from the next cycle on."""

    spec_types: tuple[str, ...]
    k: int | None
    k_max: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A new conversation: the transcript starts over."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """A conversation from a file: (user, assistant) turns, oldest first."""

    turns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Gauges:
    """The machine just now, bytes and shares; None where it cannot be read."""

    ram_used: int | None = None
    ram_total: int | None = None
    vram_used: int | None = None
    vram_total: int | None = None
    gpu_load: float | None = None  # 0 … 1


Event = Record | Ready | Note | Changed | Forgotten | Recalled | Gauges
