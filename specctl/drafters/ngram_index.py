"""Where each n-gram of a growing text occurred before: exact, O(1) a token to extend or cut."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from specctl.drafters.lookup import kept

_MODULUS = (1 << 61) - 1  # a Mersenne prime: products stay two machine words
_BASE = 0x1B873593_9E3779B1 % _MODULUS


class NgramIndex:
    """All n-grams of one text, chained from each occurrence to the one before.

    A rolling hash finds candidates and every hit is compared token by token, so collisions cost
    time, never exactness. Slots are found by linear probing from the hash; since occurrences are
    taken out in the reverse of the order they came in, a cut restores the table as it was.
    About 100 bytes per token of text, whatever n.
    """

    def __init__(self, n: int, modulus: int = _MODULUS) -> None:
        self.n = n
        self.text: list[int] = []
        self._modulus = modulus
        self._top = pow(_BASE, n - 1, modulus)  # weight of the token that leaves the window
        self._latest: dict[int, int] = {}  # slot → start of the latest occurrence
        self._slots = array("q")  # per start: its slot
        self._hashes = array("q")  # per start: its rolling hash, to go on from after a cut
        self._previous = array("q")  # per start: the occurrence before, -1 for none
        self._earlier = array("q")  # per start: how many occurrences came before

    def follow(self, tokens: Sequence[int], *, begin: bool = False) -> None:
        """Make the index that of `tokens`: keep what holds, cut the rest, add what is new."""
        keep = kept(self.text, tokens, begin=begin)
        if keep < len(self.text):
            self.cut(keep)
        for token in tokens[keep:]:
            self._append(token)

    def cut(self, length: int) -> None:
        """Forget the text from `length` on."""
        del self.text[length:]
        for _ in range(len(self._slots) - max(0, length - self.n + 1)):
            slot, before = self._slots.pop(), self._previous.pop()
            self._hashes.pop()
            self._earlier.pop()
            if before < 0:
                del self._latest[slot]
            else:
                self._latest[slot] = before

    def previous(self, start: int) -> int:
        """Start of the latest occurrence before the one at `start`; -1 for none."""
        return self._previous[start]

    def earlier(self, start: int) -> int:
        """How many occurrences the n-gram at `start` had before it."""
        return self._earlier[start]

    def _append(self, token: int) -> None:
        text, n = self.text, self.n
        text.append(token)
        start = len(text) - n
        if start < 0:
            return
        rolled = self._roll(start, token)
        slot = rolled
        gram: list[int] | None = None
        while (before := self._latest.get(slot, -1)) >= 0:
            gram = text[start:] if gram is None else gram
            if text[before : before + n] == gram:
                break
            slot += 1
        self._latest[slot] = start
        self._slots.append(slot)
        self._hashes.append(rolled)
        self._previous.append(before)
        self._earlier.append(self._earlier[before] + 1 if before >= 0 else 0)

    def _roll(self, start: int, token: int) -> int:
        if start == 0:
            rolled = 0
            for each in self.text:
                rolled = (rolled * _BASE + each) % self._modulus
            return rolled
        left = self._hashes[start - 1] - self.text[start - 1] * self._top
        return (left * _BASE + token) % self._modulus
