"""`draft-mtp`: heads that follow the target draft as a small model does, as far as they reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

from specctl.drafters.small_model import MTP, DraftContext, SmallModel
from specctl.sampling import Law
from specctl.settings import DraftSettings


class HeadsContext(DraftContext, Protocol):
    """What it asks of the heads; given by heads.py, chained.py, assistant.py in `llama/`."""

    def longest(self, length: int) -> int:
        """Most tokens that can be drafted after a text of `length` tokens."""


class HeadsModel(SmallModel):
    """A chain of heads ends with the last one, whoever drafted the first tokens."""

    def __init__(self, heads: HeadsContext, settings: DraftSettings, n_vocab: int) -> None:
        super().__init__(heads, settings, n_vocab, MTP)
        self._heads = heads

    def steps(
        self, tokens: Sequence[int], *, confident: bool = False
    ) -> Iterator[tuple[int, Law | None, float]]:
        """As a small model's."""
        most = max(0, self._heads.longest(len(tokens)))
        return islice(super().steps(tokens, confident=confident), most)
