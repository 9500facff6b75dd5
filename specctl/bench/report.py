"""From runs to what is said about them: speed-up, spread, verdict, and why.

**Measured speed-up**: total tokens over total seconds of an arm, divided by the same of plain
decoding on the same prompts. Seconds are those of generation (the prompt is in the time to first
token); of a prompt's repeats the median of seconds per token counts, times the prompt's tokens. Of
a server: the seconds from its first streamed token to its last, for the tokens after the first.

**Spread**: the smallest and largest speed-up of a single repeat, each from that repeat's runs alone
(its plain and its speculative runs followed each other, so a slow minute hits both).

**Noise**: half the width of the 95 % interval of those single repeats' speed-ups (Student's t, on
the log scale), never below 2 %. With one repeat nothing is known of it, and ±10 % is assumed, on
top of what single-token passes themselves (cycles without a draft, at least 8 in each arm) differed
between the runs of plain and of the arm: there the machine changed its pace, not the drafter.

**Verdict**: faster or slower only if the speed-up is further from 1 than the noise. Everything else
is "no difference shown". No pass is cheaper than a plain step, so of a single repeat's speed-up
what is above the arm's tokens per pass is the machine's, and is not counted.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from specctl.bench.identity import Identity
from specctl.bench.run import PLAIN, Arm, BenchPlan, Run, RunKey
from specctl.bench.workloads import turns_note
from specctl.metrics import Totals, merge

NOISE_FLOOR = 0.02
ONE_RUN_BAND = 0.10
# Student's t, two-sided 95 %, for 1, 2, … 10 degrees of freedom; the last one serves beyond
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
ENOUGH_SINGLE = 8  # passes from which a pace is taken
NOTABLE = 1.3  # a prompt above this is named

Verdict = Literal["faster", "no difference shown", "slower"]
Runs = Mapping[tuple[str, str], Sequence[Run]]  # (prompt key, arm) → its repeats in order


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast, against plain. Rates in tokens per second, `noise` as a share of 1.

    `low` and `high` are None with one repeat. All None: nothing was generated to compare. `rate`
    alone: there is no plain decoding to compare with.
    """

    plain_rate: float | None
    rate: float | None
    speedup: float | None
    low: float | None
    high: float | None
    noise: float
    repeats: int
    verdict: Verdict

    @property
    def band_is_assumed(self) -> bool:
        """One run of each: no spread was measured."""
        return self.repeats < 2


@dataclass(frozen=True, slots=True)
class IdentityCount:
    """Runs by how their text compares with plain's."""

    same: int = 0
    ties: int = 0
    bugs: int = 0
    law_only: int = 0
    differs: int = 0  # from a server: a tie or a bug, which cannot be told


@dataclass(frozen=True, slots=True)
class Row:
    """One arm on one workload, or on all (`workload` None)."""

    workload: str | None
    arm: str
    prompts: int
    speed: Speed
    totals: Totals
    plain_ttft: float | None
    ttft: float
    identity: IdentityCount


@dataclass(frozen=True, slots=True)
class PromptSpeed:
    """One arm on one prompt. `drafted` False: it was to draft, and never did."""

    prompt: str
    arm: str
    speed: Speed
    drafted: bool = True


@dataclass(frozen=True, slots=True)
class Undrafted:
    """An arm (on a workload, or on all: None) none of whose cycles had a draft."""

    workload: str | None
    arm: str
    cycles: int
    reasons: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A speculative run whose text is not plain's."""

    prompt: str
    arm: str
    repeat: int
    identity: Identity


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a benchmark says. `rows` by workload, then the totals; arms in the asked order."""

    arms: tuple[str, ...]
    rows: tuple[Row, ...]
    totals: tuple[Row, ...]
    prompts: tuple[PromptSpeed, ...]
    undrafted: tuple[Undrafted, ...]
    differences: tuple[Difference, ...]
    unstable: tuple[str, ...]  # prompts on which plain decoding itself gave two texts
    notes: tuple[str, ...]
    conditions: tuple[str, ...] = ()  # what was asked and how: to be read with the figures

    @property
    def bugs(self) -> tuple[Difference, ...]:
        """Differences that are no ties."""
        return tuple(d for d in self.differences if d.identity.status == "bug")

    @property
    def failures(self) -> tuple[str, ...]:
        """What `--strict` fails on, in words."""
        silent = tuple(f"{one.arm} never drafted" for one in self.undrafted if one.workload is None)
        bugs = (f"{len(self.bugs)} texts differ from plain's without a tie",) if self.bugs else ()
        unstable = ("plain decoding does not repeat itself",) if self.unstable else ()
        return (*silent, *bugs, *unstable)

    def of(self, arm: str) -> tuple[PromptSpeed, ...]:
        """This arm's prompts that can be compared, fastest first."""
        return fastest_first(self.prompts, arm)


def fastest_first(prompts: Iterable[PromptSpeed], arm: str) -> tuple[PromptSpeed, ...]:
    """Those of this arm that can be compared, fastest first."""
    known = [p for p in prompts if p.arm == arm and p.speed.speedup is not None]
    return tuple(sorted(known, key=lambda p: -(p.speed.speedup or 0)))


class RowName(Protocol):
    """Which row of a table it is."""

    @property
    def workload(self) -> str | None: ...  # noqa: D102
    @property
    def arm(self) -> str: ...  # noqa: D102


def is_undrafted(row: RowName, undrafted: Iterable[Undrafted]) -> bool:
    """Is this a drafting arm none of whose cycles had a draft? The one way to tell, where a row is
    shown: a coverage of 0 is not enough, since of some servers it is not known.
    """
    return any((one.workload, one.arm) == (row.workload, row.arm) for one in undrafted)


def summarise(
    plan: BenchPlan, runs: Iterable[Run], identities: Mapping[RunKey, Identity]
) -> Report:
    """The report of these runs; `identities` of every speculative one."""
    runs = tuple(runs)
    table = grouped(runs)
    everything = tuple(prompt.key for prompt in plan.prompts)
    families = {
        family: tuple(p.key for p in plan.prompts if p.family == family)
        for family in dict.fromkeys(prompt.family for prompt in plan.prompts)
    }

    def row(workload: str | None, keys: Sequence[str], arm: Arm) -> Row:
        return _row(workload, keys, arm.name, table, identities)

    rows = tuple(row(family, keys, arm) for family, keys in families.items() for arm in plan.arms)
    totals = tuple(row(None, everything, arm) for arm in plan.arms)
    drafting = {arm.name for arm in plan.arms if arm.drafts}
    silent = [r for r in (*totals, *rows) if r.arm in drafting and never_drafted(r.totals)]
    return Report(
        arms=tuple(arm.name for arm in plan.arms),
        rows=rows,
        totals=totals,
        prompts=tuple(
            PromptSpeed(
                key,
                arm.name,
                speed((key,), arm.name, table),
                not arm.drafts or not never_drafted(_totals((key,), arm.name, table)),
            )
            for key in everything
            for arm in plan.arms
        ),
        undrafted=tuple(
            Undrafted(r.workload, r.arm, r.totals.cycles, _reasons(r, families, runs))
            for r in silent
        ),
        differences=tuple(
            Difference(prompt, arm, repeat, identity)
            for (prompt, arm, repeat), identity in identities.items()
            if identity.status in ("tie", "bug", "differs")
        ),
        unstable=tuple(key for key in everything if len(_texts(table.get((key, PLAIN), ()))) > 1),
        notes=tuple(dict.fromkeys(note for run in runs for note in run.notes)),
        conditions=tuple(filter(None, (turns_note(plan.prompts),))),
    )


def never_drafted(totals: Totals) -> bool:
    """No cycle had a draft, as far as its source tells of drafts at all."""
    return not totals.drafted_cycles and totals.drafted_passes_known


def _texts(runs: Iterable[Run]) -> set[tuple[tuple[int, ...], str]]:
    return {(run.tokens, run.text) for run in runs}


def grouped(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    """Repeats by (prompt key, arm), in order of repeat."""
    table: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.repeat):
        table.setdefault((run.prompt.key, run.arm), []).append(run)
    return table


def _row(
    workload: str | None,
    keys: Sequence[str],
    arm: str,
    table: Runs,
    identities: Mapping[RunKey, Identity],
) -> Row:
    runs = [run for key in keys for run in table[key, arm]]
    found = Counter(identities[run.key].status for run in runs if run.key in identities)
    return Row(
        workload=workload,
        arm=arm,
        prompts=len(keys),
        speed=speed(keys, arm, table),
        totals=_totals(keys, arm, table),
        plain_ttft=_middle(keys, PLAIN, table, lambda run: run.ttft) if _has_plain(table) else None,
        ttft=_middle(keys, arm, table, lambda run: run.ttft),
        identity=IdentityCount(
            found["same"], found["tie"], found["bug"], found["law"], found["differs"]
        ),
    )


def _totals(keys: Sequence[str], arm: str, table: Runs) -> Totals:
    return merge(run.totals for key in keys for run in table[key, arm])


def _middle(keys: Sequence[str], arm: str, table: Runs, of: Callable[[Run], float]) -> float:
    """Median over the prompts of the median over their repeats."""
    return statistics.median(statistics.median(map(of, table[key, arm])) for key in keys)


def _reasons(
    row: Row, families: Mapping[str, Sequence[str]], runs: Sequence[Run]
) -> tuple[tuple[str, int], ...]:
    counts: Counter[str] = Counter()
    for run in runs:
        if run.arm == row.arm and row.workload in (None, run.prompt.family):
            counts.update(dict(run.undrafted))
    return tuple(counts.most_common())


def speed(keys: Sequence[str], arm: str, table: Runs) -> Speed:
    """The measured speed-up of `arm` on these prompts (the module's docstring defines it).

    A prompt on which an arm generated nothing that was timed cannot be compared and is left out.
    """
    compared = (PLAIN, arm) if _has_plain(table) else (arm,)
    known = [k for k in keys if all(_is_timed(run) for one in compared for run in table[k, one])]
    repeats = min((len(table[key, arm]) for key in known), default=0)
    if not known:
        return Speed(None, None, None, None, None, ONE_RUN_BAND, repeats, "no difference shown")
    if compared == (arm,):
        rate = _rate(known, arm, table)
        return Speed(None, rate, None, None, None, ONE_RUN_BAND, repeats, "no difference shown")
    plain_rate, rate = (_rate(known, name, table) for name in (PLAIN, arm))
    plain_rates, rates = (
        [_rate_of_repeat(known, name, table, repeat) for repeat in range(repeats)]
        for name in (PLAIN, arm)
    )
    each = [ours / plain for ours, plain in zip(rates, plain_rates, strict=True)]
    alone = repeats < 2
    noise = _assumed_noise(known, arm, table) if alone else repeat_noise(each)
    judged = rate / plain_rate
    if alone:
        judged = min(judged, _totals(known, arm, table).tokens_per_pass or judged)
    return Speed(
        plain_rate=plain_rate,
        rate=rate,
        speedup=rate / plain_rate,
        low=None if alone else min(each),
        high=None if alone else max(each),
        noise=noise,
        repeats=repeats,
        verdict=verdict(judged, noise),
    )


def _has_plain(table: Runs) -> bool:
    return any(arm == PLAIN for _, arm in table)


def _is_timed(run: Run) -> bool:
    return run.timed_tokens > 0 and run.seconds > 0


def _rate(keys: Sequence[str], arm: str, table: Runs) -> float:
    tokens = seconds = 0.0
    for key in keys:
        runs = table[key, arm]
        count = statistics.fmean(run.timed_tokens for run in runs)
        tokens += count
        seconds += count * statistics.median(run.seconds / run.timed_tokens for run in runs)
    return tokens / seconds


def _rate_of_repeat(keys: Sequence[str], arm: str, table: Runs, repeat: int) -> float:
    runs = [table[key, arm][repeat] for key in keys]
    return sum(run.timed_tokens for run in runs) / sum(run.seconds for run in runs)


def _assumed_noise(keys: Sequence[str], arm: str, table: Runs) -> float:
    paces = []
    for name in (PLAIN, arm):
        runs = [run for key in keys for run in table[key, name]]
        passes = sum(run.single_passes for run in runs)
        if passes < ENOUGH_SINGLE:
            return ONE_RUN_BAND
        paces.append(sum(run.single_seconds for run in runs) / passes)
    drift = max(paces) / min(paces) if min(paces) > 0 else 1.0
    return joint_noise(ONE_RUN_BAND, drift - 1)


def repeat_noise(speedups: Sequence[float]) -> float:
    """Half the width of the 95 % interval of two or more repeats, as a share; see above."""
    logs = [math.log(one) for one in speedups]
    t = _T95[min(len(logs) - 1, len(_T95)) - 1]
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return max(NOISE_FLOOR, math.expm1(half))


def joint_noise(one: float, other: float) -> float:
    """Of a ratio of two figures with these noises: both at once, (1 + a)(1 + b) - 1, as a share."""
    return (1 + one) * (1 + other) - 1


def verdict(speedup: float, noise: float) -> Verdict:
    """The word for a speed-up and its noise; symmetric in faster and slower."""
    if abs(math.log(speedup)) <= math.log1p(noise):
        return "no difference shown"
    return "faster" if speedup > 1 else "slower"
