"""`auto`: per cycle, which drafter, how many tokens, or none, by expected tokens per second.

Costs are counted in plain steps (t_1 = 1), gains in tokens. A draft of k tokens costs
C(k) = t_d(k) + T(k + 1) and is expected to bring E(k) = 1 + Σ_{i≤k} P_i tokens, P_i being the
chance that its first i tokens are all accepted. Plain decoding is k = 0: C = 1, E = 1.

The best k maximises what it is expected to win over plain decoding,

    E(k) - 1 - rate · (C(k) - 1) - CAUTION · Var(k) / (2 · capital) - MARGIN,

and is drafted where that is above 0. `rate` is what time is worth: what this run earns per plain
step lately, at least 1, for time spent in one cycle is not spent earning in another (renewal
reward); the root of it, because tokens that one draft leaves out are mostly drafted by the next.
`capital` is what the run may lose: STAKE, INCOME per token, and what its drafts have won so far.
No draft may cost more than DARE times that (but for a single token after a long time without any,
while something is left), so that no text is much slower than plain decoding; and the variance of
what a draft brings is charged as in a bet that lets the capital grow steadily (Kelly 1956, to
second order): a run that has won nothing yet drafts a few tokens where they are likely, one that
copies well drafts far. Everything looked at is known before the tokens of a sampled draft are
drawn; those that were drawn are verified.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specctl.drafters.base import Draft, Needs, Outcome, TargetPass
from specctl.drafters.costs import CostCurve
from specctl.drafters.model_source import ModelSource
from specctl.drafters.suffix import NgramSuffix
from specctl.enginefacts import AUTO_K_MAX
from specctl.events import Decision
from specctl.settings import Sampling

NAME = "auto"
K_MAX = AUTO_K_MAX
PATH_FLOOR = 0.04  # of the product of confidences: what lies below is not worth a look
MARGIN = 0.05  # tokens that a draft must be expected to win: plain decoding is the safe choice
STAKE = 2.0  # plain steps that a run may lose
INCOME = 0.01  # and so many per token of its answer
DARE = 2.0  # a draft may cost so many times the capital
MOST_CAPITAL = 8.0  # what was won long ago does not make bold
CAUTION = 0.7  # relative risk aversion; 1 lets the logarithm of the capital grow fastest
_LEAST = 0.01  # capital below this counts as so much
RETRY_FIRST, RETRY_LAST = 12, 96  # cycles without a draft, after which costs are measured again
_RETRY_CHANCE, _RETRY_TOKENS = 0.5, 2  # by a token or two that are likely to stand
_RETRY_SOON = 3  # once a retry was much cheaper than expected
_RATE_MEMORY = 0.95  # per cycle: the last twenty or so make the rate
_MOST_RATE = 3.0


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to spend a cycle: `gain` tokens beyond the target's own for `cost` plain steps.

    `spread` is the variance of the gain. `suffix` tokens of the suffix path, then about `model` of
    the draft model; none is plain.
    """

    gain: float
    cost: float
    spread: float = 0.0
    suffix: int = 0
    model: int = 0


PLAIN = Offer(0.0, 1.0)


class Auto:
    """Chooses between the suffix drafter, a draft model if there is one, both, and neither.

    The suffix path keeps learning whoever drafts. The draft model is asked token by token and stops
    when the next one is not expected to pay; while it is off it is tried again at growing
    intervals. So is the suffix path, by a few tokens that are likely to stand, for costs that were
    measured in a slow moment would keep it off forever. `costs` outlives the drafter: it is about
    the machine, not the text.
    """

    def __init__(
        self, suffix: NgramSuffix, model: ModelSource | None, costs: CostCurve, k_max: int = K_MAX
    ) -> None:
        self._suffix = suffix
        self._model = model
        self._costs = costs
        self._k_max = k_max
        self._t_1 = 0.0  # seconds; 0 until the engine has measured it
        self._drafting = 0.0  # seconds of this cycle's propose
        self._risk = 0.0  # plain steps that its draft was expected to cost
        self._earned = self._spent = 1.0  # tokens and plain steps, lately
        self._rate = 1.0
        self._capital = STAKE  # plain steps that this run may still lose
        self._probing = False  # the draft model is tried
        self._retrying = False  # the suffix path is
        self._idle = 0  # cycles since something was drafted
        self._retry_after = RETRY_FIRST

    @property
    def name(self) -> str:
        """The spec type."""
        return NAME

    @property
    def needs(self) -> Needs:
        """What its members need."""
        return Needs(
            k_max=self._k_max,
            draft_model=self._model is not None,
            gives_laws=self._model is not None and self._model.gives_laws,
        )

    @property
    def capital(self) -> float:
        """Plain steps that this run may still lose against plain decoding."""
        return self._capital

    def begin(self, tokens: Sequence[int], sampling: Sampling) -> None:
        """A new generation, for all."""
        self._suffix.begin(tokens, sampling)
        if self._model is not None:
            self._model.begin(tokens, sampling)
        self._earned = self._spent = 1.0
        self._capital = STAKE
        self._rate = 1.0

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """The best offer's draft, with the decision and its reason."""
        start = time.perf_counter()
        limit = min(limit, self._k_max, self._costs.trusted_rows - 1)
        path = self._suffix.propose(tokens, limit)
        best = self._best(path, tokens, limit)
        self._probing = False
        chosen = best if best is not PLAIN and self._value(best) > 0 else PLAIN
        if chosen is PLAIN and self._may_probe(tokens):
            chosen, self._probing = Offer(0.0, best.cost, model=1), True
        elif chosen is PLAIN:
            chosen = self._retry(path)
        draft = path
        if chosen.suffix < len(path.tokens):
            likely = (path.confidences or ())[: chosen.suffix]
            draft = Draft(path.tokens[: chosen.suffix], path.source, None, likely, path.detail)
        asked: tuple[str, ...] = (self._suffix.name,)
        if chosen.model and self._model is not None:
            asked = (*asked, self._model.name)
            draft = self._model.extend(draft, tokens, self._most(draft, tokens, limit), self._pays)
        self._drafting = time.perf_counter() - start
        self._risk = self._costs.ratio(len(draft.tokens) + 1) - 1.0
        if chosen.model and self._t_1:
            self._risk += self._drafting / self._t_1
        decision = self._decision(draft, best)
        if not draft:
            return Draft((), NAME, asked=asked, decision=decision)
        return replace(draft, asked=asked, decision=decision)

    def observe(self, target_pass: TargetPass) -> None:
        """For the members."""
        self._suffix.observe(target_pass)

    def settle(self, outcome: Outcome) -> None:
        """Learn costs and chances, whoever drafted."""
        drafted = len(outcome.draft.tokens)
        if outcome.t_1:
            self._t_1 = outcome.t_1
            ratio = outcome.seconds / outcome.t_1
            if self._retrying:
                expected = self._costs.ratio(drafted + 1)
                self._risk = max(0.0, min(self._risk, ratio - 1.0))  # what it was feared to cost
                self._retried(expected, ratio, paid=outcome.accepted + 1 >= ratio)
            if drafted:
                self._costs.learn(drafted + 1, ratio)
            self._capital += outcome.accepted - self._risk + INCOME * len(outcome.emitted)
            self._capital = min(self._capital, MOST_CAPITAL)
            self._risk = 0.0
            self._earned = _RATE_MEMORY * self._earned + len(outcome.emitted)
            self._spent = _RATE_MEMORY * self._spent + ratio + self._drafting / outcome.t_1
            self._rate = min(max(1.0, self._earned / self._spent), _MOST_RATE) ** 0.5
        self._drafting = 0.0
        self._idle = 0 if drafted else self._idle + 1
        self._suffix.settle(outcome)
        if self._model is not None:
            self._model.settle(outcome)
            if self._probing:
                self._model.probed(paid=outcome.accepted > 0)
        self._probing = False

    def close(self) -> None:
        """Close the members."""
        self._suffix.close()
        if self._model is not None:
            self._model.close()

    def _may_probe(self, tokens: Sequence[int]) -> bool:
        """Is it time to try the draft model again, and does the capital allow it?"""
        if self._model is None or not self._model.wants_probe or not self._t_1:
            return False
        cost = self._model.first_cost(self._model.unread(tokens), self._t_1)
        return self._affordable(cost + self._costs.ratio(2))

    def _most(self, draft: Draft, tokens: Sequence[int], limit: int) -> int:
        """The longest draft on the way from `draft` that the capital allows; one token to probe."""
        assert self._model is not None
        if self._probing:
            return 1
        most = len(draft.tokens) + 1
        drafting = self._model.first_cost(self._model.unread(tokens) + len(draft.tokens), self._t_1)
        while most < limit and self._affordable(drafting + self._costs.ratio(most + 1)):
            drafting += self._model.step_cost(self._t_1)
            most += 1
        return most

    def _retry(self, path: Draft) -> Offer:
        """A short, likely draft after a long time without any; plain else."""
        self._retrying = False
        if self._idle < self._retry_after:
            return PLAIN
        gain, chance, k = 0.0, 1.0, 0
        for confidence in (path.confidences or ())[:_RETRY_TOKENS]:
            chance *= confidence
            # one token whatever it is believed to cost: that belief is what is to be tried
            allowed = self._affordable(self._costs.ratio(k + 2)) if k else self._capital > 0
            if chance < _RETRY_CHANCE or not allowed:
                break
            gain, k = gain + chance, k + 1
        self._retrying = k > 0
        return Offer(gain, self._costs.ratio(k + 1), suffix=k) if k else PLAIN

    def _retried(self, expected: float, ratio: float, paid: bool) -> None:
        """After a retry: very soon again if it was cheap, soon if it paid, else twice as late."""
        if ratio < 0.75 * expected:
            self._retry_after = _RETRY_SOON
        else:
            self._retry_after = RETRY_FIRST if paid else min(RETRY_LAST, 2 * self._retry_after)
        self._retrying = False

    def _needed(self, cost: float, spread: float) -> float:
        """Accepted tokens from which a draft of this cost and variance is worth it."""
        caution = CAUTION * spread / (2.0 * max(self._capital, _LEAST))
        return self._rate * (cost - 1.0) + caution + MARGIN

    def _value(self, offer: Offer) -> float:
        return offer.gain - self._needed(offer.cost, offer.spread)

    def _affordable(self, cost: float) -> bool:
        return cost - 1.0 <= DARE * self._capital

    def _best(self, path: Draft, tokens: Sequence[int], limit: int) -> Offer:
        """The best offer that is not plain; plain itself where there is none."""
        best, chance = self._best_of_path(path)
        if self._model is None or not self._t_1:
            return best
        offers = [best, self._with_model(PLAIN, 1.0, tokens, limit)]
        if best.suffix and self._model.goes_on:
            offers.append(self._with_model(best, chance, tokens, limit))
        return max(
            (offer for offer in offers if offer is not PLAIN), key=self._value, default=PLAIN
        )

    def _best_of_path(self, path: Draft) -> tuple[Offer, float]:
        """The best length of the suffix path, and the chance that all of it is accepted."""
        best: tuple[float, float, float, int] | None = None
        best_value, best_chance = float("-inf"), 1.0
        gain = square = 0.0
        chance = 1.0
        for k, confidence in enumerate(path.confidences or (), 1):
            cost = self._costs.ratio(k + 1)
            if not self._affordable(cost):
                break
            chance *= confidence
            gain += chance
            square += (2 * k - 1) * chance  # E of the square: accepted ≥ k adds k² - (k - 1)²
            spread = square - gain * gain
            value = gain - self._needed(cost, spread)
            if value > best_value:
                best, best_value, best_chance = (gain, cost, spread, k), value, chance
        return PLAIN if best is None else Offer(*best), best_chance

    def _with_model(self, base: Offer, chance: float, tokens: Sequence[int], limit: int) -> Offer:
        """`base` with the number of model tokens after it that is worth most."""
        assert self._model is not None
        best, best_value = PLAIN, float("-inf")
        gain, square = base.gain, base.spread + base.gain * base.gain
        unread = self._model.unread(tokens) + base.suffix
        drafting = self._model.entry_cost(unread, self._t_1)
        for j in range(1, limit - base.suffix + 1):
            k = base.suffix + j
            cost = drafting + self._costs.ratio(k + 1)
            if not self._affordable(cost):
                break
            chance *= self._model.chance
            gain += chance
            square += (2 * k - 1) * chance
            offer = Offer(gain, cost, square - gain * gain, base.suffix, j)
            value = self._value(offer)
            if value <= best_value:
                break
            best, best_value = offer, value
            drafting += self._model.step_cost(self._t_1)
        return best

    def _pays(self, k: int, chance: float, drafted: bool) -> bool:
        """Is a k-th token worth its row (and the model's step, where that is still to be done)?"""
        if self._probing and k == 1:
            return True
        assert self._model is not None
        cost = self._costs.ratio(k + 1) - self._costs.ratio(k)
        if not drafted:
            cost += self._model.step_cost(self._t_1)
        return chance > self._rate * cost

    def _decision(self, draft: Draft, best: Offer) -> Decision:
        """In words, with accepted per cycle expected and needed."""
        if self._probing:
            return Decision("draft" if draft else "plain", "trying the draft model again")
        if self._retrying:
            return Decision("draft", "trying again: what does a draft cost now?")
        if draft:
            gain = square = 0.0
            chance = 1.0
            for k, confidence in enumerate(draft.confidences or (), 1):
                chance *= confidence
                gain += chance
                square += (2 * k - 1) * chance
            needed = self._needed(1.0 + self._risk, square - gain * gain)
            what = f"{draft.source} {draft.detail}".strip()
            reason = f"{what}: needs {needed:.2f} accepted per cycle, expects {gain:.2f}"
            return Decision("draft", reason, gain, needed)
        if best is not PLAIN:
            needed = self._needed(best.cost, best.spread)
            reason = f"off: needs {needed:.2f} accepted per cycle, would get {best.gain:.2f}"
            return Decision("plain", reason, best.gain, needed)
        if not self._affordable(self._costs.ratio(2)):
            return Decision("plain", "off: drafts have lost what this answer may lose by them")
        return Decision("plain", "off: nothing to propose")
