"""A Gemma 4 assistant: a small model that drafts from the target's own KV cache.

It has no keys and values: its attention reads those of the target's last two layers. It reads a
token with a hidden state, the target's of the token before or the one that its last step left, and
all tokens of a draft at the position of the first: nothing of a draft comes into the cache.

Its native memory is a view on the target's. To clear it, or to open one while the target holds
something, would silently make the target forget; so neither is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specctl.errors import ContextFullError
from specctl.llama.api import library
from specctl.llama.cancel import Cancel
from specctl.llama.context import Context, NativeClock
from specctl.llama.follower import Stepwise
from specctl.llama.model import Model
from specctl.llama.opening import context_params, open_context
from specctl.llama.trail import LAST, Trail
from specctl.settings import EngineSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]

_CHUNK = 32  # rows of the target that are looked at at once


class Assistant(Stepwise):
    """Its context; it is opened when it starts to follow one of the target, which must outlive it.

    `tokens` is what the target holds, and a draft on top of it.

    Raises:
        EngineError: a build without the functions it needs.
    """

    words = "the assistant"
    borrows = True

    def __init__(
        self,
        model: Model,
        settings: EngineSettings,
        *,
        threads: int,
        cancel: Cancel | None = None,
        clock: NativeClock | None = None,
    ) -> None:
        trail = Trail((LAST,), model.n_embd_out, _CHUNK, lag=1)
        super().__init__(model, trail, settings, cancel, clock)
        self._settings, self._threads = settings, threads

    def longest(self, length: int) -> int:
        """Most tokens that can be drafted after a text of `length` tokens.

        Without a token before the last one there is nothing to read.
        """
        return self.n_ctx - length + 1 if self._true else 0

    def _open(self, context: Context) -> None:
        # the target's placement: of it only the type of the KV cache matters here
        params = context_params(self._settings, self._settings.target, self._threads, 1)
        params.n_batch = params.n_ubatch = 1
        params.ctx_type = library().LLAMA_CONTEXT_TYPE_MTP
        params.ctx_other = context.handle
        handle = open_context(self._model, params, "MTP context")
        self._own_steps(handle, 1, self._model.n_embd_out, 1)

    def decoded(self, count: int, stands: bool) -> None:
        """Keep the hidden states after which a draft may start."""
        begin = len(self._trail.text) - count
        for end in self._trail.decoded(count, self._true):
            self._trail.drop(end if stands else begin + 1)
        del self.tokens[self._true :]
        self.tokens += self._trail.text[len(self.tokens) :]
        self._true = len(self.tokens)

    def taken_back(self, length: int, common: int) -> None:
        """The target holds `length` tokens."""
        self.cut(length)
        self._trail.taken_back(length)

    def extend(self, tokens: Sequence[int]) -> Rows:
        """Read `tokens` after what is held; the logits of the last one, float32 [n_vocab]."""
        held = len(self.tokens)
        if self.longest(held + len(tokens)) < 1:
            raise ContextFullError(f"{held} + {len(tokens)} tokens do not fit {self.words}")
        for token in tokens:
            first = len(self.tokens) == self._true
            self._states[0] = self._trail.rows(self._true - 1, 1) if first else self._chain
            self._place([token])
            self._check_open()
            self._all.n_tokens = 1
            self._run(self._lib.llama_decode, self._all)
            self._keep(1)
            self.tokens.append(token)
        row: Rows = self._last
        return row

    def clear(self) -> None:
        """Forget everything; the native memory is the target's."""
        self.tokens.clear()
        self._true = 0
        self._trail.forget()
