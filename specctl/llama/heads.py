"""MTP heads of a target: one more layer that guesses the token after the next, as a draft model.

The head reads, at position q, the token there and the target's hidden state of position q - 1; what
it gives is a guess at token q + 1 and a hidden state of its own, with which it can go on. The first
token of a text is read with zeros. `Heads` follows the target's passes and is otherwise what a
draft model's context is: follower.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specctl.llama.api import library
from specctl.llama.cancel import Cancel
from specctl.llama.context import NativeClock
from specctl.llama.follower import Stepwise
from specctl.llama.model import Model
from specctl.llama.opening import context_params, open_context
from specctl.llama.trail import LAST, Trail
from specctl.settings import EngineSettings, ModelSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]


class Heads(Stepwise):
    """A context of MTP layers, of the target's own model or of a file of their own.

    It is opened for drafts of up to `k` tokens; longer ones only cost more.

    Raises:
        ModelError: no room for it; EngineError: a build without the functions it needs.
    """

    words = "the MTP heads"

    def __init__(
        self,
        model: Model,
        settings: EngineSettings,
        placement: ModelSettings,
        *,
        threads: int,
        k: int,
        cancel: Cancel | None = None,
        clock: NativeClock | None = None,
    ) -> None:
        rows = k + 1  # outputs at once
        params = context_params(settings, placement, threads, rows)
        params.ctx_type = library().LLAMA_CONTEXT_TYPE_MTP
        n_batch = int(params.n_batch)
        trail = Trail((LAST,), model.n_embd_out, n_batch, lag=1)
        super().__init__(model, trail, settings, cancel, clock)
        handle = open_context(model, params, "MTP context")
        self._own_steps(handle, n_batch, model.n_embd_out, rows)

    def longest(self, length: int) -> int:
        """Most tokens that can be drafted after a text of `length` tokens."""
        return self.n_ctx - length + 1

    def _read_true(self, tokens: Sequence[int], *, outputs: bool = False) -> int:
        at, count = len(self.tokens), len(tokens)
        self._states[:count] = self._before(at, count)
        self._decode(tokens, at, self._all if outputs else self._silent)
        self._stood(tokens)
        return count

    def _before(self, at: int, count: int) -> Rows:
        """The target's hidden states of the positions before `at`, …: zeros before the first."""
        import numpy as np

        if at:
            return self._trail.rows(at - 1, count)
        states: Rows = np.zeros((count, self._width), np.float32)
        if count > 1:
            states[1:] = self._trail.rows(0, count - 1)
        return states
