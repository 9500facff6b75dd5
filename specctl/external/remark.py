"""A line of words beside the records of a watched or started server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Remark:
    """For the person. An `alert` is a warning about speculation itself."""

    text: str
    kind: Literal["note", "warning", "alert"] = "note"
    up: bool | None = None  # the server has gone, or is back
