"""The frozen steps that making drafts of a model from itself yields."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specctl.bench.costs import RoundDone
from specctl.bench.forecast import Forecast
from specctl.bench.selfdraft_plan import DraftPlan, Prepared
from specctl.hub.drafts import MadeDraft


@dataclass(frozen=True, slots=True)
class Answered:
    """The target has answered one more prompt."""

    index: int
    total: int
    tokens: int
    eta: float


@dataclass(frozen=True, slots=True)
class Quantised:
    """The quantiser is at one more tensor."""

    quant: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Made:
    """A draft lies in its part file. `types` says how many bytes of each tensor type came out;
    `kind` is the quantiser's name, None where tensors were copied.
    """

    quant: str
    size: int
    bits: float
    types: tuple[tuple[str, int], ...]
    seconds: float
    kind: str | None = None

    def mostly(self, label: str) -> bool:
        """Is most of it of this tensor type?"""
        return dict(self.types).get(label, 0) * 2 > sum(size for _, size in self.types)


@dataclass(frozen=True, slots=True)
class Twin:
    """A draft came out tensor for tensor as an earlier one, `of`, which stands for both."""

    quant: str
    of: str


@dataclass(frozen=True, slots=True)
class Read:
    """The draft has read one more answer."""

    quant: str
    index: int
    total: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One more round of costs."""

    quant: str
    done: RoundDone


@dataclass(frozen=True, slots=True)
class Judged:
    """What is to be expected of one draft."""

    made: Made
    forecast: Forecast


@dataclass(frozen=True, slots=True)
class Outcome:
    """All drafts, and which was kept where, if any. `load` is the load average before."""

    plan: DraftPlan
    prepared: Prepared
    judged: tuple[Judged, ...]
    kept: MadeDraft | None
    record: Path | None
    threads: int
    load: float | None
    unix_time: float
    wall_seconds: float

    @property
    def best(self) -> Judged:
        """The one with the largest predicted speed-up."""
        return max(self.judged, key=lambda one: one.forecast.best.speedup)


Step = Prepared | Answered | Quantised | Made | Twin | Read | Measured | Judged | Outcome
