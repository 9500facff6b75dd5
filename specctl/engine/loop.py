"""THE loop: propose, verify, observe, judge, cut, settle, yield.

One generation as an iterator of records. It knows tokens, a target and a drafter; it knows no
model file, no screen and no network. The prompt's last token is the first row of the first cycle,
so that every emitted token comes out of a cycle.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from specctl.drafters.base import Draft, Drafter, Outcome, TargetPass, nothing
from specctl.engine.constraint import Constraint
from specctl.engine.judge import judge
from specctl.engine.steptime import StepTime
from specctl.engine.target import Target
from specctl.engine.text import Assembler
from specctl.errors import ContextFullError
from specctl.events import Cycle, Decision, Finished, FinishReason, PromptDone, Record
from specctl.llama.cancel import CancelledError
from specctl.sampling import Law
from specctl.settings import Request


@dataclass(slots=True)
class Run:
    """What one generation works on. `drafter` None is plain decoding; it may change in between.

    `constraint` is the request's grammar, before the first token of the answer.
    """

    target: Target
    drafter: Drafter | None
    request: Request
    assembler: Assembler
    is_eog: Callable[[int], bool]
    step_time: StepTime
    started: float  # time.perf_counter() at `Started`
    is_cancelled: Callable[[], bool] = lambda: False
    constraint: Constraint | None = None
    tokens: list[int] = field(default_factory=list)
    emitted: int = 0
    cycles: int = 0
    finish: FinishReason | None = None


def generate(run: Run) -> Iterator[Record]:
    """Records from `PromptDone` to `Finished`; the caller has yielded `Started`.

    Raises:
        ContextFullError: the prompt does not fit; nothing was generated.
        EngineError: llama.cpp failed.
    """
    prompt = run.request.tokens
    if len(prompt) > run.target.n_ctx:
        raise ContextFullError(
            f"the prompt has {len(prompt)} tokens, the context holds {run.target.n_ctx}",
            "a larger --ctx, or a shorter prompt",
        )
    run.tokens = list(prompt)
    try:
        yield _read_prompt(run)
        while run.finish is None:
            if run.is_cancelled():
                run.finish = "cancelled"
            elif len(run.tokens) > run.target.n_ctx:
                run.finish = "context"
            else:
                yield _cycle(run)
    except CancelledError:
        run.finish = "cancelled"
    yield _finished(run)


def _read_prompt(run: Run) -> PromptDone:
    begin = time.perf_counter()
    reused = run.target.follow(run.tokens[:-1])
    if run.drafter is not None:
        run.drafter.begin(run.tokens, run.request.sampling)
    return PromptDone(len(run.tokens), reused, time.perf_counter() - begin)


def _cycle(run: Run) -> Cycle:
    begin = time.perf_counter()
    native = run.target.native_seconds
    n_past = len(run.tokens) - 1
    t_1 = run.step_time.seconds  # in force before this cycle's own measurement
    limit, draft, decision, cut = _inside(run, *_propose(run))
    proposed = time.perf_counter()
    rows = run.target.verify([run.tokens[-1], *draft.tokens])
    verified = time.perf_counter()
    if run.drafter is not None:
        run.drafter.observe(TargetPass((run.tokens[-1], *draft.tokens), n_past))
    observed = time.perf_counter()
    verdict = judge(rows, draft, run.tokens, run.request.sampling, run.constraint, cut)
    stood = (*draft.tokens[: verdict.accepted], verdict.token)
    run.target.cut(n_past + 1 + verdict.accepted)
    pieces = _emit(run, stood)
    rejected = run.assembler.text(draft.tokens[verdict.accepted :])
    judged = time.perf_counter()
    t_v, t_o = verified - proposed, judged - observed
    if run.drafter is not None:
        length = n_past + 1 + len(stood)
        run.drafter.settle(Outcome(draft, verdict.accepted, stood, length, t_v + t_o, t_1))
    end = time.perf_counter()
    t_d = (proposed - begin) + (observed - verified) + (end - judged)
    if draft:
        run.step_time.drafted()
    else:
        run.step_time.plain(t_v + t_o)
    run.cycles += 1
    return Cycle(
        index=run.cycles - 1,
        asked=draft.asked or ((draft.source,) if limit else ()),
        source=draft.source if draft else None,
        limit=limit,
        drafted=draft.tokens,
        accepted=verdict.accepted,
        emitted=stood[: len(pieces)],
        text="".join(pieces),
        t_d=t_d,
        t_v=t_v,
        t_o=t_o,
        t_native=run.target.native_seconds - native,
        t_1=t_1,
        n_past=n_past,
        clock=end - run.started,
        decision=decision,
        pieces=pieces,
        rejected=rejected,
    )


def _propose(run: Run) -> tuple[int, Draft, Decision]:
    """Limit, draft and reason. Everything here is known before the draft's tokens are drawn."""
    if run.drafter is None:
        return 0, nothing("none"), Decision("plain", "no drafter")
    limit = min(run.drafter.needs.k_max, run.target.n_ctx - len(run.tokens))
    if run.request.max_tokens is not None:  # the pass adds a token of its own
        limit = min(limit, run.request.max_tokens - run.emitted - 1)
    if limit < 1:
        return 0, nothing("none"), Decision("plain", "no room for a draft")
    reason = run.step_time.wants_plain
    if reason is not None:
        return 0, nothing("none"), Decision("plain", reason)
    draft = run.drafter.propose(run.tokens, limit)
    if draft.decision is not None:
        return limit, draft, draft.decision
    if draft:
        return limit, draft, Decision("draft", draft.detail)
    return limit, draft, Decision("plain", draft.detail or "nothing to propose")


def _inside(
    run: Run, limit: int, draft: Draft, decision: Decision
) -> tuple[int, Draft, Decision, Law | None]:
    """The part of the draft that the grammar allows, and what the first token cut was drawn from.

    What is cut had no chance to stand: this changes what a pass costs, never what it says.
    """
    if run.constraint is None or not draft:
        return limit, draft, decision, None
    short, law = run.constraint.cut(draft)
    cut = len(draft.tokens) - len(short.tokens)
    if cut:
        action: Literal["draft", "plain"] = "draft" if short else "plain"
        reason = f"{decision.reason}; the grammar cut {cut} of {len(draft.tokens)}".lstrip("; ")
        decision = dataclasses.replace(decision, action=action, reason=reason)
    return limit, short, decision, law


def _emit(run: Run, stood: tuple[int, ...]) -> tuple[str, ...]:
    """Add what stood to the answer, up to where it stops; the text each token made showable."""
    pieces: list[str] = []
    for token in stood:
        if run.is_eog(token) and not run.request.ignore_eog:
            run.finish = "eog"
            break
        run.tokens.append(token)
        run.emitted += 1
        pieces.append(run.assembler.push(token))
        if run.assembler.stopped:
            run.finish = "stop"
            break
        if run.emitted == run.request.max_tokens:
            run.finish = "length"
            break
    return tuple(pieces)


def _finished(run: Run) -> Finished:
    assert run.finish is not None
    return Finished(
        reason=run.finish,
        prompt_tokens=len(run.request.tokens),
        emitted_tokens=run.emitted,
        seconds=time.perf_counter() - run.started,
        text=run.assembler.finish(),
    )
