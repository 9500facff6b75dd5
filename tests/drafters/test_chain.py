from __future__ import annotations

from collections.abc import Sequence

import pytest

from specctl.drafters.base import Draft, Needs, Outcome, TargetPass, nothing
from specctl.drafters.chain import Chain
from specctl.settings import Sampling


class Scripted:
    """Drafts what it was told to and writes down who called."""

    def __init__(self, name: str, tokens: tuple[int, ...], needs: Needs, fails: bool = False):
        self.name, self.needs = name, needs
        self.tokens, self.fails = tokens, fails
        self.calls: list[str] = []

    def begin(self, tokens: Sequence[int], sampling: Sampling) -> None:
        self.calls.append(f"begin {list(tokens)}")

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        self.calls.append(f"propose {limit}")
        return Draft(self.tokens[:limit], self.name) if self.tokens else nothing(self.name, "why")

    def observe(self, target_pass: TargetPass) -> None:
        self.calls.append(f"observe {target_pass.first}")

    def settle(self, outcome: Outcome) -> None:
        self.calls.append(f"settle {outcome.draft.source} {outcome.accepted}")

    def close(self) -> None:
        self.calls.append("close")
        if self.fails:
            raise RuntimeError(f"{self.name} failed")


def test_the_first_with_a_draft_wins_and_all_hear_of_it() -> None:
    empty = Scripted("a", (), Needs(4))
    full = Scripted("b", (1, 2, 3), Needs(9, gives_laws=True))
    never = Scripted("c", (7,), Needs(2, draft_model=True))
    chain = Chain([empty, full, never])
    assert chain.name == "a,b,c"
    assert chain.needs == Needs(k_max=9, draft_model=True, gives_laws=True)
    chain.begin([5], Sampling())
    draft = chain.propose([5], 2)
    assert (draft.source, draft.tokens) == ("b", (1, 2))
    assert chain.asked == draft.asked == ("a", "b")
    chain.observe(TargetPass((5, 1, 2), 0))
    chain.settle(Outcome(draft, 1, (1, 8), 3))
    chain.close()
    heard = ["begin [5]", "propose 2", "observe 0", "settle b 1", "close"]
    assert empty.calls == full.calls == heard
    assert never.calls == [call for call in heard if not call.startswith("propose")]


def test_nothing_from_anyone_is_an_empty_draft_of_the_chain() -> None:
    chain = Chain([Scripted("a", (), Needs(4)), Scripted("b", (), Needs(4))])
    draft = chain.propose([1], 3)
    assert (draft.tokens, draft.source, draft.detail) == ((), "a,b", "why")
    assert chain.asked == draft.asked == ("a", "b")


def test_close_reaches_everyone() -> None:
    first, last = Scripted("a", (), Needs(1), fails=True), Scripted("b", (), Needs(1))
    with pytest.raises(RuntimeError, match="a failed"):
        Chain([first, last]).close()
    assert last.calls == ["close"]
