"""DFlash and DSpark drafts: one pass guesses a whole block of tokens.

What some layers of the target read is put into the draft's own memory, a row for each position that
stands (a pass of embeddings: llama.cpp fuses the layers and keeps keys and values only). To draft,
one pass reads the last token and masks behind it, each row seeing all others and that memory, and
gives the logits of every position at once: blocks.py. Its cells are given up with the next pass.

The block always has the length it was trained with: a shorter one is another input.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specctl.enginefacts import BLOCK_BATCH
from specctl.errors import ContextFullError, EngineError
from specctl.llama.cancel import Cancel
from specctl.llama.context import Context, NativeClock
from specctl.llama.follower import Follower
from specctl.llama.layerdraft import LayerDraft
from specctl.llama.model import Model
from specctl.llama.opening import context_params, open_context
from specctl.llama.trail import Trail
from specctl.settings import EngineSettings, ModelSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]

_SECTIONS = 4  # positions of one row of embeddings, where a model turns by sections (M-RoPE)


class BlockDraft(Follower):
    """The draft's context; it is opened when it starts to follow one of the target, with whose
    tensors it may decode: that one must outlive its use.

    Raises:
        EngineError: a build without the functions it needs.
    """

    words = "the block draft"

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
        assert draft.block is not None
        self._block = block = draft.block
        self.spec_type, self.layers, self.borrows = draft.spec_type, draft.layers, draft.borrows
        self.size, self.most = block.size, block.most
        self._rows = max(BLOCK_BATCH, block.size)
        trail = Trail(draft.layers, draft.width, self._rows, lag=0)
        super().__init__(model, trail, settings, cancel, clock)
        self._settings, self._placement, self._threads = settings, placement, threads

    def _open(self, context: Context) -> None:
        """With a small batch: llama.cpp takes all of it for outputs (a model with an encoder)."""
        import numpy as np

        params = context_params(self._settings, self._placement, self._threads, self._rows)
        params.n_batch = params.n_ubatch = self._rows
        if self.borrows:
            params.ctx_other = context.handle
        handle = open_context(self._model, params, "block draft context")
        self._own(handle, self._rows, len(self.layers) * self._model.n_embd)
        self._lib.llama_set_causal_attn(handle, self._block.causal)
        if self._block.confident:
            self._extra.switch(handle, True, True)
        self._inject = self._batch(tokens=False, states=True, outputs=False)
        self._guess = self._batch(tokens=True, states=False, outputs=True)
        self._positions = np.zeros(_SECTIONS * self._rows, np.int32)
        pointer = ctypes.POINTER(ctypes.c_int32)
        self._inject.pos = ctypes.cast(self._positions.ctypes.data, pointer)

    def _read_true(self, tokens: Sequence[int]) -> int:
        """Put the target's rows of these positions into the memory."""
        import numpy as np

        at, count = len(self.tokens), len(tokens)
        self._states[:count] = self._trail.rows(at, count)
        # section by section; llama.cpp would leave all but the first at 0
        self._positions[: 3 * count].reshape(3, count)[:] = np.arange(at, at + count)
        self._positions[3 * count : _SECTIONS * count] = 0
        self._pass(self._inject, at, count)
        self.tokens.extend(tokens)
        self._true = len(self.tokens)
        return count

    def guess(self, tokens: Sequence[int]) -> tuple[Rows, Rows | None]:
        """The guesses behind `tokens`, which come after what is held; the target has decoded all
        but the last one.

        Returns:
            logits, float32 [most, n_vocab], a view that is valid until the next pass; and how
            likely each is to be accepted, [most], where the file has a head for that.

        Raises:
            ContextFullError, EngineError: refused before the pass.
            CancelledError: asked to stop on the way.
        """
        last = len(self.tokens) + len(tokens) - 1
        if last + self.size > self.n_ctx:
            raise ContextFullError(f"{last} tokens and a block of {self.size} do not fit")
        if last > self._trail.first + self._trail.known:
            raise EngineError("the target has not read what the block draft is to go on from")
        self._read(last)
        self._place([tokens[-1], *[self._block.mask] * (self.size - 1)])
        self._pass(self._guess, last, self.size)
        first = self._block.first
        rows = self._view(self._get_logits(self.handle), self.size, self.n_vocab)[first:]
        if not self._block.confident:
            return rows, None
        sure = self._view(self._extra.rows(self.handle), self.size, self._model.n_embd)
        return rows, sure[first:, 0]
