"""What passes cost on this machine, measured the way a cycle uses them.

A round is one stretch of plain steps, then for each K one cycle: K steps of the draft, one pass of
the target over K + 1 rows, both taken back. So a draft's first step finds the caches as the target
left them, and a slow moment hits what is compared with each other. A first round is thrown away.
Every timed pass includes the arg-max of its rows, as greedy decoding does.

    t_1        a plain step among plain steps
    T(b)       a pass of the target over b rows; between measured b on a straight line, beyond the
               last one on the line through the last two
    t_d(k)     first + (k - 1) · next; first reads two tokens where the draft before was accepted
               whole (its last token and the target's own), else one
    C(k)       t_d(k) + T(k + 1), the whole cycle;  C(0) = t_1
    a*(k)      C(k) / t_1 - 1, accepted tokens per cycle at which a cycle is worth its time

Seconds throughout.
"""

from __future__ import annotations

import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from specctl.errors import UsageError

if TYPE_CHECKING:
    from specctl.sampling import Logits

ROUNDS = 5
PLAIN_STEPS = 4  # in a row, of one round
Clock = Callable[[], float]


class Passes(Protocol):
    """What is asked of a memory that is measured; `llama/context.py` gives it."""

    @property
    def n_ctx(self) -> int:
        """Most tokens it holds."""

    def follow(self, tokens: Sequence[int]) -> int:
        """Hold exactly `tokens`."""

    def verify(self, tokens: Sequence[int]) -> Logits:
        """Decode `tokens`; a row of logits for each."""

    def extend(self, tokens: Sequence[int]) -> Logits:
        """Decode `tokens`; the logits of the last one."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One kind of pass: seconds in each round, in the order of the rounds."""

    rounds: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The median round."""
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """(largest - smallest) / median: what one round can be off."""
        return (max(self.rounds) - min(self.rounds)) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """The costs of one target, alone or with one draft model, at a context of `n_past` tokens.

    `passes` are the target's, by rows, ascending, from 2 on. `first`, `next` and `pair` are steps
    of the draft: the first one of a cycle, a further one, a first one that reads two tokens.
    """

    n_past: int
    plain: Timing
    passes: tuple[tuple[int, Timing], ...] = ()
    first: Timing | None = None
    next: Timing | None = None
    pair: Timing | None = None

    @property
    def t_1(self) -> float:
        """A plain step."""
        return self.plain.seconds

    @property
    def rounds(self) -> int:
        """How often each was measured."""
        return len(self.plain.rounds)

    def pass_seconds(self, rows: int) -> float:
        """T(rows)."""
        return on_lines(self._curve(), rows)

    def draft_seconds(self, k: int, whole: float = 0.0) -> float:
        """t_d(k), where a share `whole` of the drafts before was accepted to the end; 0 without a
        draft model.
        """
        if self.first is None or not k:
            return 0.0
        further = (self.next or self.first).seconds
        pair = (self.pair or self.first).seconds
        return (1 - whole) * self.first.seconds + whole * pair + (k - 1) * further

    def cycle_seconds(self, k: int, whole: float = 0.0) -> float:
        """C(k): a cycle that drafts k tokens; k = 0 is a plain step."""
        return self.pass_seconds(k + 1) + self.draft_seconds(k, whole)

    def break_even(self, k: int, whole: float = 0.0) -> float:
        """a*(k), accepted tokens per cycle."""
        return self.cycle_seconds(k, whole) / self.t_1 - 1

    @property
    def step_ratio(self) -> float | None:
        """A step of the draft over one of the target, as a cycle of two tokens has it."""
        return self.draft_seconds(2) / 2 / self.t_1 if self.first is not None else None

    def in_round(self, index: int) -> MeasuredCosts:
        """What one round alone says: its plain steps and its cycles were close in time."""

        def one(timing: Timing | None) -> Timing | None:
            return None if timing is None else Timing((timing.rounds[index],))

        return MeasuredCosts(
            self.n_past,
            Timing((self.plain.rounds[index],)),
            tuple((rows, Timing((timing.rounds[index],))) for rows, timing in self.passes),
            one(self.first),
            one(self.next),
            one(self.pair),
        )

    def _curve(self) -> list[tuple[int, float]]:
        return [(1, self.t_1), *((rows, timing.seconds) for rows, timing in self.passes)]


@dataclass(frozen=True, slots=True)
class RoundDone:
    """One more round; `eta` seconds (an estimate) are left."""

    index: int
    total: int
    eta: float


def measure_costs(
    target: Passes,
    draft: Passes | None,
    tokens: Sequence[int],
    n_past: int,
    ks: Sequence[int],
    *,
    rounds: int = ROUNDS,
    clock: Clock = time.perf_counter,
) -> Generator[RoundDone, None, MeasuredCosts]:
    """Measure around position `n_past` ≥ 2 of `tokens`, a text of the target's own, for these K.

    `target` must be open for max(ks) + 1 rows. Both memories hold that place afterwards.
    `measured = yield from measure_costs(…)`, or `run(measure_costs(…))` without the steps.

    Raises:
        UsageError: `n_past`, `rounds` or a K that cannot be, or a text too short.
        ContextFullError, EngineError: see `Context`.
    """
    ks = sorted(set(ks))
    longest = max([*ks, PLAIN_STEPS]) + 1
    if rounds < 1 or (ks and ks[0] < 1):
        raise UsageError("costs are measured in at least one round, and for K from 1 on")
    if n_past < 2 or len(tokens) < n_past + longest:
        raise UsageError(
            f"a text of {len(tokens)} tokens is too short to measure costs at {n_past}",
            f"at least {max(n_past, 2) + longest} tokens",
        )
    bench = _Bench(target, draft, tokens, n_past, clock)
    kept: list[_Round] = []
    began = clock()
    for index in range(rounds + 1):
        done = bench.round(ks, flip=index % 2 == 1)
        if index == 0:
            began = clock()
            continue
        kept.append(done)
        yield RoundDone(index, rounds, (clock() - began) / index * (rounds - index))
    bench.settle()
    return _gathered(kept, ks, n_past)


def run(steps: Generator[RoundDone, None, MeasuredCosts]) -> MeasuredCosts:
    """All rounds at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            costs: MeasuredCosts = end.value
            return costs


@dataclass(slots=True)
class _Round:
    plain: float
    passes: dict[int, float]
    first: list[float]
    next: list[float]
    pair: list[float]


class _Bench:
    """The two memories at one place of a text."""

    def __init__(
        self,
        target: Passes,
        draft: Passes | None,
        tokens: Sequence[int],
        n_past: int,
        clock: Clock,
    ) -> None:
        self._target, self._draft = target, draft
        self._tokens, self._n, self._clock = list(tokens), n_past, clock

    def round(self, ks: Sequence[int], *, flip: bool) -> _Round:
        """Plain steps and a cycle of each K, every second one with a pair at its start.

        With `flip` the order of all is turned round, and the other cycles get the pairs.
        """
        done = _Round(0.0, {}, [], [], [])
        parts = [None, *enumerate(ks)]
        for part in reversed(parts) if flip else parts:
            if part is None:
                done.plain = self._plain()
            else:
                at, k = part
                self._cycle(k, done, pair=(at % 2 == 0) == flip)
        if self._draft is not None:  # one K alone: both kinds of start
            for pair, found in ((True, done.pair), (False, done.first)):
                if not found and ks:
                    self._cycle(ks[0], done, pair=pair)
        return done

    def settle(self) -> None:
        """Leave both memories at the place."""
        for memory in (self._target, self._draft):
            if memory is not None:
                memory.follow(self._tokens[: self._n])

    def _plain(self) -> float:
        """Seconds of one step; the first one only finds the way back into the caches."""
        self._target.follow(self._tokens[: self._n])
        texts = self._tokens[self._n : self._n + PLAIN_STEPS + 1]
        took = [self._timed(self._target.verify, [token]) for token in texts]
        return statistics.fmean(took[1:])

    def _cycle(self, k: int, done: _Round, *, pair: bool) -> None:
        n, tokens, draft = self._n, self._tokens, self._draft
        if draft is not None:
            held = n - 1 if pair else n
            draft.follow(tokens[:held])
            took = self._timed(draft.extend, tokens[held : n + 1])
            (done.pair if pair else done.first).append(took)
            done.next += [self._timed(draft.extend, [token]) for token in tokens[n + 1 : n + k]]
        self._target.follow(tokens[:n])
        done.passes[k + 1] = self._timed(self._target.verify, tokens[n : n + k + 1])

    def _timed(self, decode: Callable[[Sequence[int]], Logits], tokens: Sequence[int]) -> float:
        start = self._clock()
        decode(tokens).argmax(axis=-1)
        return self._clock() - start


def _gathered(kept: Sequence[_Round], ks: Sequence[int], n_past: int) -> MeasuredCosts:
    def steps(name: str) -> Timing | None:
        found = [getattr(one, name) for one in kept]
        return Timing(tuple(map(statistics.fmean, found))) if all(found) else None

    return MeasuredCosts(
        n_past=n_past,
        plain=Timing(tuple(one.plain for one in kept)),
        passes=tuple((k + 1, Timing(tuple(one.passes[k + 1] for one in kept))) for k in ks),
        first=steps("first"),
        next=steps("next"),
        pair=steps("pair"),
    )


def on_lines(curve: Sequence[tuple[int, float]], at: int) -> float:
    """The value at `at` on the straight lines through the points of `curve`."""
    if len(curve) == 1:
        return curve[0][1]
    right = min(max(1, bisect_left([x for x, _ in curve], at)), len(curve) - 1)
    (x0, y0), (x1, y1) = curve[right - 1], curve[right]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
