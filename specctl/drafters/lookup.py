"""What drafters without a model share: no passes to observe, nothing to free but memory."""

from __future__ import annotations

from collections.abc import Sequence

from specctl.drafters.base import Needs, Outcome, TargetPass


class Lookup:
    """The parts of the `Drafter` protocol that a look-up in known text leaves empty."""

    def __init__(self, name: str, k_max: int) -> None:
        self._name = name
        self._needs = Needs(k_max=k_max)

    @property
    def name(self) -> str:
        """The spec type."""
        return self._name

    @property
    def needs(self) -> Needs:
        """No draft model, no laws: every draft is a point mass."""
        return self._needs

    def observe(self, target_pass: TargetPass) -> None:
        """Look-ups draft from tokens alone."""

    def settle(self, outcome: Outcome) -> None:
        """The next `propose` sees what stood in the tokens themselves."""


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return min(len(a), len(b))


def kept(known: Sequence[int], tokens: Sequence[int], *, begin: bool) -> int:
    """How many of the `known` tokens still hold for `tokens`.

    Between `begin`s the caller's list only grows, so the last known token is all there is to check;
    a list that broke that promise is compared in full, as at `begin`.
    """
    length = len(known)
    grown = length <= len(tokens) and (length == 0 or tokens[length - 1] == known[-1])
    return length if grown and not begin else common_prefix(known, tokens)


def continuation(text: Sequence[int], start: int, count: int) -> tuple[int, ...]:
    """`count` tokens from `start` < len(text) on; past the end the copied stretch repeats.

    A match that overlaps the end of the text means the text has a period of len(text) - start:
    copying on from the copy is what a text that keeps repeating would say.
    """
    copied = list(text[start : start + count])
    period = len(copied)
    while len(copied) < count:
        copied.extend(copied[len(copied) - period :][: count - len(copied)])
    return tuple(copied)
