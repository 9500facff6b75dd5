"""From looks at a server to intervals: differences that add up, whatever its counters do.

The sum of all intervals is what the counters moved between the first look and the last, restarts
included. What is left out (counters that cannot be) is said in words.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from specctl.events import Interval, Record
from specctl.external.readings import Reading, Sums
from specctl.external.remark import Remark

PATIENCE = 3  # looks that sums which do not fit together are waited for: they may lag


@dataclass(slots=True)
class _Passes:
    """Target passes of every sequence: those without a draft give one token each, so
    passes = generated - accepted. An upper bound of the tokens where a request ends inside a draft.
    """

    generated: int = 0
    accepted: int = 0
    drafts: int = 0
    told: int = 0

    def add(self, generated: int, accepted: int, drafts: int) -> int:
        """Passes that are new; never negative, though one counter may run ahead of another."""
        self.generated += generated
        self.accepted += accepted
        self.drafts += drafts
        now = max(self.told, self.drafts, self.generated - self.accepted)
        new, self.told = now - self.told, now
        return new


class Ledger:
    """Folds readings of one server. `t_1`: seconds of a plain step, where the user knows it."""

    def __init__(self, source: str, now: float, t_1: float | None = None) -> None:
        self._source = source
        self._t_1 = t_1
        self._start = self._at = now
        self._base: Reading | None = None
        self._passes = _Passes()
        self._busy = 0.0  # seconds in which it worked and its counters stood still
        self._odd = 0
        self._generated: int | None = None  # beside a drained list, cumulative
        self._looked = False  # a drained list was read

    def enter(self, reading: Reading, now: float) -> list[Record | Remark]:
        """What a look adds. `now` is a monotonic clock, seconds."""
        passed, self._at = max(0.0, now - self._at), now
        out: list[Record | Remark] = [Remark(note, "warning") for note in reading.notes]
        if reading.drained:
            first, self._looked = not self._looked, True
            delta = self._since(reading)
            if first and reading.sums.generated is not None:
                return out + _before(reading.sums)
            return out + self._delta(delta, reading, passed)
        if self._base is None:
            self._base = reading
            return out
        base, word = _base_of(self._base, reading)
        if word:
            out.append(Remark(word, "warning"))
            self._odd, self._busy = 0, 0.0
            self._base = replace(reading, sums=reading.sums if base is None else base)
        if base is None:
            return out
        return out + self._delta(_minus(reading.sums, base), reading, passed)

    def _since(self, reading: Reading) -> Sums:
        """A drained list is a difference already; the cumulative count beside it is not, and begins
        anew with the server.
        """
        now, before = reading.sums.generated, self._generated
        if now is None:
            return reading.sums
        self._generated = now
        if before is None:
            return replace(reading.sums, generated=None)
        return replace(reading.sums, generated=now - before if now >= before else now)

    def _delta(self, delta: Sums, reading: Reading, passed: float) -> list[Record | Remark]:
        active = bool(reading.running) or (self._base is not None and bool(self._base.running))
        if not _moved(delta):
            self._busy = self._busy + passed if active else 0.0
            if not reading.drained:
                self._base = replace(reading, sums=self._base.sums if self._base else reading.sums)
            return []
        delta = _nominal(delta, reading)
        wrong = _wrong(delta)
        if wrong and not reading.drained and self._odd < PATIENCE:
            self._odd += 1  # the base stays: the next look may bring the rest
            self._busy += passed
            return []
        self._odd = 0
        seconds = self._busy + passed if delta.seconds is None else delta.seconds
        self._busy = 0.0
        self._base = reading
        if wrong:
            return [Remark(f"its counters do not fit together: {wrong}; left out", "warning")]
        return [self._interval(delta, reading, seconds)]

    def _interval(self, delta: Sums, reading: Reading, seconds: float) -> Interval:
        passes = None
        if delta.passes is not None:
            passes = delta.passes
        elif delta.generated is not None:
            passes = self._passes.add(delta.generated, delta.accepted, delta.drafts)
        return Interval(
            seconds=seconds,
            passes=passes,
            drafted_passes=delta.drafts,
            drafted=delta.drafted,
            accepted=delta.accepted,
            emitted=delta.generated,
            accepted_at=delta.accepted_at,
            drafted_at=delta.drafted_at,
            exact=reading.exact,
            source=self._source,
            clock=self._at - self._start,
            t_1=self._t_1,
            t_d=delta.t_d,
        )


def lifetime(reading: Reading, source: str, t_1: float | None = None) -> Interval:
    """All that a server has counted, as one interval; its seconds are 0 where it keeps no clock."""
    sums = _nominal(reading.sums, reading)
    passes = sums.passes
    if passes is None and sums.generated is not None:
        passes = max(sums.drafts, sums.generated - sums.accepted)
    return Interval(
        seconds=sums.seconds or 0.0,
        passes=passes,
        drafted_passes=sums.drafts,
        drafted=sums.drafted,
        accepted=sums.accepted,
        emitted=sums.generated,
        accepted_at=sums.accepted_at,
        drafted_at=sums.drafted_at,
        exact=reading.exact,
        source=source,
        clock=0.0,
        t_1=t_1 if sums.seconds else None,
        t_d=sums.t_d,
    )


def why_wrong(reading: Reading) -> str:
    """Why these sums cannot be; empty where they can."""
    return _wrong(_nominal(reading.sums, reading))


def _base_of(before: Reading, now: Reading) -> tuple[Sums | None, str]:
    """What to subtract, and a word where it is not the last look.

    After a restart all sums are lower, but for positions that a longer draft has filled.
    """
    old, new = before.sums, now.sums
    pairs = [
        (old.drafts, new.drafts),
        (old.drafted, new.drafted),
        (old.accepted, new.accepted),
        (old.generated or 0, new.generated or 0),
        (old.seconds or 0.0, new.seconds or 0.0),
        (old.passes or 0, new.passes or 0),
    ]
    at = itertools.zip_longest(old.accepted_at, new.accepted_at, fillvalue=0)
    fell = any(b < a for a, b in (*pairs, *at))
    began = None not in (before.began, now.began) and before.began != now.began
    if began or (fell and all(b <= a for a, b in pairs)):
        return Sums(), "the server restarted: its counters begin anew"
    if fell:
        return None, "some of its counters fell and others rose: what moved since is left out"
    return before.sums, ""


def _minus(now: Sums, base: Sums) -> Sums:
    def less(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(x - (b[i] if i < len(b) else 0) for i, x in enumerate(a))

    return Sums(
        drafts=now.drafts - base.drafts,
        drafted=now.drafted - base.drafted,
        accepted=now.accepted - base.accepted,
        accepted_at=less(now.accepted_at, base.accepted_at),
        drafted_at=None if now.drafted_at is None else less(now.drafted_at, base.drafted_at or ()),
        generated=None if now.generated is None else now.generated - (base.generated or 0),
        seconds=None if now.seconds is None else now.seconds - (base.seconds or 0.0),
        passes=None if now.passes is None else now.passes - (base.passes or 0),
    )


def _nominal(sums: Sums, reading: Reading) -> Sums:
    """Where the server does not count drafted tokens: drafts by their usual length."""
    if reading.nominal is None:
        return sums
    return replace(sums, drafted=max(sums.accepted, round(sums.drafts * reading.nominal)))


def _before(sums: Sums) -> list[Record | Remark]:
    """What a list held before the first look: told, and left out of sums that have its tokens, for
    how many were generated meanwhile is not known.
    """
    if not sums.drafts:
        return []
    return [
        Remark(
            f"its list held {sums.drafts} drafts from before this watch: {sums.accepted} of "
            f"{sums.drafted} drafted tokens stood; not in the sums"
        )
    ]


def _moved(delta: Sums) -> bool:
    return bool(delta.drafts or delta.drafted or delta.accepted or delta.generated)


def _wrong(delta: Sums) -> str:
    if delta.accepted > delta.drafted:
        return f"{delta.accepted} accepted of {delta.drafted} drafted"
    if delta.drafts > delta.drafted:
        return f"{delta.drafts} drafts with {delta.drafted} tokens in all"
    if delta.drafted and not delta.drafts:
        return f"{delta.drafted} tokens drafted in no draft"
    steps = (delta.drafts, *delta.accepted_at)
    if any(b > a for a, b in itertools.pairwise(steps)):
        return "more accepted at a later position than before it"
    return ""
