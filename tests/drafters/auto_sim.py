"""A world without llama.cpp for the controller: a known answer, a scripted cost of each pass, and
a clock that only moves when something is paid for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from specctl.drafters import auto, model_source
from specctl.drafters.auto import PATH_FLOOR, Auto
from specctl.drafters.base import Drafter, Needs, Outcome, nothing
from specctl.drafters.costs import CostCurve
from specctl.drafters.model_source import ModelSource
from specctl.drafters.suffix import NgramSuffix
from specctl.events import Decision
from specctl.sampling import Law
from specctl.settings import Sampling

T_1 = 0.02  # seconds of a plain step

Cost = Callable[[int, int], float]  # (rows, tokens generated so far) → plain steps


def memory_bound(rows: int, _done: int = 0) -> float:
    """One further row costs a sixth of a plain step: an F16 target on a CPU, or a GPU."""
    return 1.0 + (rows - 1) / 6


def compute_bound(rows: int, _done: int = 0) -> float:
    """One further row costs 0.8 plain steps: hardly any draft pays."""
    return 1.0 + 0.8 * (rows - 1)


class Clock:
    """Stands in for the `time` module of the drafters."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class FakeModel:
    """A `SmallModel` that knows the answer and is right as often as `chance` says.

    `chance(position)` is for the token at that position of the whole sequence. `honest`: its own
    probability is that chance, else it is always sure of itself.
    """

    name = "draft-simple"
    needs = Needs(k_max=48, draft_model=True)

    def __init__(
        self,
        answer: Sequence[int],
        chance: Callable[[int], float],
        clock: Clock,
        step: float = 0.1,
        honest: bool = True,
    ) -> None:
        self._answer, self._chance, self._clock = answer, chance, clock
        self._step, self._honest = step, honest
        self._random = random.Random(3)
        self._held = 0
        self.steps_taken = 0

    def begin(self, tokens: Sequence[int], sampling: Sampling) -> None:
        self._held = len(tokens) - 1

    def unread(self, tokens: Sequence[int]) -> int:
        return len(tokens) - self._held

    def steps(
        self, tokens: Sequence[int], *, confident: bool = False
    ) -> Iterator[tuple[int, Law | None, float]]:
        at = len(tokens)
        while at < len(self._answer):
            self._clock.now += self._step * T_1
            self.steps_taken += 1
            chance = self._chance(at)
            right = self._random.random() < chance
            yield (
                self._answer[at] if right else 1_000_000 + at,
                None,
                chance if self._honest else 0.99,
            )
            at += 1

    def settle(self, outcome: Outcome) -> None:
        self._held = outcome.length - 1

    def close(self) -> None:
        pass


@dataclass
class Result:
    """What happened: per cycle (tokens done before, drafted, accepted, decision), and the cost."""

    cycles: list[tuple[int, int, int, Decision | None]]
    steps: float  # plain steps spent
    tokens: int

    @property
    def speed(self) -> float:
        """Against plain decoding."""
        return self.tokens / self.steps

    def between(self, first: int, last: int) -> list[tuple[int, int, int, Decision | None]]:
        return [cycle for cycle in self.cycles if first <= cycle[0] < last]


def run(
    drafter: Drafter,
    prompt: Sequence[int],
    answer: Sequence[int],
    cost: Cost = memory_bound,
    clock: Clock | None = None,
) -> Result:
    """Generate `answer` greedily; what the drafter itself costs is what it moves the clock by."""
    clock = clock or Clock()
    tokens = list(prompt)
    drafter.begin(tokens, Sampling())
    result = Result([], 0.0, len(answer))
    done = 0
    while done < len(answer):
        limit = min(drafter.needs.k_max, len(answer) - done - 1)
        before = clock.now
        draft = drafter.propose(tokens, limit) if limit > 0 else nothing("none")
        drafting = (clock.now - before) / T_1
        accepted = 0
        while accepted < len(draft.tokens) and draft.tokens[accepted] == answer[done + accepted]:
            accepted += 1
        paid = cost(len(draft.tokens) + 1, done)
        emitted = tuple(answer[done : done + accepted + 1])
        tokens += emitted
        result.cycles.append((done, len(draft.tokens), accepted, draft.decision))
        done += len(emitted)
        result.steps += paid + drafting
        drafter.settle(Outcome(draft, accepted, emitted, len(tokens), paid * T_1, T_1))
    return result


def make(model: ModelSource | None = None, costs: CostCurve | None = None, k: int = 48) -> Auto:
    """The controller as the registry makes it."""
    return Auto(NgramSuffix(k, PATH_FLOOR, shortest=1), model, costs or CostCurve(), k)


def on_clock(monkeypatch: object, clock: Clock) -> None:
    """Let the drafters read the simulated clock."""
    for module in (auto, model_source):
        monkeypatch.setattr(module, "time", clock)  # type: ignore[attr-defined]


def copying_text(
    shares: Sequence[float], stretch: int, seed: int = 1, vocabulary: int = 5000
) -> tuple[list[int], list[int]]:
    """(prompt, answer): the answer copies the prompt, each token with the stretch's share, else a
    new token stands there; as an edit of a given text does.
    """
    chance = random.Random(seed)
    prompt = [chance.randrange(vocabulary) for _ in range(stretch * len(shares))]
    answer = []
    for at, token in enumerate(prompt):
        keep = chance.random() < shares[at // stretch]
        answer.append(token if keep else vocabulary + chance.randrange(vocabulary))
    return prompt, answer
