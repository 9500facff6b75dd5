"""An EAGLE-3 head: one layer of its own that reads what three layers of the target read.

The target's rows are fused into one vector g per position (the encoder). The head reads, for the
token at position q, that token and g of position q - 1, in its memory at q - 1; what it gives is a
guess at token q + 1 and a vector that stands for g while nothing of the target is there yet. So the
first token of a text has no cell, and the newest token waits for nothing: its g is the one before.

`Eagle3` follows the target's passes and is otherwise what a draft model's context is: follower.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specctl.enginefacts import EAGLE3_BATCH
from specctl.llama.cancel import Cancel
from specctl.llama.context import Context, NativeClock
from specctl.llama.follower import Stepwise
from specctl.llama.layerdraft import LayerDraft
from specctl.llama.model import Model
from specctl.llama.opening import context_params, open_context
from specctl.llama.trail import Trail
from specctl.settings import EngineSettings, ModelSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]

# For a model with an encoder llama.cpp takes the whole batch for outputs, whatever it is asked: a
# small batch is all that keeps it from reserving logits for hundreds of rows.
BATCH = EAGLE3_BATCH
_ROWS = 16  # outputs of one pass


class Eagle3(Stepwise):
    """The head's context; it is opened when it starts to follow one of the target, with whose
    tensors it may decode: that one must outlive its use.

    Raises:
        EngineError: a build without the functions it needs.
    """

    spec_type = "draft-eagle3"
    words = "the EAGLE-3 head"
    shift = 1

    def __init__(
        self,
        model: Model,
        draft: LayerDraft,
        settings: EngineSettings,
        placement: ModelSettings,
        *,
        threads: int,
        cancel: Cancel | None = None,
        clock: NativeClock | None = None,
    ) -> None:
        trail = Trail(draft.layers, draft.width, BATCH, lag=1)
        super().__init__(model, trail, settings, cancel, clock)
        self._settings, self._placement, self._threads = settings, placement, threads
        self.layers, self.borrows = draft.layers, draft.borrows

    def _open(self, context: Context) -> None:
        params = context_params(self._settings, self._placement, self._threads, BATCH)
        params.n_batch = params.n_ubatch = BATCH
        if self.borrows:
            params.ctx_other = context.handle
        handle = open_context(self._model, params, "EAGLE-3 context")
        self._own_steps(handle, BATCH, self._model.n_embd, _ROWS)
        self._encoder = self._batch(tokens=False, states=False, outputs=True)

    def _read_true(self, tokens: Sequence[int], *, outputs: bool = False) -> int:
        """Each of `tokens` with the target's g of the position before it."""
        at = len(self.tokens)
        skip = 0 if at else 1  # before the first token there is nothing
        count = len(tokens) - skip
        if count > 0:
            self._encode(self._trail.rows(at + skip - 1, count))
            self._decode(tokens[skip:], at + skip - 1, self._all if outputs else self._silent)
        self._stood(tokens)
        return count

    def _encode(self, rows: Rows) -> None:
        """The target's rows to g: what the next decode reads its tokens with."""
        self._check_open()
        count = len(rows)
        self._encoder.embd = ctypes.cast(rows.ctypes.data, ctypes.POINTER(ctypes.c_float))
        self._encoder.n_tokens = count
        self._run(self._lib.llama_encode, self._encoder)
        self._states[:count] = self._view(self._extra.rows(self.handle), count, self._width)
