"""Makes drafts of a model from itself, finds out whether they pay, and keeps the one that does.

    target answers the prompts, greedily, once → for each quant: re-quantised into a part file (one
    that comes out as an earlier one goes) → it reads the same answers, its choice is compared at
    every position (bench/forecast.py) → its passes and the target's are measured in turn
    (bench/costs.py) → kept, or deleted

As an iterator of steps; the last one is `Outcome`. Whatever ends it early, no part file stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from specctl.bench import forecast as forecasts
from specctl.bench.costs import MeasuredCosts, Passes, measure_costs
from specctl.bench.run import load_average
from specctl.bench.selfdraft_plan import DraftPlan, Wanted, prepare
from specctl.bench.selfdraft_steps import (
    Answered,
    Judged,
    Made,
    Measured,
    Outcome,
    Quantised,
    Read,
    Step,
    Twin,
)
from specctl.bench.workloads import Message
from specctl.errors import EngineError, SpecctlError, UsageError
from specctl.events import Cycle, Record
from specctl.gguf.facts import ModelFacts, read_facts
from specctl.hub import drafts
from specctl.hub.drafts import MadeDraft
from specctl.llama.quantise import quantise
from specctl.settings import EngineSettings, Request, SpecSettings

ROWS = 32  # of the draft's teacher-forced passes


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
    same: dict[str, str] = {}  # what the tensors are → the first quant that gave them
    try:
        with opener(plan.target, None, specs, plan.settings) as opened:
            session: Session = opened
            texts = yield from _answers(session, plan)
            for one in prepared.wanted:
                part = parts[one.quant] = one.file.with_name(
                    f"{one.file.stem}-{one.quant}.{os.getpid()}.part"
                )
                made = yield from _make(session, plan, one, part)
                content = _content(part) if len(prepared.wanted) > 1 else ""
                if content in same:
                    part.unlink()
                    yield Twin(one.quant, same[content])
                    continue
                same[content] = one.quant
                found = yield from _judge(session, plan, made, part, texts)
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


def _make(
    session: Session, plan: DraftPlan, wanted: Wanted, part: Path
) -> Generator[Step, None, Made]:
    began = time.monotonic()
    part.parent.mkdir(parents=True, exist_ok=True)
    making = quantise(plan.target, part, wanted.kind, session.threads, dropped=wanted.dropped)
    with contextlib.closing(making) as steps:
        for done, total in steps:
            yield Quantised(wanted.quant, done, total)
    facts = read_facts(str(part))
    made = Made(
        quant=wanted.quant,
        size=part.stat().st_size,
        bits=8 * facts.weights.total / max(1, facts.n_params),
        types=facts.tensor_types,
        seconds=time.monotonic() - began,
        kind=wanted.kind,
    )
    yield made
    return made


def _content(part: Path) -> str:
    """What the tensors are: names, types and all bytes; of the metadata nothing, which names the
    quant.
    """
    facts: ModelFacts = read_facts(str(part))
    assert facts.header is not None
    digest = hashlib.blake2b(
        repr([(one.name, one.shape, one.type) for one in facts.header.tensors]).encode()
    )
    with part.open("rb") as file:
        file.seek(facts.header.data_offset)
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _judge(
    session: Session, plan: DraftPlan, made: Made, part: Path, texts: _Texts
) -> Generator[Step, None, Judged]:
    """The draft reads the answers, and its passes are timed."""
    with _draft(part, plan.settings, session.threads) as draft:
        matches: dict[str, list[bool]] = {}
        for index, (key, text) in enumerate(texts.items(), 1):
            matches[key] = agreement(draft, text.prompt, text.answer)
            yield Read(made.quant, index, len(texts))
        costs = yield from _costs(session, plan, made.quant, draft, texts)
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
