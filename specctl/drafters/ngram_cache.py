"""`ngram-cache`: counts of what followed the last 4, 3, 2, 1 tokens."""

from __future__ import annotations

from collections.abc import Sequence

from specctl.drafters.base import Draft, nothing
from specctl.drafters.lookup import Lookup, kept
from specctl.settings import Sampling

_LONGEST = 4
_MASK = (1 << 32) - 1
# Per n-gram length 1 … 4: how often it must have been seen, and what share of that the most
# frequent continuation must have. llama.cpp's "lax" thresholds for the context's own statistics.
_MIN_SAMPLES = (2, 2, 1, 1)
_MIN_SHARE = (0.66, 0.50, 0.50, 0.50)
_BUSY = 16  # n-grams with more continuations keep their sum
_LLAMA_CPP_DRAFT = 8  # its draft length is fixed


class NgramCache(Lookup):
    """Each drafted token is the most frequent continuation of the longest n-gram (4 … 1) known.

    An n-gram counts when it was seen often enough (2, 2, 1, 1 times for 1 … 4 tokens) and its best
    continuation has a share of at least 66, 50, 50, 50 %; that share is the confidence. Among
    equals the continuation seen last wins. About 500 bytes per token of text.

    `compat` is llama.cpp's `ngram-cache` without its files: at most 8 tokens; n-grams are counted
    only within one update, so that those across the border of two cycles (nearly all generated
    text) are never counted; a new generation neither forgets the old text nor counts the new one
    before it is longer than everything before. (Among equals llama.cpp takes what its hash table
    lists first; here it is the one seen last.)
    """

    def __init__(self, k_max: int, compat: bool) -> None:
        super().__init__("ngram-cache", min(k_max, _LLAMA_CPP_DRAFT) if compat else k_max)
        self._compat = compat
        self._text: list[int] = []
        self._counts: dict[int, dict[int, int]] = {}  # packed n-gram → token → times, latest last
        self._busy: dict[int, tuple[int, int, int]] = {}  # → (sum, most, its token) where many

    def begin(self, tokens: Sequence[int], sampling: Sampling) -> None:
        """Counts of a common prefix are kept, those of the rest taken back."""
        if not self._compat:
            self._follow(tokens, begin=True)

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """O(draft), plus the new tokens since the last call."""
        if self._compat:
            self._count_chunk(tokens)
        else:
            self._follow(tokens, begin=False)
        if len(tokens) < 2:
            return nothing(self.name)
        text = list(tokens[-_LONGEST:])
        known, shares, longest = len(text), [], 0
        while len(text) - known < min(limit, self.needs.k_max):
            guess = self._next(text)
            if guess is None:
                break
            token, share, n = guess
            text.append(token)
            shares.append(share)
            longest = longest or n
        if not shares:
            return nothing(self.name)
        return Draft(
            tuple(text[known:]), self.name, confidences=tuple(shares), detail=f"match {longest}"
        )

    def close(self) -> None:
        """Forget the text."""
        self._text.clear()
        self._counts.clear()
        self._busy.clear()

    def _next(self, text: Sequence[int]) -> tuple[int, float, int] | None:
        for n in range(min(_LONGEST, len(text)), 0, -1):
            key = _pack(text[-n:])
            counts = self._counts.get(key)
            if not counts:
                continue
            total, top, token = self._busy.get(key) or self._sum(key, counts)
            if total >= _MIN_SAMPLES[n - 1] and top >= _MIN_SHARE[n - 1] * total:
                return token, top / total, n
        return None

    def _sum(self, key: int, counts: dict[int, int]) -> tuple[int, int, int]:
        top = max(counts.values())
        token = next(token for token in reversed(counts) if counts[token] == top)
        summed = (sum(counts.values()), top, token)
        if len(counts) > _BUSY:
            self._busy[key] = summed
        return summed

    def _follow(self, tokens: Sequence[int], *, begin: bool) -> None:
        keep = kept(self._text, tokens, begin=begin)
        for at in range(len(self._text) - 1, keep - 1, -1):
            self._count(self._text, at, -1)
        del self._text[keep:]
        for token in tokens[keep:]:
            self._text.append(token)
            self._count(self._text, len(self._text) - 1, 1)

    def _count_chunk(self, tokens: Sequence[int]) -> None:
        chunk = list(tokens[len(self._text) :])
        self._text.extend(chunk)
        for at in range(len(chunk)):
            self._count(chunk, at, 1)

    def _count(self, text: Sequence[int], at: int, times: int) -> None:
        """The n-grams that end before `at` were followed by its token, `times` more often."""
        token, key, one = text[at], 0, 1
        for n in range(1, min(_LONGEST, at) + 1):
            key |= (text[at - n] & _MASK) << (32 * (n - 1))
            one <<= 32
            counts = self._counts.setdefault(key | one, {})
            left = counts.pop(token, 0) + times
            if left:
                counts[token] = left  # as the latest
            elif not counts:
                del self._counts[key | one]
            busy = self._busy.get(key | one) if self._busy else None
            if busy is None:
                continue
            if times < 0:
                del self._busy[key | one]
            else:
                total, top, best = busy
                self._busy[key | one] = (
                    (total + 1, left, token) if left >= top else (total + 1, top, best)
                )


def _pack(gram: Sequence[int]) -> int:
    """One integer per n-gram of any length: 32 bits a token under a leading 1."""
    key = 1
    for token in gram:
        key = key << 32 | token & _MASK
    return key
