"""A draft model as `auto` uses it: asked for tokens until the next one does not pay."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

from specctl.drafters.base import Draft, Outcome
from specctl.drafters.costs import CostCurve
from specctl.drafters.small_model import ModelDrafter
from specctl.sampling import Law
from specctl.settings import Sampling

_EDGES = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)  # buckets of the draft's own probability
_PRIOR = (0.15, 0.3, 0.4, 0.5, 0.6, 0.75, 0.88, 0.95)
_PRIOR_WEIGHT = 5.0
_FORGET = 0.98
_FIRST_CHANCE = 0.6  # of a token to be accepted, before anything is known
_SMOOTH = 0.08
_STEP_GUESS = 0.3  # of a target step
_PROBE_FIRST, _PROBE_LAST = 16, 128  # cycles between probes while it is off
_CATCH_UP = 8  # cycles that share the cost of reading what others drafted for the draft model


class ModelSource:
    """Chances, costs and probes of a `ModelDrafter`. Times in seconds, or in target steps of t_1.

    `goes_on`: it can draft behind tokens that the target has not read.
    """

    goes_on = True
    _looks_first = False  # the next token is there already: looking at it costs nothing

    def __init__(self, model: ModelDrafter, costs: CostCurve) -> None:
        self._model = model
        self._costs = costs  # of the draft's own passes, by tokens read at once
        self._step = 0.0  # seconds of one draft step
        self._trials = [0.0] * len(_PRIOR)
        self._right = [0.0] * len(_PRIOR)
        self._chance = _FIRST_CHANCE  # of the next token, whatever it is
        self._at: list[int] = []  # bucket of each token it drafted in this cycle
        self._offset = 0  # tokens of the draft that came from elsewhere
        self._idle = 0
        self._probe_after = _PROBE_FIRST

    @property
    def name(self) -> str:
        """The drafter's spec type."""
        return self._model.name

    @property
    def gives_laws(self) -> bool:
        """Are its drafts sampled?"""
        return self._model.needs.gives_laws

    def begin(self, tokens: Sequence[int], sampling: Sampling) -> None:
        """A new generation."""
        self._model.begin(tokens, sampling)
        self._at = []

    def step_cost(self, t_1: float) -> float:
        """One draft step in target steps."""
        return self._step / t_1 if self._step else _STEP_GUESS

    def first_cost(self, unread: int, t_1: float) -> float:
        """The first step, which also reads `unread` ≥ 1 tokens, in target steps."""
        return self.step_cost(t_1) * self._costs.ratio(max(1, unread))

    def entry_cost(self, unread: int, t_1: float) -> float:
        """What a draft costs besides its further steps: what others drafted is read once, and the
        cycles that follow share that.
        """
        step = self.step_cost(t_1)
        return step + (self.first_cost(unread, t_1) - step) / _CATCH_UP

    def unread(self, tokens: Sequence[int]) -> int:
        """Tokens its memory is behind."""
        return self._model.unread(tokens)

    @property
    def chance(self) -> float:
        """Estimate that its next token will be accepted."""
        return self._chance

    @property
    def wants_probe(self) -> bool:
        """Was it off for so long that it should be tried?"""
        return self._idle >= self._probe_after

    def extend(
        self,
        draft: Draft,
        tokens: Sequence[int],
        limit: int,
        pays: Callable[[int, float, bool], bool],
    ) -> Draft:
        """`draft` with tokens of the model after it.

        `pays(k, p, drafted)`: is the k-th token of the draft worth it, if all up to it are accepted
        with chance `p`? `drafted` False asks before the model's step, True once it is done. A token
        that has a law was drawn and stays, whatever the answer.
        """
        self._offset = len(draft.tokens)
        chance = 1.0
        for confidence in draft.confidences or ():
            chance *= confidence
        drafted, confidences = list(draft.tokens), list(draft.confidences or ())
        laws: list[Law | None] = [None] * len(drafted)  # what it goes on from was looked up
        self._at = []
        behind = self.unread(tokens) + len(drafted)
        start = time.perf_counter()
        for token, law, own in self._model.steps([*tokens, *drafted], confident=True):
            self._timed(time.perf_counter() - start, behind if not self._at else 1)
            at = bisect_right(_EDGES, own)
            guess = self._reliability(at)
            self._chance += _SMOOTH * (guess - self._chance)
            if law is None and not pays(len(drafted) + 1, chance * guess, True):
                break
            chance *= guess
            drafted.append(token)
            confidences.append(guess)
            self._at.append(at)
            laws.append(law)
            more = len(drafted) < limit
            looks = self._looks_first and law is None
            if not more or not (looks or pays(len(drafted) + 1, chance * self._chance, False)):
                break
            start = time.perf_counter()
        self._idle = 0
        source = self.name if not draft else f"{draft.source}+{self.name}"
        if len(drafted) == self._offset:
            return draft
        return replace(
            draft,
            tokens=tuple(drafted),
            source=source,
            confidences=tuple(confidences),
            laws=tuple(laws) if any(each is not None for each in laws) else None,
        )

    def settle(self, outcome: Outcome) -> None:
        """Learn which of its tokens stood; what comes after a rejection stays unknown."""
        self._model.settle(outcome)
        if not self._at:
            self._idle += 1
            return
        for index, at in enumerate(self._at, self._offset):
            if index > outcome.accepted:
                break
            right = index < outcome.accepted
            self._trials[at] = _FORGET * self._trials[at] + 1
            self._right[at] = _FORGET * self._right[at] + right
        self._at = []

    def probed(self, paid: bool) -> None:
        """After a probe: soon again if it would have paid, else twice as late."""
        self._probe_after = _PROBE_FIRST if paid else min(_PROBE_LAST, 2 * self._probe_after)

    def close(self) -> None:
        """For the drafter."""
        self._model.close()

    def _reliability(self, at: int) -> float:
        return (_PRIOR_WEIGHT * _PRIOR[at] + self._right[at]) / (_PRIOR_WEIGHT + self._trials[at])

    def _timed(self, seconds: float, read: int) -> None:
        if read > 1 and self._step:
            self._costs.learn(read, seconds / self._step)
        elif read == 1:
            self._step += (_SMOOTH if self._step else 1.0) * (seconds - self._step)
        elif not self._step:
            self._step = seconds / self._costs.ratio(read)


class BlockSource(ModelSource):
    """One that guesses a whole block in one pass: t_d(k) is the same for every k."""

    goes_on = False
    _looks_first = True

    def __init__(self, model: ModelDrafter, costs: CostCurve) -> None:
        super().__init__(model, costs)
        self._look = 0.0  # seconds of taking one more token from the block

    def step_cost(self, t_1: float) -> float:
        """One more token of a block, in target steps."""
        return self._look / t_1

    def first_cost(self, unread: int, t_1: float) -> float:
        """The pass, whatever it reads before, in target steps."""
        return self._step / t_1 if self._step else _STEP_GUESS

    def entry_cost(self, unread: int, t_1: float) -> float:
        """The pass: each draft pays it alone."""
        return self.first_cost(unread, t_1)

    def _timed(self, seconds: float, read: int) -> None:
        if self._at:
            self._look += _SMOOTH * (seconds - self._look)
        else:
            self._step += (_SMOOTH if self._step else 1.0) * (seconds - self._step)
