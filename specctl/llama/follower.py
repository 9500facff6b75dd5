"""What follows a target's passes: the memory of a draft that lives on what the target computed.

A `Follower` hears of every pass (`Context.feed`), keeps what it still has to read in a `Trail`, and
mirrors what its own native memory holds. Of the positions it holds, the first `_true` were read
with the target's rows and stand. What it read while it drafted has only rows of its own, and is
read again once the target has decoded it; so a `cut` never keeps more than `_true`. Drafts are then
those of a draft that has just read everything.

`Stepwise` is one that reads a token with the row of the token before it, and goes on from a row of
its own: token by token, as a draft model's context does.
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
from specctl.llama.trail import PENDING, Trail
from specctl.settings import EngineSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]

_SEQUENCE = 0
_ABORTED = 2


class Follower:
    """Memory, clock and native calls of one. `words` names it in errors: `the MTP heads`.

    Raises:
        EngineError: a build without the functions it needs.
    """

    words = "the draft"
    borrows = False  # does it decode with tensors of the target? Then not longer than that lives

    def __init__(
        self,
        model: Model,
        trail: Trail,
        settings: EngineSettings,
        cancel: Cancel | None,
        clock: NativeClock | None,
    ) -> None:
        extra = nextn()
        if extra is None:
            raise EngineError("this llama-cpp-python build gives no hidden states")
        self._extra, self._lib, self._model, self._trail = extra, library(), model, trail
        self._cancel = cancel  # its buffer must outlive the native context
        self.clock = clock or NativeClock()
        self.tokens: list[int] = []  # of the positions it has read
        self._true = 0
        self._cells = 0  # what the native memory holds, perhaps with a stale end
        self._target: Context | None = None
        self.handle: Any = None
        self.n_ctx, self.n_vocab = settings.n_ctx, model.n_vocab

    def _own(self, handle: Any, rows: int, width: int) -> None:
        """A native context just opened, for passes of up to `rows` rows of `width` floats."""
        import numpy as np

        self.handle = handle
        if self._cancel is not None:
            self._cancel.attach(self._lib, handle)
        self._memory = self._lib.llama_get_memory(handle)
        self.n_ctx = self._lib.llama_n_ctx_seq(handle)
        self._chunk, self._width = rows, width
        self._buffer = np.zeros(rows, np.int32)
        self._states: Rows = np.zeros((rows, width), np.float32)
        self._flags = (np.zeros(rows, np.int8), np.ones(rows, np.int8))
        self._get_logits: Any = symbol("llama_get_logits", ctypes.c_void_p, ctypes.c_void_p)

    def _batch(self, *, tokens: bool, states: bool, outputs: bool) -> Any:
        """Of `_buffer` and `_states`; every row is an output, or none is."""
        batch = self._lib.llama_batch()
        floats, bytes_ = ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_int8)
        if tokens:
            batch.token = ctypes.cast(self._buffer.ctypes.data, ctypes.POINTER(ctypes.c_int32))
        if states:
            batch.embd = ctypes.cast(self._states.ctypes.data, floats)
        batch.logits = ctypes.cast(self._flags[outputs].ctypes.data, bytes_)
        return batch

    # ------------------------------------------------------------ beside the target

    def start(self, context: Context) -> None:
        """The target's memory is empty, and so is this one.

        Raises:
            ModelError: no room for a context that is opened only now.
        """
        # not its address, which another one may have had
        if self.handle is None or (self.borrows and self._target is not context):
            self.close()
            self._open(context)
        self._target = context
        self.clear()
        self._trail.start(context)

    def _open(self, context: Context) -> None:
        """Open the native context beside that of the target, unless that was done before."""
        raise NotImplementedError

    def decoded(self, count: int, stands: bool) -> None:
        """Keep the rows of the pass; read what stands before too many wait."""
        begin = len(self._trail.text) - count
        for end in self._trail.decoded(count, self._true):
            if self._trail.known > PENDING:
                self._read(end if stands else begin + 1)

    def taken_back(self, length: int, common: int) -> None:
        """What the target holds, and how much of the text of before is right."""
        self.cut(min(self._true, common))
        self._trail.taken_back(length)

    def reach(self, length: int) -> int:
        """The row that the next position is read with must be there, or be made again."""
        return self._trail.reach(length)

    def _read(self, end: int) -> None:
        """Read the positions up to `end` without logits: their tokens stand."""
        self.cut(self._true)
        while self._true < end:
            count = min(self._chunk, end - self._true)
            self._read_true(self._trail.text[self._true : self._true + count])
            self._trail.drop(self._true)

    def _read_true(self, tokens: Sequence[int]) -> int:
        """Read up to a pass of `tokens` after what is held, with the target's rows: they stand.

        Returns the rows of the pass.
        """
        raise NotImplementedError

    # ------------------------------------------------------------ as a draft model's context

    def follow(self, tokens: Sequence[int]) -> int:
        """The target was read, and this beside it; what a stopped draft left is given up."""
        self.cut(self._true)
        return self._true

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

    # ------------------------------------------------------------ native calls

    def _place(self, tokens: Sequence[int]) -> None:
        """Put `tokens` into the buffer of the next pass."""
        if min(tokens) < 0 or max(tokens) >= self.n_vocab:
            raise EngineError(f"a token outside the vocabulary of {self.words}, {self.n_vocab}")
        self._buffer[: len(tokens)] = tokens

    def _pass(self, batch: Any, cell: int, count: int) -> None:
        """Decode `count` rows of `batch` into the cells from `cell` on; what was there is cut."""
        self._check_open()
        stale = self._cells > cell
        if stale and not self._lib.llama_memory_seq_rm(self._memory, _SEQUENCE, cell, -1):
            raise EngineError(f"llama.cpp would not cut the memory of {self.words} to {cell}")
        batch.n_tokens = count
        self._cells = cell + count  # some of them, where it does not finish: they are cut next time
        self._run(self._lib.llama_decode, batch)

    def _check_open(self) -> None:
        if not self.handle:
            raise EngineError(f"the context of {self.words} is closed")

    def _run(self, call: Any, batch: Any) -> None:
        start = time.perf_counter()
        status = call(self.handle, batch)
        self.clock.seconds += time.perf_counter() - start
        if status == 0:
            return
        if status == _ABORTED and self._cancel is not None and self._cancel.is_set:
            raise CancelledError
        raise EngineError(f"{self.words} failed with {status}: {log.reason() or 'no reason'}")

    def _view(self, address: int | None, count: int, width: int) -> Rows:
        import numpy as np

        if not address:
            raise EngineError("llama.cpp has no hidden states or logits for this pass")
        data: Any = (ctypes.c_float * (count * width)).from_address(address)
        rows: Rows = np.frombuffer(data, np.float32).reshape(count, width)
        return rows


class Stepwise(Follower):
    """One that reads tokens with the row before each, the target's or its own.

    The token at position q has its cell at q - `shift`; `most` is how many outputs a pass may have.
    """

    shift = 0

    def _own_steps(self, handle: Any, rows: int, width: int, most: int) -> None:
        """As `_own`; it gives hidden states of outputs."""
        import numpy as np

        self._own(handle, rows, width)
        self._extra.switch(handle, True, True)
        self._most = most
        self._chain: Rows = np.zeros(width, np.float32)  # its own row, after the last token
        self._silent = self._batch(tokens=True, states=True, outputs=False)
        self._all = self._batch(tokens=True, states=True, outputs=True)

    def extend(self, tokens: Sequence[int]) -> Rows:
        """Read `tokens` after what is held; the logits of the last one, float32 [n_vocab].

        Those that the target has decoded, and the one after them, are read at once, with its rows;
        any more one by one, each with the row that the one before it left here.
        """
        held = len(self.tokens)
        if held + len(tokens) > self.n_ctx:
            raise ContextFullError(f"{held} + {len(tokens)} tokens do not fit {self.words}")
        done = 0
        if held == self._true:
            done = min(len(tokens), self._trail.first + self._trail.known + 1 - held)
        if done > 0:
            silent = done - 1 if done > self._most else 0
            for start in range(0, silent, self._chunk):
                self._read_true(tokens[start : min(start + self._chunk, silent)])
            self._keep(self._read_true(tokens[silent:done], outputs=True))
            self._trail.drop(self._true)
        for token in tokens[done:]:
            self._states[0] = self._chain
            self._decode([token], len(self.tokens) - self.shift, self._all)
            self.tokens.append(token)
            self._keep(1)
        row: Rows = self._last
        return row

    def _read_true(self, tokens: Sequence[int], *, outputs: bool = False) -> int:
        """As a follower's; with logits where `outputs`."""
        raise NotImplementedError

    def _keep(self, count: int) -> None:
        """Logits and hidden state of the last row of a pass of `count` outputs.

        Every row of it was one: with fewer, llama.cpp gives the states of other rows.
        """
        self._last = self._view(self._get_logits(self.handle), count, self.n_vocab)[-1]
        self._chain[:] = self._view(self._extra.rows(self.handle), count, self._width)[-1]

    def _decode(self, tokens: Sequence[int], cell: int, batch: Any) -> None:
        """One pass of `tokens` and the states that lie ready."""
        self._place(tokens)
        self._pass(batch, cell, len(tokens))

    def _stood(self, tokens: Sequence[int]) -> None:
        """They were read with the target's rows."""
        self.tokens.extend(tokens)
        self._true = len(self.tokens)
