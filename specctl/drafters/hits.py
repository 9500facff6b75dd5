"""How often look-ups of one kind turn out right, learned while the text runs."""

from __future__ import annotations

from bisect import bisect_right
from math import exp, log

# A cell is a match-length bucket and how the occurrences agree. Buckets begin at these lengths.
BUCKETS = (1, 2, 3, 4, 6, 9, 17, 33)
SINGLE, UNANIMOUS, MAJORITY, SPLIT = range(4)
# Chance that the next token is right before anything was seen. By length for one occurrence; more
# that all agree are worth more, more that do not agree less (factors on the odds).
_PRIOR = (0.20, 0.38, 0.52, 0.64, 0.75, 0.85, 0.93, 0.97)
_ODDS = (1.0, 2.0, 1.0, 0.4)
_WEIGHT = 6.0  # the prior counts as so many trials
_FORGET = 0.97  # per trial of the same cell: the last thirty or so count
_RATE = 0.15  # step of the shift common to all cells
_SHIFT = 2.5  # its largest size, in log-odds

_FIRST_CELL = [max(0, bisect_right(BUCKETS, length) - 1) * 4 for length in range(BUCKETS[-1] + 1)]


def cell(length: int, agreement: int) -> int:
    """The cell of a match of `length` ≥ 1 tokens."""
    return _FIRST_CELL[min(length, BUCKETS[-1])] + agreement


class Hits:
    """Per cell the share of right guesses: recent trials, and a prior for want of them.

    The priors of all cells move together by one shift (log-odds), learned from every trial: in a
    text where matches are worthless all of them soon are.
    """

    def __init__(self) -> None:
        self._priors = [log(prior / (1 - prior)) + log(odds) for prior in _PRIOR for odds in _ODDS]
        self._trials = [0.0] * len(self._priors)
        self._right = [0.0] * len(self._priors)
        self._shift = 0.0
        self._chances: dict[int, float] = {}  # as of the last trial

    def chance(self, at: int) -> float:
        """Estimated probability that a guess of this cell is right, strictly within 0 … 1."""
        known = self._chances.get(at)
        if known is None:
            prior = 1 / (1 + exp(-self._priors[at] - self._shift))
            known = (_WEIGHT * prior + self._right[at]) / (_WEIGHT + self._trials[at])
            self._chances[at] = known
        return known

    def learn(self, at: int, right: bool) -> None:
        """One trial."""
        missed = right - self.chance(at)
        self._shift = max(-_SHIFT, min(_SHIFT, self._shift + _RATE * missed))
        self._trials[at] = _FORGET * self._trials[at] + 1
        self._right[at] = _FORGET * self._right[at] + right
        self._chances.clear()
