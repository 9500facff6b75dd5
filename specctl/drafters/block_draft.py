"""`draft-dflash`, `draft-dspark`: one pass of the draft guesses a whole block of tokens.

So a draft costs the same however long it is, and only its verification grows with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from specctl.drafters.small_model import DraftMemory, ModelDrafter
from specctl.sampling import Law
from specctl.settings import DraftSettings

if TYPE_CHECKING:
    from specctl.sampling import Logits

DFLASH = "draft-dflash"
DSPARK = "draft-dspark"


class BlockContext(DraftMemory, Protocol):
    """What it asks of its model; given by llama/blockdraft.py."""

    @property
    def size(self) -> int:
        """Rows of one pass."""

    @property
    def most(self) -> int:
        """Tokens that one pass guesses."""

    def guess(self, tokens: Sequence[int]) -> tuple[Logits, Logits | None]:
        """Logits of each guess after `tokens`, and how likely each is, where the draft says so."""


class BlockModel(ModelDrafter):
    """Greedy drafts are each row's best token. Sampled ones are drawn row by row, each from its own
    law: a DSpark row leans on the best token before it, not on the one that was drawn.

    p-min looks at what a draft with a head for it says of its chance, else at the row.
    """

    no_room = "no room for a whole block"

    def __init__(
        self, context: BlockContext, settings: DraftSettings, n_vocab: int, name: str
    ) -> None:
        super().__init__(context, settings, n_vocab, name)
        self._context = context

    def room(self, tokens: Sequence[int]) -> int:
        """All of the block or nothing."""
        fits = len(tokens) - 1 + self._context.size <= self._context.n_ctx
        return self._context.most if fits and tokens[-1] < self._context.n_vocab else 0

    def steps(
        self, tokens: Sequence[int], *, confident: bool = False
    ) -> Iterator[tuple[int, Law | None, float]]:
        """As any model's; all of it after one pass."""
        if not self.room(tokens):
            return
        rows, sure = self._context.guess(tokens[len(self._context.tokens) :])
        drafted: list[int] = []
        for at, row in enumerate(rows):
            own = None if sure is None else float(sure[at])
            token, law, chance = self._next(row[: self._width], tokens, drafted, confident, own)
            if token is None:
                return
            yield token, law, chance
            drafted.append(token)
