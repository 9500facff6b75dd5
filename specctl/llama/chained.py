"""MTP heads in a chain: the i-th guesses the i-th token of a draft, with a KV cache of its own.

Every head reads the same positions: a token with the target's hidden state of the one before. In
the draft, head i reads the last token of the text and the i tokens drafted so far, with the states
that the heads before it left; what other heads read there is not in its cache. So a pass is taken
back to where its head stopped, and the next head's goes over the same cells: the layers' caches lie
side by side in them. That is llama.cpp's own way (common/speculative.cpp, `chain_heads`), but that
there every head reads every pass of the target at once, and here with its next draft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from specctl.errors import ContextFullError, EngineError
from specctl.llama.cancel import Cancel
from specctl.llama.context import Context, NativeClock
from specctl.llama.extras import nextn_layer
from specctl.llama.heads import Heads
from specctl.llama.model import Model
from specctl.settings import EngineSettings, ModelSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]


class ChainedHeads(Heads):
    """`count` heads of one file; a draft is as long as there are heads.

    `_true` positions were read by all of them, `_done[i]` by head i.

    Raises:
        ModelError: no room for it; EngineError: a build without the functions it needs.
    """

    def __init__(
        self,
        model: Model,
        settings: EngineSettings,
        placement: ModelSettings,
        count: int,
        *,
        threads: int,
        k: int,
        cancel: Cancel | None = None,
        clock: NativeClock | None = None,
    ) -> None:
        import numpy as np

        choose = nextn_layer()
        if choose is None:
            raise EngineError("this llama-cpp-python build cannot choose between MTP heads")
        self._choose: Callable[[Any, int], None] = choose
        self._done = [0] * count
        super().__init__(
            model, settings, placement, threads=threads, k=k + count, cancel=cancel, clock=clock
        )
        self._left: Rows = np.zeros((count, self._width), np.float32)  # the state each head left

    @property
    def heads(self) -> int:
        """How many there are."""
        return len(self._done)

    def longest(self, length: int) -> int:
        """Most tokens that can be drafted after a text of `length` tokens: one by each head.

        What the target has not decoded, but for one token, stands for drafts of the first heads.
        """
        return min(super().longest(length), self.heads - (length - self._text - 1))

    @property
    def _text(self) -> int:
        """Positions that the target has decoded."""
        return self._trail.first + self._trail.known

    def start(self, context: Context) -> None:
        """As a follower's."""
        super().start(context)
        self._done = [0] * self.heads

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._done = [0] * self.heads

    def cut(self, length: int) -> None:
        """Keep at most `length` tokens, and none that was read without the target."""
        self._done = [min(done, length) for done in self._done]
        self._gather()

    def taken_back(self, length: int, common: int) -> None:
        """As a follower's; heads that are further keep what is right."""
        self.cut(common)
        self._trail.taken_back(length)

    def follow(self, tokens: Sequence[int]) -> int:
        """As a follower's."""
        self._gather()
        return self._true

    def extend(self, tokens: Sequence[int]) -> Rows:
        """Read `tokens` after what is held; the logits of the last one, float32 [n_vocab].

        The last of the text is head 0's, each one after it the next head's.

        Raises:
            ContextFullError: there is no head for it.
        """
        held = len(self.tokens)
        if self.longest(held + len(tokens)) < 1:
            raise ContextFullError(f"{held} + {len(tokens)} tokens are beyond the last MTP head")
        text = self._text
        self.tokens += tokens
        for end in range(max(held, text) + 1, len(self.tokens) + 1):
            self._draft(end - text - 1, end)
        self._true = min(self._done)
        self._trail.drop(self._true)
        row: Rows = self._last
        return row

    def _draft(self, head: int, end: int) -> None:
        """One guess of `head`, after `end` tokens; with it what it has not read of the text."""
        text = self._text
        start = min(self._done[head], text)  # the last token again, after a draft that was stopped
        if end - start > self._most:
            self._catch_up(head, text, self.tokens)
            start = text
        self._states[: text + 1 - start] = self._before(start, text + 1 - start)
        self._states[text + 1 - start : end - start] = self._left[:head]
        self._one(head, self.tokens[start:end], start, self._all)
        self._done[head] = text + 1
        self._keep(end - start)
        self._left[head] = self._chain

    def _read(self, end: int) -> None:
        """Read the positions up to `end` without logits: their tokens stand."""
        self._gather()
        for head in range(self.heads):
            self._catch_up(head, end, self._trail.text)
        self.tokens += self._trail.text[len(self.tokens) : end]
        self._gather()
        self._trail.drop(self._true)

    def _catch_up(self, head: int, end: int, tokens: Sequence[int]) -> None:
        """`head` reads the positions before `end` with the target's states."""
        while self._done[head] < end:
            start = self._done[head]
            count = min(self._chunk, end - start)
            self._states[:count] = self._before(start, count)
            self._one(head, tokens[start : start + count], start, self._silent)
            self._done[head] = start + count

    def _one(self, head: int, tokens: Sequence[int], cell: int, batch: Any) -> None:
        """One pass of one head over the cells from `cell` on.

        Cells that the pass frees lose their positions for all heads, so one that does not finish
        takes them from all.
        """
        if cell > self._cells:
            raise EngineError("the MTP heads have lost step with each other")
        self._choose(self.handle, head)
        try:
            self._decode(tokens, cell, batch)
        except BaseException:
            self.cut(cell)
            raise

    def _gather(self) -> None:
        """Hold what all heads have read."""
        self._true = min(self._done)
        del self.tokens[self._true :]
