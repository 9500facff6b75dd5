"""Makes drafts of a model from itself, finds out whether they pay, and keeps the one that does.

    target answers the prompts, greedily, once → for each quant: re-quantised into a part file →
    it reads the same answers, its choice is compared at every position (bench/forecast.py) → its
    passes and the target's are measured in turn (bench/costs.py) → kept, or deleted

As an iterator of steps; the last one is `Outcome`. Whatever ends it early, no part file stays.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from specctl.bench import forecast as forecasts
from specctl.bench.costs import MeasuredCosts, Passes, RoundDone, measure_costs
from specctl.bench.forecast import Forecast
from specctl.bench.run import load_average
from specctl.bench.selfdraft_plan import DraftPlan, Prepared, Wanted, prepare
from specctl.bench.workloads import Message
from specctl.errors import EngineError, SpecctlError, UsageError
from specctl.events import Cycle, Record
from specctl.gguf.facts import read_facts
from specctl.hub import drafts
from specctl.hub.drafts import MadeDraft
from specctl.llama.quantise import quantise
from specctl.settings import EngineSettings, Request, SpecSettings

ROWS = 32  # of the draft's teacher-forced passes


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
    """A draft lies in its part file. `types` says how many bytes of each tensor type came out."""

    quant: str
    size: int
    bits: float
    types: tuple[tuple[str, int], ...]
    seconds: float

    def mostly(self, label: str) -> bool:
        """Is most of it of this tensor type?"""
        return dict(self.types).get(label, 0) * 2 > sum(size for _, size in self.types)


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


Step = Prepared | Answered | Quantised | Made | Read | Measured | Judged | Outcome


class Session(Protocol):
    """What is asked of `engine.session.Session`."""

    threads: int

    @property
    def context(self) -> Any:
        """The target's memory."""

    @property
    def k_max(self) -> int:
        """Rows are reserved for drafts of so many tokens."""

    def chat(self, messages: Sequence[Message], think: bool | None = None) -> tuple[int, ...]:
        """Prompt tokens."""

    def generate(self, request: Request) -> Iterator[Record]:
        """The records of one generation."""


Opener = Callable[
    [Path, Path | None, Sequence[SpecSettings], EngineSettings], AbstractContextManager[Any]
]


# ---------------------------------------------------------------- the job


def make(plan: DraftPlan, opener: Opener) -> Generator[Step, None, None]:
    """Every step. `opener` is `engine.session.open_session`.

    Raises:
        SpecctlError: as `prepare`; a prompt does not fit the context; a model does not load.
    """
    load, unix_time, began = load_average(), time.time(), time.monotonic()
    prepared = prepare(plan)
    yield prepared
    specs = (SpecSettings(), SpecSettings(types=("ngram-simple",), k=max(plan.ks)))
    judged: list[Judged] = []
    parts: dict[str, Path] = {}
    try:
        with opener(plan.target, None, specs, plan.settings) as opened:
            session: Session = opened
            texts = yield from _answers(session, plan)
            for one in prepared.wanted:
                part = parts[one.quant] = one.file.with_name(
                    f"{one.file.stem}-{one.quant}.{os.getpid()}.part"
                )
                found = yield from _one(session, plan, one, part, texts)
                judged.append(found)
                _keep_best(judged, parts)
            threads = session.threads
        best = max(judged, key=lambda found: found.forecast.best.speedup)
        kept = record = None
        if best.forecast.pays or plan.out is not None:
            wanted = next(one for one in prepared.wanted if one.quant == best.made.quant)
            kept, record = _keep(plan, best, parts[best.made.quant], wanted.file)
    finally:
        for part in parts.values():
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
    yield Outcome(
        plan=plan,
        prepared=prepared,
        judged=tuple(judged),
        kept=kept,
        record=record,
        threads=threads,
        load=load,
        unix_time=unix_time,
        wall_seconds=time.monotonic() - began,
    )


@dataclass(frozen=True, slots=True)
class _Text:
    """A prompt's tokens and the target's greedy answer."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def tokens(self) -> list[int]:
        return [*self.prompt, *self.answer]


_Texts = Mapping[str, _Text]


def _answers(session: Session, plan: DraftPlan) -> Generator[Answered, None, _Texts]:
    prompts = {one.key: tuple(session.chat(one.messages())) for one in plan.prompts}
    for key, tokens in prompts.items():
        needed = len(tokens) + plan.max_tokens + 1
        if needed > session.context.n_ctx:
            raise UsageError(
                f"prompt {key} has {len(tokens)} tokens; with {plan.max_tokens} to generate that "
                f"is more than the context of {session.context.n_ctx}",
                f"--ctx {needed} or more",
            )
    texts: dict[str, _Text] = {}
    began = time.monotonic()
    for index, (key, tokens) in enumerate(prompts.items(), 1):
        records = session.generate(Request(tokens, max_tokens=plan.max_tokens))
        cycles = [record for record in records if isinstance(record, Cycle)]
        texts[key] = _Text(tokens, tuple(token for one in cycles for token in one.emitted))
        per_text = (time.monotonic() - began) / index
        yield Answered(
            index, len(prompts), len(texts[key].answer), per_text * (len(prompts) - index)
        )
    return texts


def _one(
    session: Session, plan: DraftPlan, wanted: Wanted, part: Path, texts: _Texts
) -> Generator[Step, None, Judged]:
    """Make one draft, read it, measure it."""
    began = time.monotonic()
    part.parent.mkdir(parents=True, exist_ok=True)
    quant = wanted.quant
    with contextlib.closing(quantise(plan.target, part, quant, session.threads)) as steps:
        for done, total in steps:
            yield Quantised(quant, done, total)
    facts = read_facts(str(part))
    made = Made(
        quant=quant,
        size=part.stat().st_size,
        bits=8 * facts.weights.total / max(1, facts.n_params),
        types=facts.tensor_types,
        seconds=time.monotonic() - began,
    )
    yield made
    with _draft(part, plan.settings, session.threads) as draft:
        matches: dict[str, list[bool]] = {}
        for index, (key, text) in enumerate(texts.items(), 1):
            matches[key] = agreement(draft, text.prompt, text.answer)
            yield Read(quant, index, len(texts))
        costs = yield from _costs(session, plan, quant, draft, texts)
    lengths = range(1, min(max(plan.ks), session.k_max) + 1)
    found = Judged(made, forecasts.forecast(matches, costs, lengths))
    yield found
    return found


def _costs(
    session: Session, plan: DraftPlan, quant: str, draft: Passes, texts: _Texts
) -> Generator[Measured, None, MeasuredCosts]:
    """At the middle of the text of median length, where there are tokens after it."""
    by_length = sorted(texts.values(), key=lambda text: len(text.tokens))
    text = by_length[len(by_length) // 2]
    ks = [k for k in plan.ks if k <= session.k_max] or [1]
    tokens = text.tokens
    if len(text.answer) < 2:
        raise EngineError(
            f"{plan.name} answers the prompt of median length with {len(text.answer)} tokens: "
            "nothing to draft in",
            "other prompts, or more --max-tokens",
        )
    n_past = len(text.prompt) + len(text.answer) // 2
    filler = [*text.answer] * (1 + (max(ks) + 8) // len(text.answer))
    room = session.context.n_ctx - n_past
    steps = measure_costs(
        session.context,
        draft,
        [*tokens[:n_past], *(tokens[n_past:] + filler)[:room]],
        n_past,
        ks,
        rounds=plan.rounds,
    )
    while True:
        try:
            yield Measured(quant, next(steps))
        except StopIteration as end:
            costs: MeasuredCosts = end.value
            return costs


@contextmanager
def _draft(part: Path, settings: EngineSettings, threads: int) -> Iterator[Passes]:
    """A context of the draft with rows for the teacher-forced passes."""
    from specctl.llama.context import Context
    from specctl.llama.model import Model

    model = Model(part, settings.draft)
    try:
        context = Context(model, settings, settings.draft, threads=threads, rows=ROWS)
        try:
            yield context
        finally:
            context.close()
    finally:
        model.close()


def agreement(draft: Passes, prompt: Sequence[int], answer: Sequence[int]) -> list[bool]:
    """For each token of `answer`: would the draft, having read all before it, have chosen it?"""
    tokens = [*prompt, *answer]
    first = len(prompt) - 1
    matches: list[bool] = []
    for start in range(first, len(tokens) - 1, ROWS):
        draft.follow(tokens[:start])
        rows = tokens[start : min(start + ROWS, len(tokens) - 1)]
        chosen = draft.verify(rows).argmax(axis=-1)
        matches += [
            int(token) == right
            for token, right in zip(chosen, tokens[start + 1 : start + 1 + len(rows)], strict=True)
        ]
    return matches


def _keep_best(judged: Sequence[Judged], parts: Mapping[str, Path]) -> None:
    """Only the best part file stays: disks are small."""
    best = max(judged, key=lambda found: found.forecast.best.speedup)
    for found in judged:
        if found is not best:
            parts[found.made.quant].unlink(missing_ok=True)


def _keep(plan: DraftPlan, best: Judged, part: Path, file: Path) -> tuple[MadeDraft, Path]:
    """Give the part its name, never over another file, and record whose draft it is."""
    try:
        os.link(part, file)
    except FileExistsError:
        raise UsageError(f"{file} has appeared meanwhile; nothing is overwritten") from None
    except OSError:  # a file system without links
        if file.exists():
            raise UsageError(f"{file} has appeared meanwhile; nothing is overwritten") from None
        part.rename(file)
    identity, expected = drafts.identify(plan.target), best.forecast.best
    made = MadeDraft(
        file=str(file.resolve()),
        size=file.stat().st_size,
        quant=best.made.quant,
        target=str(plan.target.resolve()),
        target_size=identity.size,
        target_digest=identity.digest,
        k=expected.k,
        accepted=expected.accepted,
        break_even=expected.break_even,
        speedup=expected.speedup,
        noise=expected.noise,
        pays=best.forecast.pays,
        workload=plan.workload,
        unix_time=time.time(),
    )
    try:
        return made, drafts.keep(made)
    except SpecctlError:  # nobody would know whose draft it is
        if plan.out is None:
            file.unlink()
        raise
