"""MTP heads of a target: one more layer that guesses the token after the next, as a draft model.

The head reads, at position q, the token there and the target's hidden state of position q - 1; what
it gives is a guess at token q + 1 and a hidden state of its own, with which it can go on. `Heads`
lives beside a target's context (`Context.feed`), keeps the hidden states it still needs, and is
otherwise what a draft model's context is: `tokens`, `extend`, `cut`.

Of the positions it holds, the first `_true` were read with the target's own hidden states. What it
read while it drafted has only its own ones, and is read again once the target has decoded it; so a
`cut` never keeps more than `_true`. Drafts are then those of a head that has just read everything.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specctl.errors import ContextFullError, EngineError
from specctl.llama import log
from specctl.llama.api import library, symbol
from specctl.llama.cancel import Cancel, CancelledError
from specctl.llama.context import Context, NativeClock
from specctl.llama.extras import nextn
from specctl.llama.model import Model
from specctl.llama.opening import context_params, open_context
from specctl.settings import EngineSettings, ModelSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]

_SEQUENCE = 0
_PENDING = 64  # positions that may wait to be read while something else drafts
_ABORTED = 2


class Heads:
    """A context of MTP layers, of the target's own model or of a file of their own.

    It is opened for drafts of up to `k` tokens; longer ones only cost more.

    Raises:
        ModelError: no room for it; EngineError: a build without the functions it needs.
    """

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
        import numpy as np

        extra = nextn()
        if extra is None:
            raise EngineError("this llama-cpp-python build gives no hidden states")
        self._lib = lib = library()
        self._numpy = np
        self._extra = extra
        self._cancel = cancel  # its buffer must outlive the native context
        self.clock = clock or NativeClock()
        self.tokens: list[int] = []  # of the positions it has read
        self._true = 0
        self._cells = 0  # what the native memory holds: `tokens`, perhaps with a stale end
        self._rows = k + 1  # outputs at once
        params = context_params(settings, placement, threads, self._rows)
        params.ctx_type = lib.LLAMA_CONTEXT_TYPE_MTP
        self.handle: Any = open_context(model, params, "MTP context")
        if cancel is not None:
            cancel.attach(lib, self.handle)
        extra.switch(self.handle, True, True)
        self._memory = lib.llama_get_memory(self.handle)
        self.n_ctx: int = lib.llama_n_ctx_seq(self.handle)
        self.n_vocab = model.n_vocab
        self._width = model.n_embd_out
        self._n_batch = int(params.n_batch)
        self._prepare_batches()
        self._chain: Rows = np.zeros(self._width, np.float32)  # its own, after the last row
        self._text: list[int] = []  # the target's mirror
        self._hidden: Rows = np.zeros((0, self._width), np.float32)
        self._first = self._known = 0  # `_hidden` holds positions `_first` … + `_known` - 1

    def _prepare_batches(self) -> None:
        """Tokens and hidden states in one buffer each; rows with outputs, or none."""
        np, lib = self._numpy, self._lib
        self._buffer = np.zeros(self._n_batch, np.int32)
        self._states = np.zeros((self._n_batch, self._width), np.float32)
        self._flags = (np.zeros(self._n_batch, np.int8), np.ones(self._n_batch, np.int8))
        made = []
        for flags in self._flags:
            batch = lib.llama_batch()
            batch.token = ctypes.cast(self._buffer.ctypes.data, ctypes.POINTER(ctypes.c_int32))
            batch.embd = ctypes.cast(self._states.ctypes.data, ctypes.POINTER(ctypes.c_float))
            batch.logits = ctypes.cast(flags.ctypes.data, ctypes.POINTER(ctypes.c_int8))
            made.append(batch)
        self._silent, self._all = made
        self._get_logits: Any = symbol("llama_get_logits", ctypes.c_void_p, ctypes.c_void_p)

    # ------------------------------------------------------------ beside the target

    def start(self, context: Context) -> None:
        """The target's memory is empty, and so is this one."""
        self.clear()
        self._text = context.tokens
        self._source = context.handle
        room = context.n_batch + context.rows + _PENDING + 1
        self._hidden = self._numpy.zeros((room, self._width), self._numpy.float32)

    def decoded(self, count: int, stands: bool) -> None:
        """Keep the hidden states of the pass; read what stands before too many wait."""
        first = len(self._text) - count
        if self._first + self._known != first:
            self._first, self._known = first, 0
        skip = 0
        if not self._known:  # what is read again after a clear is known up to here
            skip = min(count, max(0, self._true - 1 - first))
            self._first = first + skip
        states = self._view(self._extra.rows(self._source), count, self._width)
        end = self._known + count - skip
        self._hidden[self._known : end] = states[skip:]
        self._known = end
        if end > _PENDING:
            self._read(len(self._text) if stands else first + 1)

    def taken_back(self, length: int, common: int) -> None:
        """What the target holds, and how much of the text of before is right."""
        self._true = min(self._true, common)
        del self.tokens[self._true :]
        self._known = max(0, min(self._known, length - self._first))
        if not self._known:
            self._first = length

    def reach(self, length: int) -> int:
        """The hidden state before the next position must be there, or be made again."""
        if not length or self._first < length <= self._first + self._known:
            return length
        return length - 1

    def _read(self, end: int) -> None:
        """Read the positions up to `end` without logits: their tokens stand."""
        self.cut(self._true)
        while self._true < end:
            count = min(self._n_batch, end - self._true)
            at = self._true
            self._decode(self._text[at : at + count], self._before(at, count), self._silent)
            self._true = at + count
        self._drop()

    def _before(self, at: int, count: int) -> Rows:
        """The target's hidden states of the positions before `at`, …: zeros before the first."""
        start = at - 1 - self._first
        if start >= 0:
            return self._hidden[start : start + count]
        if at:
            raise EngineError("the MTP heads have lost step with the target")
        states = self._numpy.zeros((count, self._width), self._numpy.float32)
        states[1:] = self._hidden[: count - 1]
        return states

    def _drop(self) -> None:
        """Forget hidden states of positions that were read."""
        done = min(self._true - 1 - self._first, self._known)
        if done > 0:
            left = self._known - done
            self._hidden[:left] = self._hidden[done : self._known]
            self._first, self._known = self._first + done, left

    # ------------------------------------------------------------ as a draft model's context

    def follow(self, tokens: Sequence[int]) -> int:
        """The target was read, and this beside it; what a stopped draft left is given up."""
        self.cut(self._true)
        return self._true

    def extend(self, tokens: Sequence[int]) -> Rows:
        """Read `tokens` after what is held; the logits of the last one, float32 [n_vocab].

        Those that the target has decoded, and the one after them, are read at once, with its hidden
        states; any more one by one, each with the state that the one before it left here.
        """
        held = len(self.tokens)
        if held + len(tokens) > self.n_ctx:
            raise ContextFullError(f"{held} + {len(tokens)} tokens do not fit the MTP heads")
        done = 0
        if held == self._true:
            done = min(len(tokens), self._first + self._known + 1 - held)
        if done > 0:
            silent = done - 1 if done > self._rows else 0
            for start in range(0, silent, self._n_batch):
                part = tokens[start : min(start + self._n_batch, silent)]
                self._decode(part, self._before(held + start, len(part)), self._silent)
                self._true += len(part)
            part = tokens[silent:done]
            self._decode(part, self._before(held + silent, len(part)), self._all)
            self._true += len(part)
            self._keep(len(part))
            self._drop()
        for token in tokens[done:]:
            self._decode([token], self._chain[None], self._all)
            self._keep(1)
        row: Rows = self._last
        return row

    def cut(self, length: int) -> None:
        """Keep at most `length` tokens, and none that was read without the target."""
        self._true = min(self._true, length)
        del self.tokens[self._true :]

    def clear(self) -> None:
        """Forget everything."""
        self._lib.llama_memory_clear(self._memory, False)
        self.tokens.clear()
        self._true = self._cells = self._first = self._known = 0

    def close(self) -> None:
        """Free the buffers; before the model's `close`."""
        if self.handle:
            self._lib.llama_free(self.handle)
            self.handle = None

    def _keep(self, count: int) -> None:
        """After a pass of `count` outputs: logits and hidden state of the last one.

        Every row of the pass was an output: with fewer, some architectures give the state of
        another row.
        """
        self._last = self._view(self._get_logits(self.handle), count, self.n_vocab)[-1]
        self._chain[:] = self._view(self._extra.rows(self.handle), count, self._width)[-1]

    def _decode(self, tokens: Sequence[int], states: Rows, batch: Any) -> None:
        if not self.handle:
            raise EngineError("these MTP heads are closed")
        held, count = len(self.tokens), len(tokens)
        if self._cells > held:
            if not self._lib.llama_memory_seq_rm(self._memory, _SEQUENCE, held, -1):
                raise EngineError(f"llama.cpp would not cut the MTP heads to {held} tokens")
            self._cells = held
        self._buffer[:count] = tokens
        self._states[:count] = states
        batch.n_tokens = count
        start = time.perf_counter()
        status = self._lib.llama_decode(self.handle, batch)
        self.clock.seconds += time.perf_counter() - start
        self._cells = held + count  # some of them, where it did not finish: they are cut next time
        if status == 0:
            self.tokens.extend(tokens)
            return
        if status == _ABORTED and self._cancel is not None and self._cancel.is_set:
            raise CancelledError
        raise EngineError(f"the MTP heads failed with {status}: {log.reason() or 'no reason'}")

    def _view(self, address: int | None, count: int, width: int) -> Rows:
        if not address:
            raise EngineError("llama.cpp has no hidden states or logits for this pass")
        data: Any = (ctypes.c_float * (count * width)).from_address(address)
        rows: Rows = self._numpy.frombuffer(data, self._numpy.float32).reshape(count, width)
        return rows
