"""What a draft still has to read of its target: the inputs of some layers, one row per token."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from specctl.errors import EngineError
from specctl.llama.extras import layer_inputs, nextn

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from specctl.llama.context import Context

    Rows = NDArray[np.float32]

PENDING = 64  # positions that may wait to be read while something else drafts
LAST = 1 << 30  # as a layer: what leaves the last one, whatever its number


class Trail:
    """Rows of the target's positions `first` … `first` + `known` - 1, float32
    [known, layers x width], the layers side by side in the order of the draft's file.

    `width` is that of one layer. `lag` is how many positions before the next unread one are still
    needed: 1 where a token is read with the row of the token before it, 0 where every position is
    read by itself.
    """

    def __init__(self, layers: tuple[int, ...], width: int, chunk: int, lag: int) -> None:
        self.layers, self._width, self._chunk, self._lag = layers, width, chunk, lag
        self.first = self.known = 0
        self.text: list[int] = []  # the target's mirror

    def start(self, context: Context) -> None:
        """The target's memory is empty."""
        import numpy as np

        self._extra, self._last = layer_inputs(), nextn()
        self.text, self._source = context.tokens, context.handle
        self._n_layer = context.model.n_layer
        room = PENDING + context.rows + self._chunk + 1
        self._rows: Rows = np.zeros((room, self._width * len(self.layers)), np.float32)
        self.forget()

    def forget(self) -> None:
        """Nothing is known."""
        self.first = self.known = 0

    def decoded(self, count: int, done: int) -> Iterator[int]:
        """Take over the rows of the last pass, of `count` tokens; `done` positions were read.

        After each part: how many positions are known from the start. The caller may drop some then.
        """
        begin = len(self.text) - count
        if self.first + self.known != begin:
            self.first, self.known = begin, 0
        skip = 0
        if not self.known:  # what the target reads again, and the draft has read
            skip = min(count, max(0, done - self._lag - begin))
            self.first = begin + skip
        for at in range(skip, count, self._chunk):
            size = min(self._chunk, count - at)
            for place, layer in enumerate(self.layers):
                left = place * self._width
                rows = self._native(layer, count)[at : at + size]
                self._rows[self.known : self.known + size, left : left + self._width] = rows
            self.known += size
            yield self.first + self.known

    def taken_back(self, length: int) -> None:
        """The target is down to `length` tokens."""
        self.known = max(0, min(self.known, length - self.first))
        if not self.known:
            self.first = length

    def reach(self, length: int) -> int:
        """`length`, or one less where the row before that position is needed and not here."""
        before = length - self._lag
        here = not self._lag or not length or self.first <= before < self.first + self.known
        return length if here else before

    def rows(self, position: int, count: int) -> Rows:
        """Of `count` positions from `position` on: a view."""
        start = position - self.first
        if start < 0 or start + count > self.known:
            raise EngineError("the draft has lost step with the target")
        return self._rows[start : start + count]

    def drop(self, done: int) -> None:
        """Forget what was read, up to `done` positions."""
        gone = min(done - self._lag - self.first, self.known)
        if gone > 0:
            left = self.known - gone
            self._rows[:left] = self._rows[gone : self.known]
            self.first, self.known = self.first + gone, left

    def _native(self, layer: int, count: int) -> Rows:
        import numpy as np

        if layer < self._n_layer:
            assert self._extra is not None
            address = self._extra.rows(self._source, layer)
        else:
            assert self._last is not None
            address = self._last.rows(self._source)
        if not address:
            raise EngineError(f"llama.cpp gave nothing of the target's layer {layer}")
        data: Any = (ctypes.c_float * (count * self._width)).from_address(address)
        rows: Rows = np.frombuffer(data, np.float32).reshape(count, self._width)
        return rows
