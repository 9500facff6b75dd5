"""How much of a draft stands. Two rules: greedy, and rejection sampling with the residual.

Greedy: accept while the drafted token is the largest logit. Sampling (Leviathan et al. 2023, arXiv
2211.17192): accept x with min(1, p(x)/q(x)), else draw from max(0, p - q) normalised. A draft
without a law is a point mass; sampling the target at that position and comparing is the same law.
Both leave the output distributed exactly as the target's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specctl.drafters.base import Draft
from specctl.engine.constraint import Constraint
from specctl.errors import EngineError
from specctl.sampling import Law, Stream, best, law, residual, uniform
from specctl.settings import Sampling

if TYPE_CHECKING:
    from specctl.sampling import Logits, Mask


@dataclass(frozen=True, slots=True)
class Verdict:
    """`accepted` tokens of the draft stand; `token` is the target's own, after them."""

    accepted: int
    token: int


def judge(
    rows: Logits,
    draft: Draft,
    tokens: Sequence[int],
    sampling: Sampling,
    constraint: Constraint | None = None,
    cut: Law | None = None,
) -> Verdict:
    """Row i of `rows` [K + 1, n_vocab] is the target after `tokens` and i drafted tokens.

    `constraint` is a grammar after `tokens`; it goes along with what stands. `cut` is the law that
    a token was drawn from which the grammar cut off the draft: it counts as rejected.

    Raises:
        EngineError: the logits are not numbers, or the grammar allows none of the tokens.
    """
    recent = list(tokens[-sampling.penalty_last_n :]) if sampling.penalised else []
    mask = None if constraint is None else constraint.mask
    position = len(tokens)  # of the token that row 0 decides
    for index, drafted in enumerate(draft.tokens):
        drawn_from = draft.laws[index] if draft.laws is not None else None
        token = _decide(rows[index], recent, sampling, position + index, drafted, drawn_from, mask)
        if constraint is not None:
            constraint.accept(token)
        if token != drafted:
            return Verdict(index, token)
        if sampling.penalised:
            recent.append(drafted)
    k = len(draft.tokens)
    if cut is None:
        token = _own(rows[k], recent, sampling, position + k, mask)
    else:
        token = _replacement(_law(rows[k], recent, sampling, mask), cut, sampling, position + k)
    if constraint is not None:
        constraint.accept(token)
    return Verdict(k, token)


def _decide(
    row: Logits,
    recent: list[int],
    sampling: Sampling,
    position: int,
    drafted: int,
    drawn_from: Law | None,
    mask: Mask | None,
) -> int:
    """`drafted` where it stands, else the token that replaces it."""
    if sampling.greedy or drawn_from is None:
        return _own(row, recent, sampling, position, mask)
    p, q = _law(row, recent, sampling, mask), drawn_from
    if uniform(sampling.seed, position, Stream.ACCEPT) * q.prob(drafted) < p.prob(drafted):
        return drafted
    return _replacement(p, q, sampling, position)


def _replacement(p: Law, q: Law, sampling: Sampling, position: int) -> int:
    """After the rejection of a token drawn from `q`."""
    return residual(p, q).draw(uniform(sampling.seed, position, Stream.RESIDUAL))


def _own(
    row: Logits, recent: list[int], sampling: Sampling, position: int, mask: Mask | None
) -> int:
    """The target's own choice at a position: what plain decoding would emit there."""
    if sampling.greedy:
        token = best(row, recent, sampling, mask)
        _check(float(row[token]))
        return token
    return _law(row, recent, sampling, mask).draw(uniform(sampling.seed, position, Stream.TARGET))


def _law(row: Logits, recent: list[int], sampling: Sampling, mask: Mask | None) -> Law:
    found = law(row, recent, sampling, mask)
    _check(float(found.probs[0]))
    return found


def _check(value: float) -> None:
    if value != value:  # NaN: numpy's argmax returns the first one it meets
        raise EngineError(
            "the model computed NaN logits", "the file may be damaged; try another KV type"
        )
