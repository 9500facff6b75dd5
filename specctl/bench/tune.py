"""Which settings to try, on how much, and which to keep: the pure part of `specctl tune`.

**Search**: successive halving. All candidates once on few prompts; the better half, with what the
first round suggests (K* of draft models, see `suggested_k`), on more; the two best against plain
with repeats. Only the last round decides: what chose its members would flatter them. Each round is
an ordinary benchmark (`bench/conduct.py`): interleaved, warmed up, texts compared with plain's.

**Choice**: by `bench/report.py`'s speed-up, noise and verdict, as `choose` says. Two candidates are
told apart by the speed-up of one over the other, as if that were plain; of those that cannot be
told from the fastest, the simplest is kept. One with a bug in a text is out, whatever its speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from specctl.bench.report import (
    IdentityCount,
    Runs,
    Speed,
    Verdict,
    joint_noise,
    speed,
    verdict,
)
from specctl.bench.run import PLAIN, WARM_UP_TOKENS, Arm
from specctl.metrics import Totals
from specctl.settings import DraftSettings, SpecSettings

NGRAMS = ("ngram-mod", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-cache")
# Draft lengths that are tried first; the first round's K* joins them.
KS: Mapping[str, tuple[int, ...]] = {
    "draft-simple": (4, 2, 8),
    "draft-dflash": (4, 8, 15),  # a block costs the same however much of it is proposed
    "draft-dspark": (4, 8, 15),
}
OTHER_KS = (2, 1, 4)  # heads: one head's guesses get worse fast
K_MOST = 16  # no K* beyond it is tried
QUANTISED = "q8_0"
FINALISTS = 2
REPEATS = (5, 4, 3)  # two would have a 95 % interval of nine deviations: worse than one, assumed
# Without repeats, what a speed-up must be beyond: one look swings that much on a loaded machine.
ONE_LOOK = 0.45
ENOUGH_PROMPTS = 4  # before there are more repeats than need be
# (prompts, tokens) of the first round, the best that fits
FIRST = ((3, 128), (3, 96), (3, 64), (2, 128), (2, 96), (2, 64), (2, 48), (2, 32), (1, 48), (1, 32))
FIRST_SHARE, HALF_SHARE = 0.4, 0.45  # of the budget; of what is left then
THREADS_SHARE = 0.2
OPENING = 2.0  # seconds a session takes to open and close: an assumption, for the budget only

Group = tuple[bool, str]  # (with the draft model, its KV type): what shares one session


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run. `draft`: it drafts with the draft model; `core`: tried in any budget."""

    name: str
    spec: SpecSettings
    draft: bool = False
    draft_kv: str = "f16"
    core: bool = False

    @property
    def arm(self) -> Arm:
        """What a benchmark calls it."""
        return Arm(self.name, self.spec)

    @property
    def simplicity(self) -> tuple[bool, bool, int, bool]:
        """Smaller is simpler: without a draft model, its KV cache as it is, one drafter, `auto`
        (what chat does anyway, and the one that adapts) before one that is fixed.
        """
        types = self.spec.types
        return self.draft, self.draft_kv != "f16", len(types), types != ("auto",)

    def group(self, has_draft: bool) -> Group:
        """The session it is measured in: `auto` takes a draft model wherever one is open."""
        open_draft = self.draft if "auto" in self.spec.types else has_draft
        return open_draft, self.draft_kv


def with_k(method: str, k: int, *, draft: bool, core: bool = False) -> Candidate:
    """One model-bound drafter that drafts up to `k` tokens."""
    return Candidate(f"{method} k={k}", SpecSettings(types=(method,), k=k), draft, core=core)


def chained(method: str, k: int, *, draft: bool) -> Candidate:
    """Look-up first, the model where nothing is found; `k` bounds the model's drafts only."""
    types = ("ngram-suffix", method)
    spec = SpecSettings(types=types, draft=DraftSettings(n_max=k))
    return Candidate(f"{','.join(types)} n-max={k}", spec, draft, core=True)


def candidates(methods: Sequence[str], draft_methods: Iterable[str]) -> tuple[Candidate, ...]:
    """All that is tried with these model-bound `methods`, the most promising first.

    `draft_methods` are those of them that decode with the draft file.
    """
    files = frozenset(draft_methods)
    out = [
        Candidate("auto", SpecSettings(types=("auto",)), bool(files), core=True),
        Candidate("ngram-suffix", SpecSettings(types=("ngram-suffix",)), core=True),
    ]
    for method in methods:
        first, *_ = KS.get(method, OTHER_KS)
        out.append(with_k(method, first, draft=method in files, core=True))
        out.append(chained(method, first, draft=method in files))
    for method in methods:
        _, *further = KS.get(method, OTHER_KS)
        out += [with_k(method, k, draft=method in files) for k in further]
    out += [Candidate(name, SpecSettings(types=(name,))) for name in NGRAMS]
    return tuple(out)


def variants(leader: Candidate) -> tuple[Candidate, ...]:
    """Of a good candidate with a draft model: its KV cache quantised, and `auto` without it."""
    if not leader.draft:
        return ()
    other = replace(
        leader, name=f"{leader.name}, draft KV {QUANTISED}", draft_kv=QUANTISED, core=False
    )
    if leader.spec.types != ("auto",):
        return (other,)
    return (other, replace(leader, name="auto without the draft", draft=False, core=False))


# ---------------------------------------------------------------- what it costs


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of a plain step, prompt tokens per second, tokens of each prompt; `factors`: how much
    longer a candidate's runs take than plain's, where that is known.
    """

    step: float
    rate: float
    lengths: tuple[int, ...]
    factors: Mapping[str, float]

    def run(self, prompt: int, tokens: int) -> float:
        """One run of plain decoding on the prompt of this index."""
        return self.lengths[prompt] / self.rate + tokens * self.step

    def stage(
        self, groups: Mapping[Group, Sequence[Candidate]], prompts: int, repeats: int, tokens: int
    ) -> float:
        """A whole round, its sessions' opening and warm-up included: an estimate."""
        each = sum(self.run(n, tokens) for n in range(prompts)) * repeats
        warm = self.run(0, min(tokens, WARM_UP_TOKENS))
        arms = [[PLAIN, *(one.name for one in group)] for group in groups.values()]
        runs = sum(self.factors.get(name, 1.0) for names in arms for name in names)
        return runs * each + sum((len(names) + 1) * warm + OPENING for names in arms)


@dataclass(frozen=True, slots=True)
class Size:
    """How much of it: the first `prompts`, so often, so many tokens; `seconds` is an estimate."""

    candidates: tuple[Candidate, ...]
    prompts: int
    repeats: int
    tokens: int
    seconds: float


def first_size(
    every: Sequence[Candidate], pace: Pace, has_draft: bool, seconds: float, tokens: int | None
) -> Size:
    """The first round: three prompts where they fit into `seconds`, all candidates before length,
    the core ones alone before nothing.
    """
    core = tuple(one for one in every if one.core) or tuple(every)
    options = FIRST if tokens is None else tuple((n, tokens) for n in (3, 2, 1))
    size = None
    for chosen in (tuple(every), core):
        for n, length in options:
            n = min(n, len(pace.lengths))
            size = _size(chosen, pace, has_draft, n, 1, length)
            if size.seconds <= seconds:
                return size
    assert size is not None
    return size


def later_size(
    some: Sequence[Candidate],
    pace: Pace,
    has_draft: bool,
    seconds: float,
    tokens: int,
    repeats: Sequence[int],
) -> Size | None:
    """The most prompts that fit, and the most of `repeats` (falling) that leaves enough of them;
    None where nothing fits.
    """
    best = None
    for repeat in repeats:
        for n in range(len(pace.lengths), 0, -1):
            size = _size(tuple(some), pace, has_draft, n, repeat, tokens)
            if size.seconds <= seconds:
                if n >= min(ENOUGH_PROMPTS, len(pace.lengths)):
                    return size
                if best is None or n > best.prompts:
                    best = size
                break
    return best


def by_session(some: Iterable[Candidate], has_draft: bool) -> dict[Group, list[Candidate]]:
    """By session, in the order in which they come."""
    out: dict[Group, list[Candidate]] = {}
    for one in some:
        out.setdefault(one.group(has_draft), []).append(one)
    return out


def _size(
    some: tuple[Candidate, ...], pace: Pace, has_draft: bool, n: int, repeats: int, tokens: int
) -> Size:
    return Size(
        some, n, repeats, tokens, pace.stage(by_session(some, has_draft), n, repeats, tokens)
    )


# ---------------------------------------------------------------- what it says


@dataclass(frozen=True, slots=True)
class Standing:
    """How one candidate did in a round. `table` holds the runs it shared a session with."""

    candidate: Candidate
    stage: str
    prompts: tuple[str, ...]
    speed: Speed
    totals: Totals
    texts: IdentityCount
    group: Group
    table: Runs

    @property
    def name(self) -> str:
        """The candidate's."""
        return self.candidate.name

    @property
    def speedup(self) -> float:
        """Against plain; 0 where nothing could be compared."""
        return self.speed.speedup or 0.0

    @property
    def silent(self) -> bool:
        """It never drafted: plain decoding by another name."""
        return not self.totals.drafted_cycles


@dataclass(frozen=True, slots=True)
class Choice:
    """What is kept (None: plain decoding) and why, one sentence each."""

    winner: Standing | None
    reasons: tuple[str, ...]


def better_half(standings: Iterable[Standing]) -> list[Standing]:
    """The faster half, at least as many as there are finalists; the silent ones are out."""
    alive = sorted((s for s in standings if not s.silent), key=lambda s: -s.speedup)
    return alive[: max(FINALISTS, math.ceil(len(alive) / 2))]


def finalists(standings: Iterable[Standing]) -> list[Standing]:
    """The two fastest. Of candidates with the same spec settings (another KV type of the draft, no
    draft) only the simplest is among them, unless one is faster than it beyond the noise.
    """
    alike: dict[SpecSettings, list[Standing]] = {}
    for one in standings:
        if not one.silent and one.speedup:
            alike.setdefault(one.candidate.spec, []).append(one)
    chosen = []
    for some in alike.values():
        some.sort(key=lambda s: s.candidate.simplicity)
        simplest, *others = some
        clear = [s for s in others if apart(s, simplest).verdict == "faster"]
        chosen.append(max(clear, key=lambda s: s.speedup, default=simplest))
    return sorted(chosen, key=lambda s: -s.speedup)[:FINALISTS]


def apart(one: Standing, other: Standing) -> Speed:
    """`one` against `other`: their speed-up where they took turns; across sessions the ratio of
    their speed-ups, with both noises together, as `bench/compare.py` has it.
    """
    if one.group == other.group and one.prompts == other.prompts:
        table = {
            **{(key, PLAIN): one.table[key, other.name] for key in one.prompts},
            **{(key, one.name): one.table[key, one.name] for key in one.prompts},
        }
        return speed(one.prompts, one.name, table)
    change = one.speedup / other.speedup
    noise = joint_noise(one.speed.noise, other.speed.noise)
    return replace(
        one.speed, speedup=change, low=None, high=None, noise=noise, verdict=verdict(change, noise)
    )


def choose(standings: Sequence[Standing]) -> Choice:
    """The simplest of those that cannot be told from the fastest; plain where none is faster.

    Faster than plain is what is so beyond the noise; where the last round had no repeats, no spread
    was measured, and it must be beyond ±45 % (`ONE_LOOK`) too. The reason names `--minutes` there.
    """
    known = sorted((s for s in standings if s.speedup and not s.silent), key=lambda s: -s.speedup)
    if not known:
        return Choice(None, ("nothing drafted on these prompts: plain decoding stays",))
    leader = known[0]
    faster = [s for s in known if against_plain(s.speed) == "faster"]
    if not faster:
        return Choice(None, (_plain_stays(leader),))
    leader = faster[0]
    level = [s for s in faster[1:] if apart(leader, s).verdict != "faster"]
    winner = min((leader, *level), key=lambda s: (s.candidate.simplicity, -s.speedup))
    once = " in one look (more --minutes repeat it)" if winner.speed.band_is_assumed else ""
    reasons = [f"{winner.name} is {_times(winner)} plain decoding{once}"]
    for other in (s for s in (leader, *level) if s is not winner):
        gap = apart(other, winner)
        reasons.append(
            f"{winner.name} and {other.name} ({_times(other)}) are within ±{gap.noise:.0%}: "
            + ("took the simpler one" if _simpler(winner, other) else "took the faster one")
        )
    behind = [s for s in known if s is not leader and s not in level]
    reasons += [f"{s.name} is behind it: {_times(s)}" for s in behind]
    return Choice(winner, tuple(reasons))


def against_plain(found: Speed) -> Verdict:
    """The verdict that chooses: as `bench/report.py`'s, but ±45 % at least without repeats."""
    shown = found.verdict != "no difference shown"  # else more noise cannot show one
    if not shown or not found.band_is_assumed or found.speedup is None:
        return found.verdict
    return verdict(found.speedup, max(found.noise, ONE_LOOK))


def _simpler(one: Standing, other: Standing) -> bool:
    return one.candidate.simplicity < other.candidate.simplicity


def _times(standing: Standing) -> str:
    assumed = ", assumed" if standing.speed.band_is_assumed else ""
    return f"{standing.speedup:.2f}× (±{standing.speed.noise:.0%}{assumed})"


def _plain_stays(best: Standing) -> str:
    if best.speed.band_is_assumed:
        return (
            "nothing was repeated, for lack of time, and one look counts only beyond "
            f"±{max(best.speed.noise, ONE_LOOK):.0%}: the best, {best.name}, is {_times(best)}, so "
            "plain decoding stays (more --minutes make room for repeats)"
        )
    if best.speed.verdict == "slower":
        return f"nothing beats plain decoding: the best, {best.name}, is {_times(best)}"
    return (
        f"nothing is faster than plain decoding beyond the noise: the best, {best.name}, is "
        f"{_times(best)}"
    )
