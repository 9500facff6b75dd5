"""draft-mtp: what the other tests would not notice if it were wrong, made wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tiny
from lossless_kit import run, spec_of
from mtp_kit import begin, noticed, prompt_of

from specctl.llama.heads import Heads

pytestmark = pytest.mark.native


def right_share(tiny_models, k: int = 4) -> float:
    """Of a head that is right exactly where it is handed the hidden state of the token before."""
    with begin(tiny_models, "mtp-clock", spec_of("draft-mtp", k=k)) as session:
        got = run(session, spec_of("draft-mtp", k=k), prompt_of(k), 120)
    assert got.totals.drafted > 50
    return got.totals.acceptance_rate


@pytest.mark.parametrize("k", [1, 2, 4, 7])
def test_the_hidden_states_are_those_of_the_token_before(tiny_models, k):
    assert right_share(tiny_models, k) == 1.0


def test_teeth_hidden_states_of_another_token(tiny_models, monkeypatch):
    before, last = Heads._before, [np.zeros(tiny.EMBD, np.float32)]

    def late(self, at, count):
        states = before(self, at, count).copy()
        shifted = np.concatenate([last[0][None], states[:-1]])
        last[0] = states[-1]
        return shifted

    monkeypatch.setattr(Heads, "_before", late)
    assert right_share(tiny_models) < 0.9


def test_teeth_not_every_row_is_an_output(tiny_models, monkeypatch):
    """The state is then another row's: lossless, and worse."""

    def last_only(self, count):
        self._last = self._view(self._get_logits(self.handle), count, self.n_vocab)[-1]
        self._chain[:] = self._view(self._extra.rows(self.handle), count, self._width)[0]

    monkeypatch.setattr(Heads, "_keep", last_only)
    assert right_share(tiny_models) < 0.9


def broken(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    def no_states(patch: pytest.MonkeyPatch) -> None:
        before = Heads._before
        patch.setattr(
            Heads, "_before", lambda self, at, count: np.zeros_like(before(self, at, count))
        )

    def kept_drafts(patch: pytest.MonkeyPatch) -> None:
        """What it read while drafting is taken for read with the target."""

        def keeping(self, length):
            self._true = min(len(self.tokens), length)
            del self.tokens[self._true :]

        patch.setattr(Heads, "cut", keeping)
        patch.setattr(Heads, "taken_back", lambda self, length, common: None)

    def stale_cells(patch: pytest.MonkeyPatch) -> None:
        """Rejected positions stay in the native memory."""
        decode = Heads._decode

        def decoding(self, tokens, states, batch):
            self._cells = min(self._cells, len(self.tokens))
            decode(self, tokens, states, batch)

        patch.setattr(Heads, "_decode", decoding)

    return {"no states": no_states, "kept drafts": kept_drafts, "stale cells": stale_cells}[name]


@pytest.mark.parametrize("name", ["no states", "kept drafts", "stale cells"])
@pytest.mark.parametrize("pair", ["mtp", "mtp-glm"])
def test_teeth_heads_out_of_step_are_noticed(tiny_models, monkeypatch, name, pair):
    with begin(tiny_models, pair) as tried, begin(tiny_models, pair) as fresh:
        assert noticed(tried, fresh, broken(name), monkeypatch) >= 3
