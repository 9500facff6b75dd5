"""What the loop asks of a target. `llama/context.py` gives it; tests script it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from specctl.sampling import Logits


class Target(Protocol):
    """A model that decodes, with a memory of one token sequence."""

    @property
    def n_ctx(self) -> int:
        """Most tokens the memory holds."""

    @property
    def native_seconds(self) -> float:
        """Seconds inside native calls so far, those of a draft model included."""

    def follow(self, tokens: Sequence[int]) -> int:
        """Hold exactly `tokens`; returns how many were held already."""

    def verify(self, tokens: Sequence[int]) -> Logits:
        """Decode `tokens`; their logits [len(tokens), n_vocab], valid until the next call."""

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens."""
