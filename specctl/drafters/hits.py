"""How often look-ups of one kind turn out right, learned while the text runs.

What is held before a text has shown anything was measured: greedy answers of SmolLM2-135M and
Qwen2.5-Coder-1.5B (Q4_K_M) to the 41 prompts of specctl/bench/prompts, the most likely next token
at every position, no text counted more than ten times in a cell; cells with few trials are smoothed
by hand. On other prompts (benchmarks/prompts/mixed.jsonl) the log loss of the chances that come of
it is 0.29 (SmolLM2) and 0.44 (Qwen) a trial; by match length alone it was 0.31 and 0.48.
"""

from __future__ import annotations

from bisect import bisect_right
from math import exp, log

# A cell is a match-length bucket and how the occurrences agree. Buckets begin at these lengths.
BUCKETS = (1, 2, 3, 4, 6, 9, 17, 33)
# ALONE: one occurrence, and no shorter context knows more. AGREED: several occurrences, or those of
# the next shorter context, that all or nearly all agree. DISPUTED: one occurrence, those of the
# shorter context went on otherwise. MAJORITY, SPLIT: several that do not agree.
ALONE, AGREED, DISPUTED, MAJORITY, SPLIT = range(5)
AGREEMENTS = 5
# Chance that the next token is right before anything was seen, measured (see the module's
# docstring); a row per bucket, a column per agreement.
_PRIOR = (
    (0.31, 0.56, 0.40, 0.22, 0.14),
    (0.64, 0.88, 0.43, 0.18, 0.14),
    (0.74, 0.84, 0.53, 0.35, 0.25),
    (0.83, 0.92, 0.70, 0.40, 0.30),
    (0.85, 0.94, 0.76, 0.60, 0.35),
    (0.91, 0.98, 0.85, 0.70, 0.40),
    (0.94, 0.99, 0.90, 0.75, 0.50),
    (0.97, 0.99, 0.96, 0.90, 0.70),
)
_WEIGHT = 10.0  # the prior counts as so many trials
_FORGET = 0.95  # per trial of the same cell: the last twenty or so count
_RATE = 0.15  # step of the shift common to all cells
_SHIFT = 2.5  # its largest size, in log-odds

_FIRST_CELL = [
    max(0, bisect_right(BUCKETS, length) - 1) * AGREEMENTS for length in range(BUCKETS[-1] + 1)
]


def cell(length: int, agreement: int) -> int:
    """The cell of a match of `length` ≥ 1 tokens."""
    return _FIRST_CELL[min(length, BUCKETS[-1])] + agreement


class Hits:
    """Per cell the share of right guesses: recent trials, and a prior for want of them.

    The priors of all cells move together by one shift (log-odds), learned from every trial: in a
    text where matches are worthless all of them soon are.
    """

    def __init__(self) -> None:
        self._priors = [log(prior / (1 - prior)) for row in _PRIOR for prior in row]
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
