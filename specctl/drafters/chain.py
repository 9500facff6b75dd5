"""A comma list of drafters: the first one that has something drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specctl.drafters.base import Draft, Drafter, Needs, Outcome, TargetPass, nothing
from specctl.settings import Sampling


class Chain:
    """Asks its members in list order; the first non-empty draft is the cycle's.

    Every member sees every pass and every outcome, and knows its own by `outcome.draft.source`.
    (llama.cpp asks in a fixed order of its own, whatever the list says.)
    """

    def __init__(self, members: Sequence[Drafter]) -> None:
        self._members = tuple(members)
        self._asked: tuple[str, ...] = ()
        needs = [member.needs for member in self._members]
        self._needs = Needs(
            k_max=max((each.k_max for each in needs), default=0),
            draft_model=any(each.draft_model for each in needs),
            heads=any(each.heads for each in needs),
            gives_laws=any(each.gives_laws for each in needs),
        )

    @property
    def name(self) -> str:
        """The members' names, in order, with commas."""
        return ",".join(member.name for member in self._members)

    @property
    def needs(self) -> Needs:
        """The largest draft of any member, and whatever any of them needs."""
        return self._needs

    @property
    def asked(self) -> tuple[str, ...]:
        """Who was asked by the last `propose`, in order; the last one drafted, if any did."""
        return self._asked

    def begin(self, tokens: Sequence[int], sampling: Sampling) -> None:
        """A new generation, for all."""
        for member in self._members:
            member.begin(tokens, sampling)

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """The first non-empty draft; the others are not asked."""
        asked: list[str] = []
        draft = nothing(self.name)
        for member in self._members:
            asked.append(member.name)
            draft = member.propose(tokens, limit)
            if draft:
                break
        self._asked = tuple(asked)
        return replace(draft if draft else nothing(self.name, draft.detail), asked=self._asked)

    def observe(self, target_pass: TargetPass) -> None:
        """For all."""
        for member in self._members:
            member.observe(target_pass)

    def settle(self, outcome: Outcome) -> None:
        """For all, whoever drafted."""
        for member in self._members:
            member.settle(outcome)

    def close(self) -> None:
        """Closes the members, each even if one before it failed."""
        failure: Exception | None = None
        for member in self._members:
            try:
                member.close()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure
