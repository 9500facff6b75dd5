"""llama.cpp's own way to draft with MTP heads, transcribed call by call: an oracle for ours.

`common_speculative_impl_draft_mtp` of common/speculative.cpp, greedy, one sequence: `process` reads
a pass of the target with every head, `draft` makes the draft. Memories are emptied before each
text, so nothing of an earlier one can help. Nothing of specctl's drafting is used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from specctl.llama.api import library, symbol
from specctl.llama.extras import nextn, nextn_layer

Rows = np.ndarray
_N_CTX, _BATCH = 512, 256


class Driver:
    """A target and its heads, in its own file or in `draft`; an assistant shares its memory."""

    def __init__(self, target: Path, draft: Path | None, *, heads: int = 1, shared: bool = False):
        self._lib = lib = library()
        self._heads, self._shared = heads, shared
        params = lib.llama_model_default_params()
        params.load_mtp = True
        files = [target] if draft is None else [target, draft]
        self._models = [lib.llama_model_load_from_file(str(f).encode(), params) for f in files]
        self._width = lib.llama_model_n_embd_out(self._models[0])
        vocab = lib.llama_model_get_vocab(self._models[0])
        self._n_vocab = lib.llama_vocab_n_tokens(vocab)
        self._target = lib.llama_init_from_model(self._models[0], self._params())
        beside = self._params()
        beside.ctx_type = lib.LLAMA_CONTEXT_TYPE_MTP
        beside.ctx_other = self._target
        self._drafts = lib.llama_init_from_model(self._models[-1], beside)
        self._extra: Any = nextn()
        self._extra.switch(self._target, True, False)
        self._extra.switch(self._drafts, True, True)
        self._choose: Any = nextn_layer()
        self._logits = symbol("llama_get_logits", ctypes.c_void_p, ctypes.c_void_p)

    def _params(self) -> Any:
        params = self._lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = _N_CTX, _BATCH, _BATCH
        params.n_threads = params.n_threads_batch = 1
        params.swa_full = True
        return params

    def draft(self, text: Sequence[int], given: Sequence[int]) -> list[Rows]:
        """The logits that each token of a draft after `text` comes from, if the tokens before it
        are those of `given`.
        """
        lib = self._lib
        lib.llama_memory_clear(lib.llama_get_memory(self._target), False)
        before, last, start = list(text[:-1]), text[-1], len(text) - 1
        _, states = self._decode(self._target, before, 0)
        if not self._shared:
            memory = lib.llama_get_memory(self._drafts)
            lib.llama_memory_clear(memory, False)
            shifted = np.concatenate([np.zeros((1, self._width), np.float32), states[:-1]])
            for head in range(self._heads):
                self._select(head, 0)
                self._decode(self._drafts, before, 0, shifted)
        rows, tokens, chain = [], [last], [states[-1]]
        for step in range(len(given)):
            if self._heads > 1:  # the whole draft again, by the next head
                self._select(step, start)
                logits, left = self._decode(self._drafts, tokens, start, np.stack(chain))
            else:  # the newest token; an assistant stays where the draft began
                at = start if self._shared else start + step
                logits, left = self._decode(self._drafts, tokens[-1:], at, chain[-1][None])
            rows.append(logits[-1])
            tokens.append(given[step])
            chain.append(left[-1])
        return rows

    def _select(self, head: int, length: int) -> None:
        if self._heads > 1:
            memory = self._lib.llama_get_memory(self._drafts)
            assert self._lib.llama_memory_seq_rm(memory, 0, length, -1)
            self._choose(self._drafts, head)

    def _decode(
        self, context: Any, tokens: Sequence[int], first: int, states: Rows | None = None
    ) -> tuple[Rows, Rows]:
        """Logits and hidden states of every row."""
        count = len(tokens)
        ids, at = np.array(tokens, np.int32), np.arange(first, first + count, dtype=np.int32)
        flags = np.ones(count, np.int8)
        batch = self._lib.llama_batch()
        batch.n_tokens = count
        for name, values, kind in (
            ("token", ids, ctypes.c_int32),
            ("pos", at, ctypes.c_int32),
            ("logits", flags, ctypes.c_int8),
        ):
            setattr(batch, name, ctypes.cast(values.ctypes.data, ctypes.POINTER(kind)))
        if states is not None:
            states = np.ascontiguousarray(states, np.float32)
            batch.embd = ctypes.cast(states.ctypes.data, ctypes.POINTER(ctypes.c_float))
        assert self._lib.llama_decode(context, batch) == 0
        return (
            self._read(self._logits(context), count, self._n_vocab),
            self._read(self._extra.rows(context), count, self._width),
        )

    @staticmethod
    def _read(address: int, count: int, width: int) -> Rows:
        data = (ctypes.c_float * (count * width)).from_address(address)
        return np.frombuffer(data, np.float32).reshape(count, width).copy()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for context in (self._drafts, self._target):
            self._lib.llama_free(context)
        for model in self._models:
            self._lib.llama_model_free(model)
