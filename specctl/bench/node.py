"""A value of a kept file that knows its place: what is damaged is told by where it stands."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from specctl.errors import UsageError
from specctl.units import printable

T = TypeVar("T")
_MOST = 1e15  # no count, size or time here is beyond it


@dataclass(frozen=True, slots=True)
class Node:
    """A value that knows its place. Every reader raises UsageError for what is not there."""

    value: object
    where: str

    def __getitem__(self, key: str) -> Node:
        if not isinstance(self.value, dict) or key not in self.value:
            raise UsageError(f"{self.where} is damaged: no {key!r}")
        return Node(self.value[key], f"{self.where}, {key}")

    def has(self, key: str) -> bool:
        """Is there such a key? What earlier versions did not write may be missing."""
        return isinstance(self.value, dict) and key in self.value

    def damaged(self, what: str) -> UsageError:
        """The error to raise where the value is not `what` it should be."""
        return UsageError(f"{self.where} is damaged: {self.value!r:.60} is not {what}")

    def table(self) -> dict[str, object]:
        """An object, as it is."""
        if not isinstance(self.value, dict):
            raise UsageError(f"{self.where} is damaged: not a table")
        return dict(self.value)

    def only(self, keys: Collection[str]) -> None:
        """Another key than these is a typing mistake."""
        for key in self.table():
            if key not in keys:
                raise UsageError(f"{self.where} is damaged: {key!r:.60} is not a key here")

    def string(self) -> str:
        """A text, as it is."""
        if not isinstance(self.value, str):
            raise self.damaged("a text")
        return self.value

    def text(self) -> str:
        """A text that can be shown."""
        return printable(self.string())

    def one_of(self, allowed: Collection[str]) -> str:
        """One of these texts."""
        if (value := self.string()) not in allowed:
            raise self.damaged(f"one of {', '.join(allowed)}")
        return value

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            raise self.damaged("true or false")
        return self.value

    def count(self, least: int = 0) -> int:
        """A whole number of at least `least` ≥ 0."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
            raise self.damaged("a count")
        if value < least:
            raise self.damaged(f"at least {least}")
        return value

    def number(self) -> float:
        """A finite number."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.damaged("a number")
        if abs(value) > _MOST or not math.isfinite(value):
            raise self.damaged("a number that can be")
        return float(value)

    def amount(self) -> float:
        """A number of at least 0."""
        if (value := self.number()) < 0:
            raise self.damaged("at least 0")
        return value

    def rate(self) -> float:
        """A number above 0."""
        if (value := self.number()) <= 0:
            raise self.damaged("above 0")
        return value

    def share(self) -> float:
        """A number in 0 … 1."""
        if not 0 <= (value := self.number()) <= 1:
            raise self.damaged("in 0 … 1")
        return value

    def maybe(self, read: Callable[[Node], T]) -> T | None:
        """None, or what `read` makes of it."""
        return None if self.value is None else read(self)

    def items(self, length: int | None = None) -> list[Node]:
        """The values of a list, of this length where one is given."""
        if not isinstance(self.value, list | tuple):
            raise self.damaged("a list")
        if length is not None and len(self.value) != length:
            raise UsageError(
                f"{self.where} is damaged: a list of {len(self.value)}, and {length} are due"
            )
        return [Node(one, f"{self.where}[{index}]") for index, one in enumerate(self.value)]
