"""`ngram-mod`: a pool of hashed n-grams and the token that followed each, walked token by token."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from specctl.drafters.base import Draft, Outcome, nothing
from specctl.drafters.lookup import Lookup, kept
from specctl.settings import NgramModSettings, Sampling

_MULTIPLIER = 6364136223846793005  # Knuth's MMIX generator, as in llama.cpp
_SLOTS = 4 * 1024 * 1024  # llama.cpp's table: 16 MiB
_FULLEST = 0.25  # llama.cpp empties the table at begin when it is fuller
_LAG = 32  # llama.cpp adds new tokens in chunks
_LOW, _STREAK = 0.25, 5  # a draft is low below this share accepted; so many in a row: forget


class _Pool(Protocol):
    """What follows an n-gram, by its rolling hash (base `_MULTIPLIER`, modulo `modulus`)."""

    modulus: int

    def put(self, key: int, token: int) -> None: ...

    def get(self, key: int) -> int:
        """The token, or -1."""

    def clear(self) -> None: ...

    def trim(self) -> None: ...


class _Table:
    """llama.cpp's: n-grams that share a slot overwrite each other, whatever they are."""

    modulus = _SLOTS

    def __init__(self) -> None:
        self._entries = array("i")
        self._used = 0

    def put(self, key: int, token: int) -> None:
        if not self._entries:
            self._entries = array("i", [-1]) * _SLOTS
        self._used += self._entries[key] < 0
        self._entries[key] = token

    def get(self, key: int) -> int:
        return self._entries[key] if self._entries else -1

    def clear(self) -> None:
        self._entries = array("i")
        self._used = 0

    def trim(self) -> None:
        if self._used > _FULLEST * _SLOTS:
            self.clear()


class _Exact:
    """Keys of 61 bits: two n-grams do not meet. About 90 bytes per entry."""

    modulus = (1 << 61) - 1

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[int, int] = {}

    def put(self, key: int, token: int) -> None:
        self._entries[key] = token

    def get(self, key: int) -> int:
        return self._entries.get(key, -1)

    def clear(self) -> None:
        self._entries.clear()

    def trim(self) -> None:
        """Above `most` entries the older half goes (by when an n-gram was first seen)."""
        if len(self._entries) > self._most:
            self._entries = dict(islice(self._entries.items(), len(self._entries) // 2, None))


class NgramMod(Lookup):
    """Walks from the last `n_match` tokens along the pool, up to `n_max` tokens.

    A draft shorter than `n_min` is dropped. The pool outlives a prompt and a conversation (until
    `close`), so it also drafts what earlier generations of this drafter said.

    By default the pool always holds the text up to its last token, n-grams never share a slot, a
    draft cut by `limit` needs no more than `limit` tokens to count as long enough, and after five
    drafts in a row with less than a quarter accepted only other conversations are forgotten. It
    holds at most `most` n-grams; above, the older half goes.

    `compat` is llama.cpp's `ngram-mod`: a table of 4 Mi slots under a hash of which 22 bits count,
    new tokens added only once 32 are waiting, the table emptied after such a streak or above a
    quarter full.
    """

    def __init__(self, settings: NgramModSettings, compat: bool, most: int = 1 << 18) -> None:
        super().__init__("ngram-mod", settings.n_max)
        self._settings = settings
        self._compat = compat
        self._pool: _Pool = _Table() if compat else _Exact(most)
        self._top = pow(_MULTIPLIER, settings.n_match - 1, self._pool.modulus)
        self._text: list[int] = []
        self._added = 0  # n-grams of the text that start before this are in the pool
        self._drafted = 0  # length of the last walk, before any limit
        self._low = 0  # own drafts in a row with a low share accepted

    def begin(self, tokens: Sequence[int], sampling: Sampling) -> None:
        """Adds the prompt; what the pool knew stays."""
        keep = kept(self._text, tokens, begin=True)
        self._text[keep:] = tokens[keep:]
        self._drafted = 0
        n = self._settings.n_match
        if self._compat:
            self._added = 0
            if len(tokens) >= n:
                self._add(len(tokens) - n)
        else:
            self._added = max(0, min(self._added, keep - n))
            self._add(len(tokens) - n)
        self._pool.trim()

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """O(n_match + draft), plus the new tokens since the last call."""
        keep = kept(self._text, tokens, begin=False)
        self._text[keep:] = tokens[keep:]
        self._added = max(0, min(self._added, keep - self._settings.n_match))
        self._drafted = 0
        found = self._llama_cpp() if self._compat else self._walk_current(limit)
        self._drafted = len(found)
        if not found or limit < 1:
            return nothing(self.name)
        return Draft(tuple(found[:limit]), self.name, detail=f"match {self._settings.n_match}")

    def settle(self, outcome: Outcome) -> None:
        """Five low drafts in a row: the pool has learnt another kind of text."""
        if outcome.draft.source != self.name or not outcome.draft or not self._drafted:
            return
        proposed = self._drafted if self._compat else len(outcome.draft.tokens)
        if outcome.accepted >= _LOW * proposed:
            self._low = 0
            return
        self._low += 1
        if self._low >= _STREAK:
            self._pool.clear()
            self._low = self._added = 0  # the present text is added again by the next propose

    def close(self) -> None:
        """Forget everything."""
        self._pool.clear()
        self._text.clear()
        self._added = self._low = self._drafted = 0

    def _walk_current(self, limit: int) -> list[int]:
        n = self._settings.n_match
        if len(self._text) < n:
            return []
        self._add(len(self._text) - n)
        self._pool.trim()
        found = self._walk(min(self._settings.n_max, limit))
        return found if len(found) >= min(self._settings.n_min, limit) else []

    def _llama_cpp(self) -> list[int]:
        n = self._settings.n_match
        known = len(self._text) - 1  # its history does not hold the token just sampled
        if known < n:
            return []
        if self._added + _LAG < known:
            self._add(known - n)
        found = self._walk(self._settings.n_max)
        return found if len(found) >= self._settings.n_min else []

    def _add(self, end: int) -> None:
        """Put the n-grams that start before `end`, each with the token after it."""
        text, n, start = self._text, self._settings.n_match, self._added
        if start < end:
            key = self._hash(text[start : start + n])
            for at in range(start, end):
                self._pool.put(key, text[at + n])
                key = self._roll(key, text[at], text[at + n])
        self._added = max(0, end) if self._compat else max(start, end)

    def _walk(self, most: int) -> list[int]:
        n = self._settings.n_match
        window = self._text[-n:]
        key = self._hash(window)
        for at in range(most):
            token = self._pool.get(key)
            if token < 0:
                break
            key = self._roll(key, window[at], token)
            window.append(token)
        return window[n:]

    def _hash(self, gram: Sequence[int]) -> int:
        key = 0
        for token in gram:
            key = (key * _MULTIPLIER + token) % self._pool.modulus
        return key

    def _roll(self, key: int, left: int, token: int) -> int:
        return ((key - left * self._top) * _MULTIPLIER + token) % self._pool.modulus
