"""Token pieces to text that can be shown: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence


class Assembler:
    """Feeds on tokens, gives text; holds back incomplete UTF-8 and starts of a stop string.

    `stopped` becomes True when a stop string is complete; the text ends before it.
    """

    def __init__(self, piece: Callable[[int], bytes], stop: Sequence[str] = ()) -> None:
        self._piece = piece
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that can be shown since the last call."""
        self._held += self._decoder.decode(self._piece(token))
        return self._release()

    def text(self, tokens: Sequence[int]) -> str:
        """Text of tokens that are not part of the stream; incomplete characters become �."""
        return b"".join(map(self._piece, tokens)).decode("utf-8", "replace")

    def finish(self) -> str:
        """What was held back and is no stop string after all; an incomplete character becomes �."""
        if self.stopped:
            return ""
        self._held += self._decoder.decode(b"", final=True)
        shown = self._release()  # a stop string completed only now empties what is held
        shown, self._held = shown + self._held, ""
        return shown

    def _release(self) -> str:
        ends = [(at, stop) for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if ends:
            self.stopped = True
            shown, self._held = self._held[: min(ends)[0]], ""
            return shown
        keep = max((_overlap(self._held, stop) for stop in self._stop), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if stop.startswith(text[-n:])), 0)
