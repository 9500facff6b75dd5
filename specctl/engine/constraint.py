"""A grammar over a generation: the target's law at each position, bound to what may come next.

Masking the target's logits commutes with drafting: a drafted token outside the grammar has
probability 0 under the masked law and would be rejected, so it and what follows it are cut before
they cost a row. Where it was drawn from a law of its own, the position is still decided by the
residual of both laws, as a rejection would be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from specctl.drafters.base import Draft
from specctl.errors import DeadEndError
from specctl.sampling import Law

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from specctl.sampling import Logits

_FEW = 64  # tokens looked at first: asking for all of a large vocabulary costs milliseconds


class Rules(Protocol):
    """A grammar's state. `llama/grammar.py` gives it, tests script it."""

    def allowed(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each token: may it come next?"""

    def accept(self, token: int) -> None:
        """Go on after an allowed token."""

    def clone(self) -> Self:
        """Another one in the same state."""

    def close(self) -> None:
        """Free it."""


class Constraint:
    """Which tokens the target may choose, as the answer grows. With `after`, all of them until that
    text has been said (`</think>`); the rest of the token that completes it is free as well.
    """

    def __init__(self, rules: Rules, piece: Callable[[int], bytes], after: str = "") -> None:
        self._rules = rules
        self._piece = piece
        self._after = after.encode()
        self._said = b""
        self._bound = 0  # tokens that the grammar has taken

    @property
    def waiting(self) -> bool:
        """Everything is allowed still."""
        return bool(self._after)

    def check(self, n_vocab: int) -> None:
        """Cheap where a token of the first few may come: all of them are asked for in the end only.

        Raises:
            DeadEndError: none may, so that there is no answer at all.
        """
        import numpy as np

        start, count = 0, _FEW
        while start < n_vocab:
            if self._rules.allowed(np.arange(start, min(start + count, n_vocab))).any():
                return
            start, count = start + count, count * 8
        raise self._dead_end()

    def _dead_end(self) -> DeadEndError:
        tokens = "1 token" if self._bound == 1 else f"{self._bound} tokens"
        where = f"after {tokens}" if self._bound else "as the first one"
        return DeadEndError(
            f"the grammar allows no token of this model {where}",
            "its text is complete and the model has no end token, or it asks for a character that "
            "the vocabulary cannot write",
        )

    def mask(self, logits: Logits, wanted: int) -> Logits:
        """A copy with -inf for what is not allowed, exact in its `wanted` largest (0: in all).

        Raises:
            DeadEndError: no token of the vocabulary may come next.
        """
        import numpy as np

        if self.waiting or not np.isfinite(logits.max()):  # NaN: whoever judges will say so
            return logits
        out = np.full(len(logits), -np.inf, np.float32)
        count = max(_FEW, 4 * wanted) if wanted else len(logits)
        if wanted == 1:
            top = np.array([logits.argmax()])
            if self._rules.allowed(top)[0]:
                out[top] = logits[top]
                return out
        while True:
            ids = _largest(logits, count)
            ids = ids[self._rules.allowed(ids)]
            if len(ids) >= max(wanted, 1) or count >= len(logits):
                break
            count *= 8
        if not len(ids):
            raise self._dead_end()
        out[ids] = logits[ids]
        return out

    def accept(self, token: int) -> None:
        """`token` stands."""
        self._after, self._said = self._wait(self._after, self._said, token)

    def _wait(self, after: bytes, said: bytes, token: int) -> tuple[bytes, bytes]:
        if not after:
            self._rules.accept(token)
            self._bound += 1
            return after, said
        said += self._piece(token)
        return (b"", b"") if after in said else (after, said[-len(after) :])

    def cut(self, draft: Draft) -> tuple[Draft, Law | None]:
        """`draft` up to its first token outside the grammar, and the law that one came from."""
        stays = self._inside(draft.tokens)
        if stays == len(draft.tokens):
            return draft, None
        laws, confidences = draft.laws, draft.confidences
        short = dataclasses.replace(
            draft,
            tokens=draft.tokens[:stays],
            laws=laws[:stays] if laws is not None else None,
            confidences=confidences[:stays] if confidences is not None else None,
        )
        return short, laws[stays] if laws is not None else None

    def _inside(self, tokens: Sequence[int]) -> int:
        """How many of `tokens` could follow."""
        import numpy as np

        first = np.array(tokens[:1])
        if not len(first) or (not self.waiting and not self._rules.allowed(first)[0]):
            return 0  # without the cost of a clone
        scout = Constraint(self._rules.clone(), self._piece)
        scout._after, scout._said = self._after, self._said
        try:
            for index, token in enumerate(tokens):
                if not scout.waiting and not scout._rules.allowed(np.array([token]))[0]:
                    return index
                scout.accept(token)
            return len(tokens)
        finally:
            scout.close()

    def close(self) -> None:
        """Free the grammar."""
        self._rules.close()


def _largest(logits: Logits, count: int) -> NDArray[np.int64]:
    """Ids of the `count` largest logits with all ties of the last one, ascending; never a -inf."""
    import numpy as np

    if count >= len(logits):
        return np.flatnonzero(logits > -np.inf)
    edge = np.partition(logits, len(logits) - count)[len(logits) - count]
    return np.flatnonzero(logits >= max(edge, np.finfo(np.float32).min))
