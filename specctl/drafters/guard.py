"""The guides' guard for fixed drafters: below so much acceptance, off until a probe passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specctl.drafters.base import Draft, Drafter, Needs, Outcome, TargetPass, nothing
from specctl.events import Decision
from specctl.settings import Sampling

JUDGE_AFTER = 24  # drafted tokens before acceptance is judged
_MEMORY = 0.9  # per drafted cycle: the last ten or so count
PROBE_EVERY = 32  # cycles between probes while off


class Guard:
    """Passes everything on, but proposes nothing while the acceptance rate is below `least`.

    While off every 32nd cycle is a probe; one that is accepted to at least `least` switches it on
    again, with its past forgotten.
    """

    def __init__(self, drafter: Drafter, least: float) -> None:
        self._drafter = drafter
        self._least = least
        self._drafted = self._accepted = 0.0
        self._off_for = -1  # cycles since switched off or probed; -1 is on

    @property
    def name(self) -> str:
        """The guarded drafter's."""
        return self._drafter.name

    @property
    def needs(self) -> Needs:
        """The guarded drafter's."""
        return self._drafter.needs

    def begin(self, tokens: Sequence[int], sampling: Sampling) -> None:
        """A new request starts switched on."""
        self._drafter.begin(tokens, sampling)
        self._on()

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """Nothing while off, but for the probes."""
        if 0 <= self._off_for < PROBE_EVERY:
            rate = self._accepted / self._drafted
            reason = f"off: acceptance {rate:.2f} is below {self._least:.2f}"
            return replace(nothing(self.name), decision=Decision("plain", reason))
        return self._drafter.propose(tokens, limit)

    def observe(self, target_pass: TargetPass) -> None:
        """Passed on."""
        self._drafter.observe(target_pass)

    def settle(self, outcome: Outcome) -> None:
        """Judge the acceptance rate, after it was passed on."""
        self._drafter.settle(outcome)
        drafted = len(outcome.draft.tokens)
        if self._off_for >= 0:
            self._off_for += 1
            if drafted:
                if outcome.accepted >= self._least * drafted:
                    self._on()
                else:
                    self._off_for = 0
            return
        if drafted:
            self._drafted = _MEMORY * self._drafted + drafted
            self._accepted = _MEMORY * self._accepted + outcome.accepted
            if self._drafted >= JUDGE_AFTER and self._accepted < self._least * self._drafted:
                self._off_for = 0

    def close(self) -> None:
        """Passed on."""
        self._drafter.close()

    def _on(self) -> None:
        self._drafted = self._accepted = 0.0
        self._off_for = -1
