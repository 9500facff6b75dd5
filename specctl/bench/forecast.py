"""Does a draft model pay on these texts, at these costs? Nothing is drafted to find out.

The target's own greedy texts are given; the draft reads the same tokens and its choice at every
position is compared with what follows. Up to its first wrong token a greedy draft stands on exactly
that text, so these matches say what any draft length would have had accepted:

    β        share of positions where the draft's choice is the target's
    a(k)     accepted per cycle: the texts gone through in cycles of k drafted tokens, each a prefix
             of matches and then the target's own token; a cycle that would run past the end of a
             text says nothing of its end and is left out
    α(k)     a(k) / k; for independent matches this is `plan.speed.acceptance_rate(β, k)`
    C(k)     what such a cycle costs, `bench.costs`; the share of drafts accepted whole included
    ≈ ×      (1 + a(k)) · t_1 / C(k), with K* by `plan.speed.best_k`
    ±        of the costs alone: half the 95 % interval over the rounds of the same figure, as
             `bench.report` has it of repeats, never below 2 %

An estimate: of these prompts, greedy, at the context length at which costs were measured, without
the loop's own time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specctl.bench.costs import MeasuredCosts
from specctl.bench.report import ONE_RUN_BAND, Verdict, repeat_noise, verdict
from specctl.errors import UsageError
from specctl.plan.speed import best_k

K_MAX = 8
Matches = Mapping[str, Sequence[bool]]  # prompt key → one flag for each token of its answer


@dataclass(frozen=True, slots=True)
class Replay:
    """Texts gone through in cycles of one draft length: counts."""

    passes: int = 0
    accepted: int = 0
    whole: int = 0  # drafts accepted to the end

    def __add__(self, other: Replay) -> Replay:
        return Replay(
            self.passes + other.passes, self.accepted + other.accepted, self.whole + other.whole
        )

    @property
    def per_cycle(self) -> float:
        """a(k)."""
        return self.accepted / self.passes

    @property
    def whole_share(self) -> float:
        """Of the drafts, those accepted to the end."""
        return self.whole / self.passes


def replay(matches: Sequence[bool], k: int) -> Replay:
    """One text in cycles of `k` ≥ 1 drafted tokens."""
    at = passes = accepted = whole = 0
    while at + k < len(matches):
        right = next((i for i in range(k) if not matches[at + i]), k)
        at += right + 1
        passes += 1
        accepted += right
        whole += right == k
    return Replay(passes, accepted, whole)


@dataclass(frozen=True, slots=True)
class AtK:
    """What is to be expected of drafts of k tokens. `low`, `high`: the speed-up by prompt."""

    k: int
    accepted: float
    whole: float
    break_even: float
    cycle_seconds: float
    speedup: float
    noise: float
    low: float
    high: float

    @property
    def alpha(self) -> float:
        """α at this length."""
        return self.accepted / self.k

    @property
    def verdict(self) -> Verdict:
        """Against plain decoding, beyond the noise of the costs."""
        return verdict(self.speedup, self.noise)


@dataclass(frozen=True, slots=True)
class Forecast:
    """One draft on these texts. `best` is the draft length with the largest speed-up, even below 1;
    `k_star` the best choice, 0 where that is plain decoding.
    """

    positions: int
    beta: float
    costs: MeasuredCosts
    lengths: tuple[AtK, ...]
    k_star: int

    @property
    def best(self) -> AtK:
        """The most that drafting gives."""
        return max(self.lengths, key=lambda one: one.speedup)

    @property
    def pays(self) -> bool:
        """Faster than plain decoding, beyond the noise."""
        return self.k_star > 0 and self.best.verdict == "faster"


def forecast(texts: Matches, costs: MeasuredCosts, ks: Sequence[int]) -> Forecast:
    """The estimate for every draft length in `ks`, of all texts together.

    Raises:
        UsageError: no text is long enough for any of them.
    """
    positions = sum(map(len, texts.values()))
    replays = {k: {key: replay(one, k) for key, one in texts.items()} for k in sorted(set(ks))}
    lengths = tuple(
        _at(k, [one for one in by_text.values() if one.passes], costs)
        for k, by_text in replays.items()
        if any(one.passes for one in by_text.values())
    )
    if not lengths:
        raise UsageError(
            f"{positions} tokens of answers are too few to tell what a draft would bring",
            "more --max-tokens, or prompts with longer answers",
        )
    by_k = {one.k: one for one in lengths}

    def accepted(k: int) -> float:
        return by_k[k].accepted if k in by_k else -1.0  # not asked for: never the best

    def seconds(k: int) -> float:
        return by_k[k].cycle_seconds if k in by_k else 1.0

    k_star = best_k(
        lambda k: accepted(k) if k else 0.0,
        lambda k: seconds(k) if k else costs.t_1,
        lengths[-1].k,
    )
    matched = sum(sum(one) for one in texts.values())
    return Forecast(positions, matched / positions, costs, lengths, k_star)


def _at(k: int, replays: Sequence[Replay], costs: MeasuredCosts) -> AtK:
    total = sum(replays, Replay())
    seconds = costs.cycle_seconds(k, total.whole_share)

    def gain(one: Replay, measured: MeasuredCosts = costs) -> float:
        cycle = measured.cycle_seconds(k, one.whole_share)
        return (1 + one.per_cycle) * measured.t_1 / cycle

    rounds = [gain(total, costs.in_round(index)) for index in range(costs.rounds)]
    by_prompt = [gain(one) for one in replays]
    return AtK(
        k=k,
        accepted=total.per_cycle,
        whole=total.whole_share,
        break_even=seconds / costs.t_1 - 1,
        cycle_seconds=seconds,
        speedup=gain(total),
        noise=repeat_noise(rounds) if len(rounds) > 1 else ONE_RUN_BAND,
        low=min(by_prompt),
        high=max(by_prompt),
    )
