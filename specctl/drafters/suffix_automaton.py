"""All substrings of a growing token list, how often each occurred and where last.

The suffix automaton of Blumer et al. 1985 (The smallest automaton recognizing the subwords of a
text), on line. A state stands for substrings that end at the same places; its suffix link leads to
the longest shorter one that ends at more. So the longest suffix of the text that also occurs
earlier is the suffix link of the last state, at no cost.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

ROOT = 0
MANY = 64  # counts stop here


class SuffixAutomaton:
    """Append tokens, then ask states. Amortised O(1) states a token, at most 2 per token.

    `count(state)` is min(MANY, number of occurrences), exactly; `last(state)` is where the latest
    one ends, exact as long as the count is below MANY. Keeping them takes at most MANY steps a
    token: along the suffix links occurrences grow strictly, and the first state with MANY of them
    ends the walk. Memory, measured: 110 bytes a token in ordinary text, 330 at worst (two tokens in
    random order).

    A barrier is a token that equals nothing, not even another barrier: no match crosses it.
    """

    def __init__(self) -> None:
        self.text = array("q")  # negative numbers are barriers
        self.state = ROOT  # of the whole text
        self._barriers = 0
        self._length = array("i", [0])
        self._link = array("i", [-1])
        self._count = array("b", [MANY])
        self._last = array("i", [-1])
        # Most states have one transition; only those with more get a table.
        self._token = array("q", [0])
        self._target = array("i", [-1])
        self._tables: dict[int, dict[int, int]] = {}

    def append(self, token: int) -> None:
        """`token` ≥ 0 follows."""
        at = len(self.text)
        self.text.append(token)
        before, new = self.state, self._new(self._length[self.state] + 1, 1, at)
        while before >= 0 and self.step(before, token) < 0:
            self._connect(before, token, new)
            before = self._link[before]
        if before < 0:
            self._link[new] = ROOT
        else:
            self._link[new] = self._split(before, token, self.step(before, token))
        self.state = new
        self._occurred(self._link[new], at)

    def barrier(self) -> None:
        """What follows has nothing to do with what went before."""
        self._barriers += 1
        self.append(-self._barriers)

    def step(self, state: int, token: int) -> int:
        """The state after `token`, -1 where it never followed."""
        if self._target[state] >= 0:
            return self._target[state] if self._token[state] == token else -1
        table = self._tables.get(state)
        return -1 if table is None else table.get(token, -1)

    def steps(self, state: int) -> Iterator[tuple[int, int]]:
        """(token, state) for everything that ever followed, first seen first; barriers too."""
        if self._target[state] >= 0:
            return iter(((self._token[state], self._target[state]),))
        return iter(self._tables.get(state, {}).items())

    def link(self, state: int) -> int:
        """The longest shorter context that occurred more often."""
        return self._link[state]

    def length(self, state: int) -> int:
        """Tokens of the state's longest substring."""
        return self._length[state]

    def count(self, state: int) -> int:
        """How often the state's substrings occurred, at most MANY."""
        return self._count[state]

    def last(self, state: int) -> int:
        """Index in `text` of the last token of the latest occurrence."""
        return self._last[state]

    def after(self, state: int) -> Iterator[int]:
        """What followed the latest occurrence, up to a barrier or the end of the text."""
        for at in range(self._last[state] + 1, len(self.text)):
            token = self.text[at]
            if token < 0:
                return
            yield token

    def __len__(self) -> int:
        """Number of states."""
        return len(self._length)

    def _new(self, length: int, count: int, last: int) -> int:
        self._length.append(length)
        self._link.append(ROOT)
        self._count.append(count)
        self._last.append(last)
        self._token.append(0)
        self._target.append(-1)
        return len(self._length) - 1

    def _connect(self, state: int, token: int, target: int) -> None:
        table = self._tables.get(state)
        if table is not None:
            table[token] = target
        elif self._target[state] < 0 or self._token[state] == token:
            self._token[state], self._target[state] = token, target
        else:
            self._tables[state] = {self._token[state]: self._target[state], token: target}
            self._target[state] = -1

    def _split(self, before: int, token: int, state: int) -> int:
        """The state whose longest substring is that of `before` and `token`."""
        length = self._length[before] + 1
        if self._length[state] == length:
            return state
        clone = self._new(length, self._count[state], self._last[state])
        self._link[clone] = self._link[state]
        self._token[clone], self._target[clone] = self._token[state], self._target[state]
        if state in self._tables:
            self._tables[clone] = dict(self._tables[state])
        self._link[state] = clone
        while before >= 0 and self.step(before, token) == state:
            self._connect(before, token, clone)
            before = self._link[before]
        return clone

    def _occurred(self, state: int, at: int) -> None:
        count, last, link = self._count, self._last, self._link
        while count[state] < MANY:
            count[state] += 1
            last[state] = at
            state = link[state]
