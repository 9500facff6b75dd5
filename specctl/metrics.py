"""The one definition of each number, as folds over cycle records and interval sums.

    K_i  drafted      tokens proposed in cycle i           A_i  accepted   kept of them
    E_i  emitted      tokens that reached the answer       D    cycles with K_i > 0
    α    acceptance rate          ΣA / ΣK
    K̄    mean draft length        ΣK / D
    α×K̄  accepted per cycle       ΣA / D
    τ    tokens per pass          ΣE / all target passes; 1.0 is no gain
    L    mean acceptance length   1 + ΣA / D, drafted cycles only (what vLLM and llama.cpp print)
    p_i  acceptance at position i cycles that accepted ≥ i / cycles that drafted ≥ i
    coverage                      D / all cycles
    t_c = t_d + t_v + t_o         a whole cycle, seconds;  t_1 a plain one-token step
    a*   break-even               Σ t_c / Σ t_1 - 1 over drafted cycles: accepted per cycle needed
    net gain                      Σ (E_i · t_1 - t_c), seconds; a cycle without a draft is plain
                                  decoding and costs only its t_d, however long its pass took
    ≈ speed-up                    τ · t_1 / mean t_c over all cycles, from one arm (an estimate);
                                  with a t_1 that moves and plain cycles at their own time:
                                  (Σ drafted E_i · t_1 + Σ plain (t_v + t_o)) / Σ t_c

Sums of an interval with a known t_1 are judged as its cycles would be, passes without a draft at
t_1 each: Σ t_c over drafted ones is the interval's seconds - (passes - D) · t_1.

A number that cannot be known yet is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from specctl.events import Cycle, Interval, Record

WINDOW = 40  # cycles, or intervals, that are "now"
# The guides' rules of thumb
RULE_OF_THUMB = 1.0  # α×K below 1.0 is slower; exact only where t_c = 2 · t_1
ACCEPTANCE_RULE = 0.40  # α below it: plain may be faster
VERIFY_RULE = (0.42, 0.95)  # verification's share of a cycle lies between them
DRAFT_RULE = 0.20  # drafting's share of a cycle is at most this
AT_BAND = 0.05  # within 5 % of the cycle's cost counts as "at" break-even

Standing = Literal["above", "at", "below"]


def _ratio(top: float, bottom: float) -> float | None:
    return top / bottom if bottom else None


def _add(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    if len(left) < len(right):
        left, right = right, left
    return tuple(a + b for a, b in zip(left, right, strict=False)) + left[len(right) :]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of a stretch of generation; the numbers are its properties. Immutable: `add` folds."""

    cycles: int = 0
    drafted_cycles: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    drafted_at: tuple[int, ...] = ()  # [i]: cycles that drafted at least i + 1 tokens
    accepted_at: tuple[int, ...] = ()  # [i]: cycles that accepted at least i + 1 tokens
    t_d: float = 0.0
    t_v: float = 0.0
    t_o: float = 0.0
    t_native: float = 0.0
    judged_t_c: float = 0.0  # Σ t_c of drafted cycles whose t_1 was known
    judged_t_1: float = 0.0  # Σ t_1 of the same
    judged_accepted: int = 0
    judged_drafted_cycles: int = 0
    known_t_c: float = 0.0  # Σ t_c of all cycles whose t_1 was known
    known_worth: float = 0.0  # what plain decoding would have taken for the same tokens
    interval_seconds: float = 0.0
    interval_t_d: float = 0.0  # of interval_seconds
    passes_known: bool = True
    drafted_passes_known: bool = True
    positions_known: bool = True
    emitted_known: bool = True
    draft_time_known: bool = True
    verify_time_known: bool = True
    exact: bool = True

    @property
    def t_c(self) -> float:
        """All cycles, seconds."""
        return self.t_d + self.t_v + self.t_o

    @property
    def seconds(self) -> float:
        """Time of generation: cycles, or intervals where no cycles are seen."""
        return self.t_c + self.interval_seconds

    @property
    def acceptance_rate(self) -> float | None:
        """α: share of drafted tokens that stood."""
        return _ratio(self.accepted, self.drafted)

    @property
    def mean_draft_length(self) -> float | None:
        """K̄, tokens."""
        return _ratio(self.drafted, self.drafted_cycles) if self.drafted_passes_known else None

    @property
    def accepted_per_cycle(self) -> float | None:
        """α×K̄, tokens per drafted cycle."""
        return _ratio(self.accepted, self.drafted_cycles) if self.drafted_passes_known else None

    @property
    def tokens_per_pass(self) -> float | None:
        """τ."""
        known = self.passes_known and self.emitted_known
        return _ratio(self.emitted, self.cycles) if known else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """L, bonus token included, drafted cycles only."""
        per_cycle = self.accepted_per_cycle
        return None if per_cycle is None else 1 + per_cycle

    @property
    def coverage(self) -> float | None:
        """Share of cycles that had a draft."""
        known = self.passes_known and self.drafted_passes_known
        return _ratio(self.drafted_cycles, self.cycles) if known else None

    @property
    def acceptance_by_position(self) -> tuple[float, ...]:
        """p_1, p_2, …; empty where a source does not say how many drafted that far."""
        if not self.positions_known:
            return ()
        accepted = self.accepted_at + (0,) * (len(self.drafted_at) - len(self.accepted_at))
        return tuple(a / d for a, d in zip(accepted, self.drafted_at, strict=False) if d)

    @property
    def acceptance_of_drafted(self) -> tuple[float, ...]:
        """p_i(D): passes that accepted at least i over all drafted ones, where no more is known.

        Lower than p_i where drafts differ in length.
        """
        if not self.drafted_passes_known or not self.drafted_cycles:
            return ()
        return tuple(count / self.drafted_cycles for count in self.accepted_at)

    @property
    def break_even(self) -> float | None:
        """a*: accepted per drafted cycle needed to be level with plain decoding."""
        cost = _ratio(self.judged_t_c, self.judged_t_1)
        return None if cost is None else cost - 1

    @property
    def estimated_speedup(self) -> float | None:
        """What plain decoding would have taken over what was taken: an estimate, print ≈."""
        return _ratio(self.known_worth, self.known_t_c)

    @property
    def net_gain(self) -> float:
        """Seconds won against plain decoding, an estimate."""
        return self.known_worth - self.known_t_c

    @property
    def draft_share(self) -> float | None:
        """t_d of the time of generation."""
        drafting = self.t_d + self.interval_t_d
        return _ratio(drafting, self.seconds) if self.draft_time_known else None

    @property
    def verify_share(self) -> float | None:
        """t_v of the cycle time."""
        return _ratio(self.t_v, self.t_c) if self.verify_time_known else None

    @property
    def tokens_per_second(self) -> float | None:
        """Emitted tokens over generation time, prompt not included."""
        return _ratio(self.emitted, self.seconds) if self.emitted_known else None

    @property
    def standing(self) -> Standing | None:
        """Accepted per cycle against the measured break-even; None while either is unknown."""
        needed = self.break_even
        if needed is None or not self.judged_drafted_cycles:
            return None
        got = self.judged_accepted / self.judged_drafted_cycles
        if abs(got - needed) <= AT_BAND * (1 + needed):
            return "at"
        return "above" if got > needed else "below"


def add(totals: Totals, record: Record) -> Totals:
    """`totals` with one more record; records without sums change nothing."""
    if isinstance(record, Cycle):
        return _add_cycle(totals, record)
    if isinstance(record, Interval):
        return _add_interval(totals, record)
    return totals


def fold(records: Iterable[Record]) -> Totals:
    """All records into one `Totals`."""
    totals = Totals()
    for record in records:
        totals = add(totals, record)
    return totals


def merge(parts: Iterable[Totals]) -> Totals:
    """The sums of several stretches of generation as one."""
    out = Totals()
    for part in parts:
        values = {f.name: (getattr(out, f.name), getattr(part, f.name)) for f in fields(Totals)}
        out = Totals(**{name: _merged(*pair) for name, pair in values.items()})
    return out


def _merged(left: Any, right: Any) -> Any:
    if isinstance(left, tuple):
        return _add(left, right)
    return left and right if isinstance(left, bool) else left + right


def _add_cycle(totals: Totals, cycle: Cycle) -> Totals:
    k, accepted, t_c = len(cycle.drafted), cycle.accepted, cycle.t_c
    out = replace(
        totals,
        cycles=totals.cycles + 1,
        drafted_cycles=totals.drafted_cycles + bool(k),
        drafted=totals.drafted + k,
        accepted=totals.accepted + accepted,
        emitted=totals.emitted + len(cycle.emitted),
        drafted_at=_add(totals.drafted_at, (1,) * k),
        accepted_at=_add(totals.accepted_at, (1,) * accepted),
        t_d=totals.t_d + cycle.t_d,
        t_v=totals.t_v + cycle.t_v,
        t_o=totals.t_o + cycle.t_o,
        t_native=totals.t_native + cycle.t_native,
        draft_time_known=totals.draft_time_known and cycle.split,
        verify_time_known=totals.verify_time_known and cycle.split,
    )
    if cycle.t_1 is None:
        return out
    return replace(
        out,
        judged_t_c=out.judged_t_c + (t_c if k else 0.0),
        judged_t_1=out.judged_t_1 + (cycle.t_1 if k else 0.0),
        judged_accepted=out.judged_accepted + accepted,
        judged_drafted_cycles=out.judged_drafted_cycles + bool(k),
        known_t_c=out.known_t_c + t_c,
        known_worth=out.known_worth + (len(cycle.emitted) * cycle.t_1 if k else t_c - cycle.t_d),
    )


def _add_interval(totals: Totals, interval: Interval) -> Totals:
    passes, drafted_passes = interval.passes, interval.drafted_passes
    out = replace(
        totals,
        cycles=totals.cycles + (passes or 0),
        drafted_cycles=totals.drafted_cycles + (drafted_passes or 0),
        drafted=totals.drafted + interval.drafted,
        accepted=totals.accepted + interval.accepted,
        emitted=totals.emitted + (interval.emitted or 0),
        drafted_at=_add(totals.drafted_at, interval.drafted_at or ()),
        accepted_at=_add(totals.accepted_at, interval.accepted_at),
        interval_seconds=totals.interval_seconds + interval.seconds,
        interval_t_d=totals.interval_t_d + (interval.t_d or 0.0),
        passes_known=totals.passes_known and passes is not None,
        drafted_passes_known=totals.drafted_passes_known and drafted_passes is not None,
        positions_known=totals.positions_known and interval.drafted_at is not None,
        emitted_known=totals.emitted_known and interval.emitted is not None,
        draft_time_known=totals.draft_time_known and interval.t_d is not None,
        verify_time_known=False,
        exact=totals.exact and interval.exact,
    )
    return _judge(out, interval)


def _judge(totals: Totals, interval: Interval) -> Totals:
    """Against plain decoding, where the interval says enough."""
    t_1, seconds = interval.t_1, interval.seconds
    passes, drafted = interval.passes, interval.drafted_passes
    if t_1 is None or passes is None or drafted is None or interval.emitted is None:
        return totals
    if not drafted:
        return replace(
            totals,
            known_t_c=totals.known_t_c + seconds,
            known_worth=totals.known_worth + seconds - (interval.t_d or 0.0),
        )
    return replace(
        totals,
        judged_t_c=totals.judged_t_c + seconds - (passes - drafted) * t_1,
        judged_t_1=totals.judged_t_1 + drafted * t_1,
        judged_accepted=totals.judged_accepted + interval.accepted,
        judged_drafted_cycles=totals.judged_drafted_cycles + drafted,
        known_t_c=totals.known_t_c + seconds,
        known_worth=totals.known_worth + interval.emitted * t_1,
    )
