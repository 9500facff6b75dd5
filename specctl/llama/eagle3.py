"""An EAGLE-3 head: one layer of its own that reads what three layers of the target read.

The target's rows are fused into one vector g per position (the encoder). The head reads, for the
token at position q, that token and g of position q - 1, in its memory at q - 1; what it gives is a
guess at token q + 1 and a vector that stands for g while nothing of the target is there yet. So the
first token of a text has no cell, and the newest token waits for nothing: its g is the one before.

`Eagle3` follows the target's passes and is otherwise what a draft model's context is. Of the
positions it holds, the first `_true` were read with the target's g; a `cut` never keeps more.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specctl.enginefacts import EAGLE3_BATCH
from specctl.errors import ContextFullError, EngineError
from specctl.llama import log
from specctl.llama.api import library, symbol
from specctl.llama.cancel import Cancel, CancelledError
from specctl.llama.context import Context, NativeClock
from specctl.llama.extras import nextn
from specctl.llama.layerdraft import LayerDraft
from specctl.llama.model import Model
from specctl.llama.opening import context_params, open_context
from specctl.llama.trail import PENDING, Trail
from specctl.settings import EngineSettings, ModelSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]

_SEQUENCE = 0
_ABORTED = 2
# For a model with an encoder llama.cpp takes the whole batch for outputs, whatever it is asked: a
# small batch is all that keeps it from reserving logits for hundreds of rows.
BATCH = EAGLE3_BATCH
_ROWS = 16  # outputs of one pass


class Eagle3:
    """The head's context; it is opened when it starts to follow one of the target, with whose
    tensors it may decode: that one must outlive its use.

    Raises:
        EngineError: a build without the functions it needs.
    """

    spec_type = "draft-eagle3"

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
        extra = nextn()
        if extra is None:
            raise EngineError("this llama-cpp-python build gives no hidden states")
        self._extra, self._lib = extra, library()
        self._model, self._draft = model, draft
        self._settings, self._placement, self._threads = settings, placement, threads
        self._cancel = cancel  # its buffer must outlive the native context
        self.clock = clock or NativeClock()
        self.layers = draft.layers
        self.n_vocab = model.n_vocab
        self.tokens: list[int] = []  # of the positions it has read
        self._true = 0
        self._cells = 0  # what the native memory holds, perhaps with a stale end
        self._trail = Trail(draft.layers, BATCH, lag=1)
        self._source: Any = None
        self.handle: Any = None
        self.n_ctx = settings.n_ctx

    # ------------------------------------------------------------ beside the target

    def start(self, context: Context) -> None:
        """The target's memory is empty, and so is this one.

        Raises:
            ModelError: no room for the context.
        """
        if self.handle is None or (self._draft.borrows and self._source != context.handle):
            self.close()
            self._open(context)
        self._source = context.handle
        self.clear()
        self._trail.start(context)

    def _open(self, context: Context) -> None:
        import numpy as np

        lib = self._lib
        params = context_params(self._settings, self._placement, self._threads, BATCH)
        params.n_batch = params.n_ubatch = BATCH
        if self._draft.borrows:
            params.ctx_other = context.handle
        self.handle = open_context(self._model, params, "EAGLE-3 context")
        if self._cancel is not None:
            self._cancel.attach(lib, self.handle)
        self._extra.switch(self.handle, True, True)
        self._memory = lib.llama_get_memory(self.handle)
        self.n_ctx = lib.llama_n_ctx_seq(self.handle)
        self._width = self._model.n_embd
        self._buffer = np.zeros(BATCH, np.int32)
        self._states: Rows = np.zeros((BATCH, self._width), np.float32)
        self._chain: Rows = np.zeros(self._width, np.float32)  # its own g, after the last row
        self._flags = (np.zeros(BATCH, np.int8), np.ones(BATCH, np.int8))
        floats, bytes_ = ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_int8)
        self._encoder = lib.llama_batch()
        self._encoder.logits = ctypes.cast(self._flags[1].ctypes.data, bytes_)
        made = []
        for flags in self._flags:
            batch = lib.llama_batch()
            batch.token = ctypes.cast(self._buffer.ctypes.data, ctypes.POINTER(ctypes.c_int32))
            batch.embd = ctypes.cast(self._states.ctypes.data, floats)
            batch.logits = ctypes.cast(flags.ctypes.data, bytes_)
            made.append(batch)
        self._silent, self._all = made
        self._get_logits: Any = symbol("llama_get_logits", ctypes.c_void_p, ctypes.c_void_p)

    def decoded(self, count: int, stands: bool) -> None:
        """Keep what the layers read; read what stands before too many rows wait."""
        begin = len(self._trail.text) - count
        for end in self._trail.decoded(count, self._true):
            if self._trail.known > PENDING:
                self._read(end if stands else begin + 1)

    def taken_back(self, length: int, common: int) -> None:
        """What the target holds, and how much of the text of before is right."""
        self._true = min(self._true, common)
        del self.tokens[self._true :]
        self._trail.taken_back(length)

    def reach(self, length: int) -> int:
        """The row of the position before the next one must be there, or be made again."""
        return length if not length or self._trail.knows(length - 1) else length - 1

    def _read(self, end: int) -> None:
        """Read the positions up to `end` without logits: their tokens stand."""
        self.cut(self._true)
        while self._true < end:
            count = min(BATCH, end - self._true)
            self._read_true(self._trail.text[self._true : self._true + count], self._silent)
            self._trail.drop(self._true)

    # ------------------------------------------------------------ as a draft model's context

    def follow(self, tokens: Sequence[int]) -> int:
        """The target was read, and this beside it; what a stopped draft left is given up."""
        self.cut(self._true)
        return self._true

    def extend(self, tokens: Sequence[int]) -> Rows:
        """Read `tokens` after what is held; the logits of the last one, float32 [n_vocab].

        Those that the target has decoded, and the one after them, are read at once; any more one by
        one, each with what the one before it left here. A text needs two tokens.
        """
        held = len(self.tokens)
        if held + len(tokens) > self.n_ctx:
            raise ContextFullError(f"{held} + {len(tokens)} tokens do not fit the EAGLE-3 head")
        done = 0
        if held == self._true:
            done = min(len(tokens), self._trail.first + self._trail.known + 1 - held)
        if done > 0:
            silent = done - 1 if done > _ROWS else 0
            for start in range(0, silent, BATCH):
                self._read_true(tokens[start : min(start + BATCH, silent)], self._silent)
            self._keep(self._read_true(tokens[silent:done], self._all))
            self._trail.drop(self._true)
        for token in tokens[done:]:
            self._states[0] = self._chain
            self._decode([token], len(self.tokens) - 1, self._all)
            self.tokens.append(token)
            self._keep(1)
        row: Rows = self._last
        return row

    def cut(self, length: int) -> None:
        """Keep at most `length` tokens, and none that was read without the target."""
        self._true = min(self._true, length)
        del self.tokens[self._true :]

    def clear(self) -> None:
        """Forget everything."""
        if self.handle:
            self._lib.llama_memory_clear(self._memory, False)
        self.tokens.clear()
        self._true = self._cells = 0
        self._trail.forget()

    def close(self) -> None:
        """Free the buffers; before the model's `close`."""
        if self.handle:
            self._lib.llama_free(self.handle)
            self.handle = None

    def _read_true(self, tokens: Sequence[int], batch: Any) -> int:
        """Read up to a batch of `tokens`, each with the target's g of the position before it.

        Returns the rows of the pass.
        """
        at = len(self.tokens)
        skip = 0 if at else 1  # before the first token there is nothing
        count = len(tokens) - skip
        if count > 0:
            self._encode(self._trail.rows(at + skip - 1, count))
            self._decode(tokens[skip:], at + skip - 1, batch)
        self.tokens.extend(tokens)
        self._true = len(self.tokens)
        return count

    def _keep(self, count: int) -> None:
        """Logits and vector of the last row of a pass of `count` outputs.

        Every row of it was one: asked for fewer, llama.cpp gives those of the first rows.
        """
        self._last = self._view(self._get_logits(self.handle), count, self.n_vocab)[-1]
        self._chain[:] = self._view(self._extra.rows(self.handle), count, self._width)[-1]

    def _encode(self, rows: Rows) -> None:
        """The target's rows to g: what the next decode reads its tokens with."""
        count = len(rows)
        self._encoder.embd = ctypes.cast(rows.ctypes.data, ctypes.POINTER(ctypes.c_float))
        self._encoder.n_tokens = count
        self._run(self._lib.llama_encode, self._encoder)
        self._states[:count] = self._view(self._extra.rows(self.handle), count, self._width)

    def _decode(self, tokens: Sequence[int], cell: int, batch: Any) -> None:
        count = len(tokens)
        if min(tokens) < 0 or max(tokens) >= self.n_vocab:
            raise EngineError(f"a token outside the head's vocabulary of {self.n_vocab}")
        stale = self._cells > cell
        if stale and not self._lib.llama_memory_seq_rm(self._memory, _SEQUENCE, cell, -1):
            raise EngineError(f"llama.cpp would not cut the EAGLE-3 head to {cell} cells")
        self._buffer[:count] = tokens
        batch.n_tokens = count
        self._cells = cell + count  # some of them, where it does not finish: they are cut next time
        self._run(self._lib.llama_decode, batch)

    def _run(self, call: Any, batch: Any) -> None:
        if not self.handle:
            raise EngineError("this EAGLE-3 head is closed")
        start = time.perf_counter()
        status = call(self.handle, batch)
        self.clock.seconds += time.perf_counter() - start
        if status == 0:
            return
        if status == _ABORTED and self._cancel is not None and self._cancel.is_set:
            raise CancelledError
        raise EngineError(f"the EAGLE-3 head failed with {status}: {log.reason() or 'no reason'}")

    def _view(self, address: int | None, count: int, width: int) -> Rows:
        import numpy as np

        if not address:
            raise EngineError("llama.cpp has no vectors or logits for this pass")
        data: Any = (ctypes.c_float * (count * width)).from_address(address)
        rows: Rows = np.frombuffer(data, np.float32).reshape(count, width)
        return rows
