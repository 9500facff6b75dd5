"""What a drafter is. Read this first; each method is then one file beside it.

The engine owns the token list and the target's memory; a drafter owns only its own memory, and
nobody cuts someone else's. Per cycle the loop calls, in this order:

    propose(tokens, limit)   → Draft      an empty draft is a normal answer: the cycle is plain
    observe(target_pass)                  the target has just decoded these rows
    settle(outcome)                       this is what stood

Every drafter gets every outcome, also those of cycles that another one drafted: it knows its own by
`outcome.draft.source`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from specctl.events import Decision
from specctl.sampling import Law
from specctl.settings import Sampling


@dataclass(frozen=True, slots=True)
class Needs:
    """Declared before the target is opened, so that nothing later asks which kind a drafter is.

    `k_max` is the largest draft it will ever propose (tokens). `draft_model`: it decodes with a
    model of its own; `heads`: with MTP heads of the target. `gives_laws`: its drafts may carry the
    law they were drawn from.
    """

    k_max: int
    draft_model: bool = False
    heads: bool = False
    gives_laws: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens, at most `limit` of them.

    `laws[i]` is the law token i was really drawn from; None, for one token or for all, means a
    point mass (greedy drafts, look-ups). `confidences` are the drafter's own guesses that token i
    will be accepted given that those before it are. `detail` is for people: `match 14`.
    """

    tokens: tuple[int, ...]
    source: str
    laws: tuple[Law | None, ...] | None = None
    confidences: tuple[float, ...] | None = None
    detail: str = ""
    asked: tuple[str, ...] = ()  # who was asked for this draft, where that is more than `source`
    decision: Decision | None = None  # a controller's choice and reason

    def __bool__(self) -> bool:
        return bool(self.tokens)


@dataclass(frozen=True, slots=True)
class TargetPass:
    """The rows the target just decoded: `tokens` at positions `first`, `first` + 1, …

    Valid until the target's next decode.
    """

    tokens: tuple[int, ...]
    first: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What stood: `accepted` of the draft, then the target's own token.

    `emitted` is the accepted tokens and the target's own (before any stop cuts the text);
    `length` is the number of tokens of the sequence afterwards, `emitted` included. `seconds` is
    what the target's pass and judging it took (t_v + t_o), `t_1` the plain-step estimate in force.
    """

    draft: Draft
    accepted: int
    emitted: tuple[int, ...]
    length: int
    seconds: float = 0.0
    t_1: float | None = None


class Drafter(Protocol):
    """A method that proposes tokens. See the module's docstring for the order of calls."""

    @property
    def name(self) -> str:
        """The spec type, as users write it: `ngram-simple`."""

    @property
    def needs(self) -> Needs:
        """Fixed for the drafter's life."""

    def begin(self, tokens: Sequence[int], sampling: Sampling) -> None:
        """A new generation starts from these tokens; state of a common prefix may be kept."""

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """At most `limit` ≥ 1 tokens that may follow `tokens` (the whole sequence with its prompt).

        `tokens` only ever grows between `begin`s; it is the caller's list and must not be kept or
        changed. "Cannot draft now" is an empty draft, never an exception.
        """

    def observe(self, target_pass: TargetPass) -> None:
        """The target decoded these rows (last accepted token and the draft)."""

    def settle(self, outcome: Outcome) -> None:
        """What stood of the cycle, whoever drafted it."""

    def close(self) -> None:
        """Free what is held; may be called twice."""


def nothing(source: str, detail: str = "") -> Draft:
    """The empty draft of `source`."""
    return Draft(tokens=(), source=source, detail=detail)
