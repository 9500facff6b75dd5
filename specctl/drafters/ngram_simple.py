"""`ngram-simple`: what followed the last n tokens the last time they were seen."""

from __future__ import annotations

from collections.abc import Sequence

from specctl.drafters.base import Draft, nothing
from specctl.drafters.lookup import Lookup, continuation
from specctl.drafters.ngram_index import NgramIndex
from specctl.settings import NgramSettings, Sampling


class NgramSimple(Lookup):
    """Drafts the up to `size_m` tokens after the latest earlier occurrence of the last `size_n`.

    By default a text of any length will do, the n-gram must have occurred `min_hits` times before,
    and a draft that runs into the end of the text goes on with its own copy (a text that repeats
    itself goes on repeating).

    `compat` is llama.cpp's `common_ngram_simple_draft`: it needs more than n + m + 2 tokens of
    text, ignores `min_hits`, an occurrence at the very start and one that ends only one token
    before the text does, never copies the last token, and drops drafts shorter than n.
    """

    def __init__(self, settings: NgramSettings, compat: bool) -> None:
        super().__init__("ngram-simple", settings.size_m)
        self._settings = settings
        self._compat = compat
        self._index = NgramIndex(settings.size_n)

    def begin(self, tokens: Sequence[int], sampling: Sampling) -> None:
        """The index of a common prefix is kept."""
        self._index.follow(tokens, begin=True)

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """O(1), plus the new tokens since the last call, plus the draft's own length."""
        self._index.follow(tokens)
        start = len(tokens) - self._settings.size_n
        if start < 1 or limit < 1:
            return nothing(self.name)
        found = self._llama_cpp(start) if self._compat else self._copy(start, limit)
        if not found:
            return nothing(self.name)
        return Draft(found[:limit], self.name, detail=f"match {self._settings.size_n}")

    def close(self) -> None:
        """Forget the text."""
        self._index.cut(0)

    def _copy(self, start: int, limit: int) -> tuple[int, ...]:
        match = self._index.previous(start)
        if match < 0 or self._index.earlier(start) < self._settings.min_hits:
            return ()
        after = match + self._settings.size_n
        return continuation(self._index.text, after, min(self._settings.size_m, limit))

    def _llama_cpp(self, start: int) -> tuple[int, ...]:
        n, m = self._settings.size_n, self._settings.size_m
        known = start + n - 1  # its history does not hold the token just sampled
        if known <= n + m + 1:
            return ()
        match = self._index.previous(start)
        if match == start - 1:
            match = self._index.previous(match)
        count = min(m, known - (match + n))
        if match < 1 or count < n:
            return ()
        return tuple(self._index.text[match + n : match + n + count])
