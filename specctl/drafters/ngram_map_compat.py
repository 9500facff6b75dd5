"""The n-gram maps as llama.cpp's `common/ngram-map.cpp` behaves, for `--spec-compat`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specctl.drafters.ngram_index import NgramIndex
from specctl.settings import NgramSettings

_FACTOR = 2654435761  # of its 32-bit hash
_TABLE = 262_144
_VALUES = 4  # values kept per key; later ones are not counted
_MOST = 16_380  # counters stop here


@dataclass(slots=True)
class _Value:
    """A continuation of `size_m` tokens at `start` of the text."""

    start: int
    accepted: int  # of the last draft from it: the length of its next draft
    seen: int = 0


@dataclass(slots=True)
class _Key:
    """A key n-gram at `start` of the text."""

    start: int
    accepted: int  # as of a value, where keys have none
    hits: int = 0  # how often it was looked up, not how often it occurs
    counted: int = 0  # values are counted up to this start, which is counted twice
    values: list[_Value] = field(default_factory=list)


class LlamaCppMap:
    """`ngram-map-k`, and with `values` `ngram-map-k4v`, with all their ways.

    Nothing is drafted below 2 n + m tokens, nor from occurrences within the last n + m + 1. Without
    values `min_hits` is ignored; with values it counts look-ups. Occurrences are found through a
    table of 262 144 slots in which the first n-gram to come keeps its slot, and by searching only
    the text that is not in the table yet: among many occurrences it is an old one that answers.
    A draft is never longer than what was accepted of the key's (value's) last one, so a key that
    failed once never drafts again. A value must make up two thirds of all. Keys are positions:
    after a new generation they mean whatever stands there now.
    """

    def __init__(self, settings: NgramSettings, *, values: bool) -> None:
        self.values = values
        self._settings = settings
        self._table: dict[int, int] = {}  # slot → start
        self._in_table = 0  # starts up to this one have been put there
        self._begun = 0  # length of the text at begin
        self._checked = 0  # and at the last look-up
        self._keys: list[_Key] = []
        self._by_gram: dict[tuple[int, ...], _Key] = {}
        self._last: _Key | _Value | None = None

    def begin(self, text: Sequence[int]) -> None:
        """A text shorter than the last one looked up drops the keys behind the last begin."""
        size = len(text)
        if size < self._checked:
            self._drop_from(self._stale_from(size))
        self._checked = self._begun = size
        self._last = None
        self._by_gram.clear()
        for key in self._keys:
            self._by_gram.setdefault(self._gram(text, key.start), key)

    def propose(self, index: NgramIndex) -> tuple[int, ...]:
        """The draft for the text of `index`; its last token is the one just sampled."""
        self._last = None
        n, m = self._settings.size_n, self._settings.size_m
        text, known = index.text, len(index.text) - 1
        if known < 2 * n + m or known < self._begun:
            return ()
        self._checked = known
        match = self._find(text, known)
        self._fill_table(text, known)
        if not match:
            return ()
        gram = self._gram(text, len(text) - n)
        key = self._by_gram.get(gram)
        if key is None:
            key = self._by_gram[gram] = _Key(match, m)
            self._keys.append(key)
        key.hits = min(key.hits + 1, _MOST)
        chosen = self._choose(key, match, index) if self.values else key
        if chosen is None:
            return ()
        self._last = chosen
        return tuple(text[match + n : match + n + min(m, chosen.accepted)])

    def accept(self, accepted: int) -> None:
        """So much of the last draft stood."""
        if self._last is not None:
            self._last.accepted = accepted

    def _find(self, text: Sequence[int], known: int) -> int:
        """Start of an earlier occurrence, 0 for none."""
        n, m = self._settings.size_n, self._settings.size_m
        gram, end = list(text[-n:]), known - n - m - 1
        at = self._table.get(self._slot(gram), 0)
        if 0 < at < end and text[at : at + n] == gram:
            return at
        spans = [(end, max(self._begun, self._in_table))]
        if self._begun > n + m + 1:
            spans.insert(0, (self._begun - n - m - 1, self._in_table))
        for high, low in spans:
            for at in range(high, low, -1):
                if text[at] == gram[0] and text[at : at + n] == gram:
                    return at
        return 0

    def _fill_table(self, text: Sequence[int], known: int) -> None:
        n, m = self._settings.size_n, self._settings.size_m
        end = known - n - m - 1
        starts = list(range(end, max(self._begun, self._in_table), -1))
        if self._begun > n + m + 1:
            starts = [*range(self._begun - n - m - 1, self._in_table, -1), *starts]
        for at in starts:
            self._table.setdefault(self._slot(text[at : at + n]), at)
        self._in_table = max(end, self._in_table)

    def _choose(self, key: _Key, match: int, index: NgramIndex) -> _Value | None:
        """Count the key's values up to `match`; the dominant one, if there is one."""
        if key.hits < self._settings.min_hits:
            return None
        n = self._settings.size_n
        starts: list[int] = []
        at = index.previous(len(index.text) - n)
        while at >= key.counted:
            if at <= match:
                starts.append(at)
            at = index.previous(at) if at else -1
        for start in reversed(starts):
            self._count(key, start + n, index.text)
        key.counted = match
        best = max(
            key.values, key=lambda value: value.seen
        )  # never empty: `match` was counted once
        others = sum(value.seen for value in key.values) - best.seen
        return best if best.seen >= 2 * others else None

    def _count(self, key: _Key, start: int, text: Sequence[int]) -> None:
        m = self._settings.size_m
        said = text[start : start + m]
        for value in key.values:
            if text[value.start : value.start + m] == said:
                break
        else:
            if len(key.values) == _VALUES:
                return
            value = _Value(start, m)
            key.values.append(value)
        value.seen = min(value.seen + 1, _MOST)

    def _stale_from(self, size: int) -> int:
        """Positions from here on no longer hold."""
        reach = self._settings.size_n + self._settings.size_m
        return self._begun if self._begun <= size else max(0, size - reach)

    def _drop_from(self, stale: int) -> None:
        self._table = {slot: at for slot, at in self._table.items() if at < stale}
        self._in_table = max(0, stale - 1)
        self._keys = [key for key in self._keys if key.start < stale]
        if self.values:
            for key in self._keys:
                key.values = [value for value in key.values if value.start < stale]
            self._keys = [key for key in self._keys if key.values]

    def _gram(self, text: Sequence[int], start: int) -> tuple[int, ...]:
        return tuple(text[start : start + self._settings.size_n])

    def _slot(self, gram: Sequence[int]) -> int:
        slot = 0
        for token in gram:
            slot = (slot * _FACTOR + token) % _TABLE
        return slot
