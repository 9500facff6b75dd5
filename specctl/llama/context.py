"""A model's working memory, with a mirror of the tokens in it.

Whoever uses it speaks of tokens, never of positions: `follow` makes the memory hold a given list,
`verify` decodes a few more and returns their logits, `cut` takes tokens off the end. Calls on which
llama.cpp would abort the process are refused here first.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from specctl.errors import ContextFullError, EngineError, ModelError
from specctl.llama import log, rollback
from specctl.llama.api import library, symbol
from specctl.llama.cancel import Cancel, CancelledError
from specctl.llama.extras import layer_inputs, nextn
from specctl.llama.model import Model
from specctl.llama.opening import context_params, open_context
from specctl.settings import EngineSettings, ModelSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Logits = NDArray[np.float32]

_SEQUENCE = 0
_OK, _NO_SLOT, _ABORTED = 0, 1, 2


class NativeClock:
    """Seconds spent inside llama.cpp's decode calls, summed over the contexts that share it."""

    def __init__(self) -> None:
        self.seconds = 0.0


class Tap(Protocol):
    """What hears of everything a context decodes: MTP heads live on its hidden states."""

    def start(self, context: Context) -> None:
        """From now on; the memory is empty."""

    def decoded(self, count: int, stands: bool) -> None:
        """The last `count` tokens of the memory were just decoded; do they stand?"""

    def taken_back(self, length: int, common: int) -> None:
        """The memory is down to `length` tokens. Of what it held, `common` ≥ `length` are right."""

    def reach(self, length: int) -> int:
        """How far the memory must be taken back to hold `length` tokens: `length`, or one less."""


@runtime_checkable
class LayerTap(Tap, Protocol):
    """One that lives on what some layers read, not on the hidden states before the head."""

    layers: tuple[int, ...]  # n_layer: what leaves the last one


class Context:
    """KV cache and compute buffers of one sequence.

    `rows` is the most logit rows one `verify` may ask for (K + 1): llama.cpp reserves its output
    buffers for it. `tokens` mirrors the memory; read it, never change it. How tokens are taken off
    the end is in rollback.py; with `lazy` a `cut` may keep fewer of them than asked, where the rest
    would have to be read again: who opens it so looks at `tokens`.

    Raises:
        ModelError: llama.cpp could not create the context (memory, KV type); gives its reason.
    """

    def __init__(
        self,
        model: Model,
        settings: EngineSettings,
        placement: ModelSettings,
        *,
        threads: int,
        rows: int,
        lazy: bool = False,
        cancel: Cancel | None = None,
        clock: NativeClock | None = None,
    ) -> None:
        import numpy as np

        if not model.has_decoder:
            raise ModelError(f"{model.path.name} is an encoder and cannot generate text")
        self._lib = lib = library()
        self._numpy = np
        self.model = model
        self.rows = rows
        self.tokens: list[int] = []
        self.clock = clock or NativeClock()
        self._cancel = cancel  # its buffer must outlive the native context
        # a pass that may be taken back must be one micro-batch, and one row more than its snapshots
        self._snapshots = self._wanted_snapshots()
        room = rows + 1 if self._snapshots else rows
        self._n_batch = max(settings.n_batch, room)
        self._n_ubatch = max(settings.n_ubatch, room if self._snapshots else 1)
        self._lazy = lazy
        self._stands = True  # all that is held
        self._tap: Tap | None = None
        params = context_params(settings, placement, threads, rows)
        params.n_batch, params.n_ubatch = self._n_batch, self._n_ubatch
        params.n_rs_seq = self._snapshots
        self.handle: Any = open_context(model, params)
        if cancel is not None:
            cancel.attach(lib, self.handle)
        self._memory = lib.llama_get_memory(self.handle)
        if not self._memory:
            self.close()
            raise ModelError(
                f"{model.path.name} ({model.arch}) keeps no KV cache: an encoder or a diffusion "
                "model, which does not write token by token"
            )
        self._rollback = self._choose_rollback()
        self.n_ctx: int = lib.llama_n_ctx_seq(self.handle)
        self._prepare_batches()
        self._view: tuple[int, int, Any] = (0, 0, None)

    def _wanted_snapshots(self) -> int:
        """One for every token that a pass may take back, or none where that is too much memory."""
        wanted = self.rows - 1
        if self.model.can_cut or not wanted:
            return 0
        return wanted if wanted <= (self.model.most_snapshots or 0) else 0

    def _choose_rollback(self) -> rollback.Rollback:
        if self.model.can_cut:
            return rollback.Cells(self._lib, self._memory)
        kept = int(self._lib.llama_n_rs_seq(self.handle))
        if self._snapshots and kept >= self._snapshots:
            return rollback.Snapshots(self._lib, self._memory, kept)
        return rollback.Checkpoint(self._lib, self._memory, self.handle)

    def _prepare_batches(self) -> None:
        """One token buffer, three batch headers. Positions are left to llama.cpp: they continue
        from the memory, which the mirror equals.
        """
        np, lib = self._numpy, self._lib
        self._buffer = np.zeros(self._n_batch, np.int32)
        self._flags = (np.zeros(self._n_batch, np.int8), np.ones(self._n_batch, np.int8))
        self._batches = []
        for flags in (*self._flags, None):  # none, all, last (NULL: only the last row is wanted)
            batch = lib.llama_batch()
            batch.token = ctypes.cast(self._buffer.ctypes.data, ctypes.POINTER(ctypes.c_int32))
            if flags is not None:
                batch.logits = ctypes.cast(flags.ctypes.data, ctypes.POINTER(ctypes.c_int8))
            self._batches.append(batch)
        self._silent, self._all, self._last = self._batches
        self._get_logits: Any = symbol("llama_get_logits", ctypes.c_void_p, ctypes.c_void_p)

    @property
    def n_vocab(self) -> int:
        """Width of a logits row."""
        return self.model.n_vocab

    @property
    def n_batch(self) -> int:
        """Most tokens of one pass."""
        return self._n_batch

    @property
    def native_seconds(self) -> float:
        """Seconds inside llama.cpp so far, of every context on this clock."""
        return self.clock.seconds

    def follow(self, tokens: Sequence[int]) -> int:
        """Make the memory hold exactly `tokens`; returns how many of them it held already.

        The common prefix stays, the rest is cut, what is missing is decoded without logits.

        Raises:
            ContextFullError: more tokens than the context holds; nothing was changed.
            CancelledError: asked to stop on the way.
        """
        if len(tokens) > self.n_ctx:
            raise ContextFullError(
                f"{len(tokens)} tokens do not fit the context of {self.n_ctx}",
                "a larger --ctx, or a shorter text",
            )
        common = _common_prefix(self.tokens, tokens)
        length = self._tap.reach(common) if self._tap is not None else common
        kept = self._rewind(length, common)
        self._read(tokens[kept:])
        self._stands = True
        return kept

    def verify(self, tokens: Sequence[int]) -> Logits:
        """Decode `tokens` after what is held; float32 logits [len(tokens), n_vocab].

        The rows are a view, valid until the next decode.

        Raises:
            ContextFullError, EngineError: refused before the call; nothing was changed.
            CancelledError: asked to stop on the way.
        """
        if not 1 <= len(tokens) <= self.rows:
            raise EngineError(f"{len(tokens)} rows asked of a context opened for {self.rows}")
        if len(tokens) > 1:
            self._rollback.save(len(self.tokens))
        self._decode(tokens, self._all)
        return self._rows(len(tokens))

    def extend(self, tokens: Sequence[int]) -> Logits:
        """Decode any number of `tokens`, with the logits of the last one only: float32 [n_vocab].

        Raises:
            ContextFullError, CancelledError: as `verify`.
        """
        if self._stands:
            self._rollback.save(len(self.tokens))
            self._stands = False
        first = len(tokens) - 1 - (len(tokens) - 1) % self._n_batch
        self._read(tokens[:first])
        self._decode(tokens[first:], self._last)
        row: Logits = self._rows(1)[0]
        return row

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens; they stand.

        Raises:
            CancelledError: asked to stop while tokens were read again.
        """
        if length < len(self.tokens):
            wanted = self.tokens[:length]
            held = self._rewind(length)
            if not self._lazy:
                self._read(wanted[held:])
        self._stands = True

    def feed(self, tap: Tap | None) -> None:
        """Let `tap` hear of every pass, from an empty memory on; None: nobody.

        Raises:
            EngineError: this build cannot give hidden states.
        """
        if tap is self._tap:
            return
        self._give(self._tap, False)
        self._tap = None
        if tap is not None:
            self.clear()
            self._give(tap, True)
            try:
                tap.start(self)
            except BaseException:
                self._give(tap, False)
                raise
            self._tap = tap

    def _give(self, tap: Tap | None, on: bool) -> None:
        """Record what `tap` lives on, or no longer."""
        if tap is None:
            return
        hidden, inputs = nextn(), layer_inputs()
        layers = set(tap.layers) if isinstance(tap, LayerTap) else None
        if hidden is None or (layers is not None and inputs is None):
            raise EngineError("this llama-cpp-python build gives no hidden states")
        if layers is None or self.model.n_layer in layers:
            hidden.switch(self.handle, on, False)
        for layer in (layers or set()) - {self.model.n_layer}:
            assert inputs is not None
            inputs.switch(self.handle, layer, on)

    def _rewind(self, length: int, common: int | None = None) -> int:
        """Hold at most the first `length` tokens; returns how many are held."""
        if length < len(self.tokens):
            held = self._rollback.rewind(len(self.tokens), length) if length else 0
            if held:
                del self.tokens[held:]
            else:
                self._forget()
            if self._tap is not None:
                self._tap.taken_back(held, length if common is None else common)
        return len(self.tokens)

    def _read(self, tokens: Sequence[int]) -> None:
        """Decode without logits."""
        for start in range(0, len(tokens), self._n_batch):
            self._decode(tokens[start : start + self._n_batch], self._silent)

    def clear(self) -> None:
        """Forget everything."""
        self._forget()
        if self._tap is not None:
            self._tap.taken_back(0, 0)

    def _forget(self) -> None:
        self._lib.llama_memory_clear(self._memory, False)
        self._rollback.forget()
        self.tokens.clear()
        self._stands = True

    def close(self) -> None:
        """Free the buffers; before the model's `close`."""
        if self.handle:
            self._lib.llama_free(self.handle)
            self.handle = None

    def _decode(self, tokens: Sequence[int], batch: Any) -> None:
        count = len(tokens)
        if not self.handle:
            raise EngineError("this context is closed")
        if len(self.tokens) + count > self.n_ctx:
            raise ContextFullError(
                f"{len(self.tokens)} + {count} tokens do not fit the context of {self.n_ctx}"
            )
        if min(tokens) < 0 or max(tokens) >= self.model.n_vocab:
            raise EngineError(f"a token outside the vocabulary of {self.model.n_vocab}")
        self._buffer[:count] = tokens
        batch.n_tokens = count
        start = time.perf_counter()
        status = self._lib.llama_decode(self.handle, batch)
        self.clock.seconds += time.perf_counter() - start
        if status == _OK:
            self.tokens.extend(tokens)
            self._rollback.decoded(count)
            self._tell(count, batch is self._silent)
            return
        self._resynchronise(tokens)
        if status == _ABORTED and self._cancel is not None and self._cancel.is_set:
            raise CancelledError
        if status == _NO_SLOT:
            raise ContextFullError(f"llama.cpp found no room for {count} more tokens")
        raise EngineError(f"llama_decode failed with {status}: {log.reason() or 'no reason given'}")

    def _tell(self, count: int, stands: bool) -> None:
        """Let the tap hear of a pass. Where it is stopped in the middle, the pass is taken back:
        what it has and what is held here would not fit together any more.
        """
        if self._tap is None:
            return
        try:
            self._tap.decoded(count, stands)
        except BaseException:
            self._rewind(len(self.tokens) - count)
            raise

    def _resynchronise(self, tokens: Sequence[int]) -> None:
        """After a decode that did not finish: hold what is whole."""
        before = len(self.tokens)
        held = self._rollback.interrupted(before)
        if not held:
            self.clear()
            return
        self.tokens.extend(tokens[: max(0, held - before)])
        del self.tokens[held:]
        if self._tap is not None:  # of tokens beyond `before` it has no hidden states
            self._rewind(before)
            self._tap.taken_back(len(self.tokens), len(self.tokens))

    def _rows(self, count: int) -> Logits:
        address = self._get_logits(self.handle)
        if not address:
            raise EngineError("llama.cpp has no logits for this pass")
        if self._view[:2] != (address, count):
            size = count * self.model.n_vocab
            data = (ctypes.c_float * size).from_address(address)
            rows = self._numpy.ctypeslib.as_array(data)
            self._view = (address, count, rows.reshape(count, self.model.n_vocab))
        view: Logits = self._view[2]
        return view


def _common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the common prefix; whole slices first, so that long equal ones cost little."""
    length = min(len(left), len(right))
    if list(left[:length]) == list(right[:length]):
        return length
    return next(index for index in range(length) if left[index] != right[index])
