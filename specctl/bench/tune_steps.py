"""What `specctl tune` is asked, and the frozen steps that it yields."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from specctl.bench.identity import Identity
from specctl.bench.tune import Candidate, Choice, Standing
from specctl.bench.tune_lines import Stage
from specctl.bench.workloads import Prompt
from specctl.errors import UsageError
from specctl.settings import EngineSettings, Sampling


@dataclass(frozen=True, slots=True)
class Job:
    """What is searched. `threads` to try, the first is what runs without tuning; `prompts` in the
    order in which they are taken; `max_tokens` None: as the budget allows. `methods` are the
    model-bound ones of `candidates`.
    """

    model: Path
    draft: Path | None
    candidates: tuple[Candidate, ...]
    methods: tuple[str, ...]
    prompts: tuple[Prompt, ...]
    settings: EngineSettings
    sampling: Sampling
    threads: tuple[int, ...]
    minutes: float
    max_tokens: int | None = None
    widen: bool = True  # also try what the first round suggests

    def __post_init__(self) -> None:
        if not self.minutes > 0:
            raise UsageError(f"--minutes {self.minutes:g} is no time", "5 is usual")
        if not self.prompts or not self.candidates or not self.threads:
            raise UsageError("nothing to tune: no prompts, candidates or threads")

    @property
    def budget(self) -> float:
        """Seconds."""
        return self.minutes * 60


@dataclass(frozen=True, slots=True)
class Began:
    """`runs` and `seconds` were measured earlier, by this search before it was stopped."""

    candidates: tuple[str, ...]
    budget: float
    runs: int
    seconds: float
    replaced: bool


@dataclass(frozen=True, slots=True)
class StageBegan:
    """A round: `seconds` is an estimate, `known` of its runs were measured earlier."""

    stage: Stage
    seconds: float | None
    runs: int
    known: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A session is open; its `notes` are things to read once."""

    notes: tuple[str, ...]
    load: float | None


@dataclass(frozen=True, slots=True)
class Ran:
    """One more run of a round; `left` seconds of the whole search, an estimate."""

    stage: str
    arm: str
    prompt: str
    index: int
    total: int
    left: float


@dataclass(frozen=True, slots=True)
class Said:
    """One sentence on what was decided on the way."""

    text: str


@dataclass(frozen=True, slots=True)
class Disqualified:
    """A text of this candidate is not plain decoding's, and it is no tie."""

    candidate: str
    prompt: str
    identity: Identity


@dataclass(frozen=True, slots=True)
class StageDone:
    """How the candidates of a round did, fastest first."""

    stage: Stage
    standings: tuple[Standing, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The end. `standings`: of each candidate in the last round that it took part in.
    `threads_why`: what the number of threads rests on; empty where only one was asked for.
    """

    choice: Choice
    threads: int
    standings: tuple[Standing, ...]
    disqualified: tuple[Disqualified, ...]
    prompts: tuple[Prompt, ...]
    max_tokens: int
    seconds: float
    runs: int
    threads_why: tuple[str, ...] = ()


Step = Began | StageBegan | Loaded | Ran | Said | Disqualified | StageDone | Answer
Steps = Generator[Step, None, None]
