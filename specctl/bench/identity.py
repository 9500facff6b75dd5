"""Is the text of a speculative run plain decoding's, token by token? And if not: a tie or a bug?

A pass over several tokens may round differently from single steps (other kernels for other batch
shapes), so two logits that are almost equal can change places. A difference is a **tie** only if,
with the common prefix decoded again in fresh contexts, once in single steps and once with the
verify batch,

- each reproduces its arm's token,
- the gap between the two best logits is at most 2 × Δ, the largest |difference| of the two rows,
- and Δ ≤ 0.25, or at most 1.5 × what rounding does on this model without any draft: the largest
  |difference| at the same place between single steps and plain text decoded 2, 5, 9, … tokens at a
  time. (Models with quantised weights quantise activations, too; a last bit then flips whole
  steps, and thirty layers make logits differ by 1.0 and more. F16 weights: 0.05.)

At a temperature the draw decides between tokens, not the gap; there the first and third must hold.
Everything else is a **bug**. The fresh contexts never see a rejected token, so that a broken
rollback cannot pass for rounding. Drafts that were sampled from a law of their own are equal to
plain decoding in law only; their texts are not compared.

Of a server's answers the texts are compared and nothing can be decoded again: what differs is
neither a tie nor a bug, but a difference ("differs"). So it is where the check was stopped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from specctl.bench.run import PLAIN, BenchPlan, Pass, Run, RunKey
from specctl.drafters.base import nothing
from specctl.engine.judge import judge
from specctl.errors import SpecctlError
from specctl.settings import Sampling, SpecSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Row = NDArray[np.float32]

MAX_DELTA = 0.25  # logits
ROUNDING_SLACK = 1.5  # a few samples of a model's rounding are not its largest
_SHAPES = (2, 5, 9, 17, 33, 65)  # tokens at a time that the rounding is sampled with
Status = Literal["same", "tie", "bug", "law", "differs"]


class Replayer(Protocol):
    """What decides between tie and bug asks of `engine.session.Session`."""

    def replay(
        self,
        tokens: Sequence[int],
        prompt: int,
        batch: int = 1,
        extra: Sequence[int] = (),
        passes: Sequence[tuple[int, int]] = (),
    ) -> Row:
        """The row after `tokens`, decoded in a fresh context; see there."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One speculative run against plain. `index` is the first differing token of the answer;
    `gap`, `delta` and `rounding` are logits, known where the difference could be decoded again.
    """

    status: Status
    index: int | None = None
    plain_token: int | None = None  # None: plain ended here
    arm_token: int | None = None
    gap: float | None = None
    delta: float | None = None
    rounding: float | None = None  # of this model without drafts; known where Δ was large
    why: str = ""


SAME = Identity("same")
LAW = Identity("law", why="sampled drafts: equal in law only, texts are not compared")


def comparable(spec: SpecSettings, sampling: Sampling) -> bool:
    """Does one seed promise one text? Not where drafts are drawn from a law of their own."""
    draws = spec.draft.sampling == "sampled" and any(
        name.startswith("draft-") for name in spec.types
    )
    return sampling.greedy or not draws


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """The first index at which they differ; the shorter's length if it is a prefix."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))


def check(
    plan: BenchPlan, runs: Sequence[Run], session: Replayer | None, is_eog: Callable[[int], bool]
) -> dict[RunKey, Identity]:
    """Every speculative run against the plain run of the same prompt and repeat.

    Without a `session` nothing is decoded again: a text that differs is only that.
    """
    specs = {arm.name: arm.spec for arm in plan.arms}
    plain = {(run.prompt.key, run.repeat): run for run in runs if run.arm == PLAIN}
    known: dict[object, Identity] = {}  # repeats differ in the same way: decode that once
    out: dict[RunKey, Identity] = {}
    for run in runs:
        if run.arm == PLAIN:
            continue
        if not comparable(specs[run.arm], plan.sampling):
            out[run.key] = LAW
            continue
        base = plain[run.prompt.key, run.repeat]
        case = (run.prompt.key, run.arm, base.tokens, run.tokens, run.passes)
        if case not in known:
            known[case] = compare(base, run, plan.sampling, session, is_eog)
        out[run.key] = known[case]
    return out


def compare(
    plain: Run,
    arm: Run,
    sampling: Sampling,
    session: Replayer | None,
    is_eog: Callable[[int], bool],
) -> Identity:
    """Same, tie or bug; see `check`."""
    index = first_difference(plain.tokens, arm.tokens)
    if index is None:
        if plain.finish == arm.finish:
            return SAME
        return Identity("bug", len(plain.tokens), why=f"ended {arm.finish}, plain {plain.finish}")
    found = Identity("bug", index, _token(plain, index), _token(arm, index))
    if session is None:
        return replace(found, status="differs", why="the check was stopped before this text")
    sequence = [*plain.prompt_tokens, *plain.tokens[:index]]
    try:
        single = session.replay(sequence, prompt=len(plain.prompt_tokens) - 1)
        batched = _batched(arm, index, session)
    except SpecctlError as error:
        return _because(found, f"could not be decoded again: {error.message}")

    def gives(row: Row, token: int | None) -> bool:
        chosen = judge(row[None, :], nothing("none"), sequence, sampling).token
        return is_eog(chosen) if token is None else chosen == token

    if not gives(single, found.plain_token):
        return _because(found, "single steps do not give plain's token again")
    row = next((row for row in batched if gives(row, found.arm_token)), None)
    if row is None:
        return _because(found, "the verify batch does not give the arm's token again")
    weighed = _weigh(found, single, row, sampling.greedy, MAX_DELTA)
    if weighed.delta is not None and weighed.delta > MAX_DELTA:
        own = len(_trace(arm, index)[2]) + 1
        rounding = _rounding(session, single, sequence, len(plain.prompt_tokens) - 1, own)
        limit = max(MAX_DELTA, ROUNDING_SLACK * rounding)
        weighed = _weigh(found, single, row, sampling.greedy, limit)
        said = f"{weighed.why}; without drafts rounding makes up to {rounding:.3g} here"
        return dataclasses.replace(weighed, rounding=rounding, why=said)
    return weighed


def _rounding(
    session: Replayer, single: Row, sequence: Sequence[int], prompt: int, own: int
) -> float:
    """The largest |difference| of this row between single steps and passes over plain text, of
    several sizes and of the arm's `own` (rows).
    """
    answer = len(sequence) - prompt
    rows = []
    for shape in sorted({*_SHAPES, own}):
        batch = min(shape, answer)  # what is longer than the answer is filled up behind it
        filler = [sequence[-1]] * (shape - batch)
        rows.append(session.replay(sequence, prompt, batch, filler))
    return max(float(abs(row - single).max()) for row in rows)


def _weigh(found: Identity, single: Row, row: Row, greedy: bool, limit: float) -> Identity:
    """Both rows give their arm's token: are they close enough for rounding?"""
    delta = float(abs(single - row).max())
    status: Status
    two = single.argpartition(len(single) - 2)[-2:]
    gap = float(abs(single[two[0]] - single[two[1]]))
    if delta > limit:
        status, why = "bug", f"Δ {delta:.3g} is above {limit:.3g}"
    elif greedy and gap > 2 * delta:
        status, why = "bug", f"gap {gap:.3g} is above 2 × Δ {delta:.3g}"
    else:
        status, why = "tie", f"gap {gap:.3g}, Δ {delta:.3g}"
    return dataclasses.replace(found, status=status, gap=gap, delta=delta, why=why)


def _because(found: Identity, why: str) -> Identity:
    return dataclasses.replace(found, why=why)


def _token(run: Run, index: int) -> int | None:
    return run.tokens[index] if index < len(run.tokens) else None


def _batched(arm: Run, index: int, session: Replayer) -> tuple[Row, Row]:
    """The row that decides token `index` in the pass that decided it: after a prefix of single
    steps, and after one of the arm's own passes, other tokens standing for what they rejected (what
    those rounded is in the KV cache, too).
    """
    first, before, drafted = _trace(arm, index)
    batch = index - first + 1
    tokens = [*arm.prompt_tokens, *arm.tokens[:index]]
    prompt = len(arm.prompt_tokens) - 1
    extra = drafted[batch - 1 :]
    return (
        session.replay(tokens, prompt, batch, extra),
        session.replay(tokens, prompt, batch, extra, before),
    )


def _trace(run: Run, index: int) -> tuple[int, tuple[tuple[int, int], ...], tuple[int, ...]]:
    """The pass that decided token `index` of the answer: the first token it decided, the passes
    before it as (tokens kept, rows), and its draft.
    """
    first = 0
    *others, last = run.passes
    for number, one in enumerate(others):
        if index < first + one.emitted:
            return first, _shapes(run.passes[:number]), one.drafted
        first += one.emitted
    return first, _shapes(others), last.drafted


def _shapes(passes: Sequence[Pass]) -> tuple[tuple[int, int], ...]:
    return tuple((one.emitted, len(one.drafted) + 1) for one in passes)
