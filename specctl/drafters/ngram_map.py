"""`ngram-map-k` and `ngram-map-k4v`: look-ups that learn from what became of their drafts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from specctl.drafters.base import Draft, Outcome, nothing
from specctl.drafters.lookup import Lookup, continuation
from specctl.drafters.ngram_index import NgramIndex
from specctl.drafters.ngram_map_compat import LlamaCppMap
from specctl.settings import NgramSettings, Sampling

_KEYS = 4096  # learned lengths are kept for so many keys; above, the oldest half goes
_OCCURRENCES = 16  # the latest ones that vote
_DOMINANT = 2  # times as often as all other continuations together


class _NgramMap(Lookup, ABC):
    """The last `size_n` tokens are a key; per key and value a draft length is learned.

    It starts at `size_m`; a draft cut short by the target sets it to what was accepted (at least
    1, so that a key can earn its way back), one accepted in full doubles it. Any length of text
    will do, the key must have occurred `min_hits` times before, and a copy that runs into the end
    of the text goes on with itself.
    """

    def __init__(self, name: str, settings: NgramSettings, compat: bool, *, values: bool) -> None:
        super().__init__(name, settings.size_m)
        self._settings = settings
        self._index = NgramIndex(settings.size_n)
        self._llama_cpp = LlamaCppMap(settings, values=values) if compat else None
        self._lengths: dict[tuple[int, ...], int] = {}  # key and first drafted token → length
        self._drafted: tuple[int, ...] = ()  # what the last draft is filed under

    def begin(self, tokens: Sequence[int], sampling: Sampling) -> None:
        """The index of a common prefix is kept, and so is what was learned."""
        self._index.follow(tokens, begin=True)
        if self._llama_cpp is not None:
            self._llama_cpp.begin(self._index.text)

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """O(draft), plus the new tokens since the last call."""
        self._index.follow(tokens)
        self._drafted = ()
        if self._llama_cpp is not None:
            found = self._llama_cpp.propose(self._index)
        else:
            found = self._propose(limit)
        if not found or limit < 1:
            return nothing(self.name)
        return Draft(found[:limit], self.name, detail=f"match {self._settings.size_n}")

    def settle(self, outcome: Outcome) -> None:
        """Learn the length of the key that drafted."""
        if outcome.draft.source != self.name or not outcome.draft:
            return
        if self._llama_cpp is not None:
            self._llama_cpp.accept(outcome.accepted)
        elif self._drafted:
            self._learn(len(outcome.draft.tokens), outcome.accepted)

    def close(self) -> None:
        """Forget everything."""
        self._index.cut(0)
        self._lengths.clear()
        if self._llama_cpp is not None:
            self._llama_cpp = LlamaCppMap(self._settings, values=self._llama_cpp.values)

    def _propose(self, limit: int) -> tuple[int, ...]:
        start = len(self._index.text) - self._settings.size_n
        if start < 1 or self._index.earlier(start) < self._settings.min_hits:
            return ()
        found = self._follow(start, min(self._settings.size_m, limit))
        if not found:
            return ()
        self._drafted = (*self._index.text[start:], found[0])
        return found[: self._lengths.get(self._drafted, self._settings.size_m)]

    @abstractmethod
    def _follow(self, start: int, most: int) -> tuple[int, ...]:
        """What the key at `start` proposes, at most `most` tokens."""

    def _learn(self, drafted: int, accepted: int) -> None:
        before = self._lengths.pop(self._drafted, self._settings.size_m)
        if accepted < drafted:
            length = max(1, accepted)
        else:
            length = min(self._settings.size_m, max(before, 2 * drafted))
        self._lengths[self._drafted] = length  # as the newest
        if len(self._lengths) > _KEYS:
            for old in list(self._lengths)[: _KEYS // 2]:
                del self._lengths[old]


class NgramMapK(_NgramMap):
    """Drafts what followed the key's latest occurrence, as long as it has learned to.

    `compat` is llama.cpp's `ngram-map-k`: see `LlamaCppMap`.
    """

    def __init__(self, settings: NgramSettings, compat: bool) -> None:
        super().__init__("ngram-map-k", settings, compat, values=False)

    def _follow(self, start: int, most: int) -> tuple[int, ...]:
        after = self._index.previous(start) + self._settings.size_n
        return continuation(self._index.text, after, most)


class NgramMapK4V(_NgramMap):
    """Drafts only what the key's occurrences agree on.

    The latest 16 occurrences vote token by token; a token is drafted while it is at least twice as
    frequent as all others together, and the occurrences that said otherwise drop out.

    `compat` is llama.cpp's `ngram-map-k4v`: see `LlamaCppMap`. It compares whole values of `size_m`
    tokens, so that two that differ in their last token already disagree on the first.
    """

    def __init__(self, settings: NgramSettings, compat: bool) -> None:
        super().__init__("ngram-map-k4v", settings, compat, values=True)

    def _follow(self, start: int, most: int) -> tuple[int, ...]:
        text, size_n = self._index.text, self._settings.size_n
        afters: list[int] = []
        at = self._index.previous(start)
        while at >= 0 and len(afters) < _OCCURRENCES:
            afters.append(at + size_n)
            at = self._index.previous(at)
        drafted: list[int] = []
        while len(afters) > 1 and len(drafted) < most:
            votes: dict[int, list[int]] = {}
            for after in afters:
                at = after + len(drafted)
                token = text[at] if at < len(text) else drafted[at - len(text)]
                votes.setdefault(token, []).append(after)
            token, agreed = max(votes.items(), key=lambda vote: len(vote[1]))
            if len(agreed) < _DOMINANT * (len(afters) - len(agreed)):
                return tuple(drafted)
            drafted.append(token)
            afters = agreed
        if len(drafted) == most:
            return tuple(drafted)
        # one occurrence left: what follows is a plain copy
        return continuation(text, afters[0], most)
