"""The guides' rules of thumb, said in words when a window breaks one and when it keeps it again.

Acceptance below a limit or drifting from this server's own baseline, verification outside its share
of a cycle, drafting above its own: the limits are in metrics.py. A rule is silent where its number
is not known.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from specctl.events import Cycle, Interval, Record
from specctl.external.remark import Remark
from specctl.metrics import (
    ACCEPTANCE_RULE,
    DRAFT_RULE,
    VERIFY_RULE,
    WINDOW,
    Totals,
    add,
    fold,
)
from specctl.units import number, percent

ENOUGH = 100  # drafted tokens from which a window says something
BASELINE = 400  # drafted tokens that make this server's own baseline
DRIFT = 0.10  # of acceptance, and at least three standard errors
_BACK = 0.02  # a rule is kept again only this far inside its limit


class Alerts:
    """Folds records. `raised`: how often a rule was broken."""

    def __init__(self) -> None:
        self._recent: deque[Cycle | Interval] = deque(maxlen=WINDOW)
        self._first = Totals()
        self._broken: set[str] = set()
        self.raised = 0

    def enter(self, record: Record) -> list[Remark]:
        """What is to be said after this record."""
        if not isinstance(record, Cycle | Interval):
            return []
        if self._first.drafted < BASELINE:
            self._first = add(self._first, record)
        self._recent.append(record)
        return list(self._judge(fold(self._recent)))

    def once(self, totals: Totals) -> list[Remark]:
        """The rules that need no window, over sums as they are."""
        return [remark for remark in self._judge(totals) if remark.kind == "alert"]

    def _judge(self, now: Totals) -> Iterator[Remark]:
        if now.drafted < ENOUGH:
            return
        for rule, distance, words, back in _rules(now, self._first):
            if distance > 0 and rule not in self._broken:
                self._broken.add(rule)
                self.raised += 1
                yield Remark(words, "alert")
            elif distance < -_BACK and rule in self._broken:
                self._broken.discard(rule)
                yield Remark(back, "note")


def _rules(now: Totals, first: Totals) -> Iterator[tuple[str, float, str, str]]:
    """Name, how far beyond its limit (negative: inside), the words for it and for the way back."""
    alpha, own = now.acceptance_rate, first.acceptance_rate
    if alpha is not None:
        limit = number(ACCEPTANCE_RULE)
        text = f"acceptance {number(alpha)} is below {limit}: plain may be faster (rule of thumb)"
        back = f"acceptance {number(alpha)} is above {limit} again"
        yield "low", ACCEPTANCE_RULE - alpha, text, back
    if alpha is not None and own is not None and first.drafted >= BASELINE:
        error = math.sqrt(own * (1 - own) / now.drafted)
        moved = abs(alpha - own) - max(DRIFT, 3 * error)
        side = "fallen to" if alpha < own else "risen to"
        text = f"acceptance has {side} {number(alpha)}: its own baseline here was {number(own)}"
        yield "drift", moved, text, f"acceptance is back at its baseline of {number(own)}"
    verify, low, high = now.verify_share, *VERIFY_RULE
    if verify is not None:
        outside = f"outside {low * 100:.0f}–{percent(high)} (rule of thumb)"
        text = f"verification takes {percent(verify)} of a cycle, {outside}"
        back = f"verification takes {percent(verify)} of a cycle again"
        yield "verify", max(low - verify, verify - high), text, back
    draft = now.draft_share
    if draft is not None:
        most = percent(DRAFT_RULE)
        text = f"drafting takes {percent(draft)} of a cycle, more than {most} (rule of thumb)"
        back = f"drafting takes {percent(draft)} of a cycle again"
        yield "draft", draft - DRAFT_RULE, text, back
