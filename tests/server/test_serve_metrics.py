"""The page at /metrics, read by specctl's own reader."""

from __future__ import annotations

from typing import Any

import pytest

from specctl.events import Cycle, Decision, Finished, PromptDone
from specctl.external.exposition import parse
from specctl.external.readings import read_series, specctl_method
from specctl.server.metrics import Board


def cycle(drafted: int, accepted: int) -> Cycle:
    values: dict[str, Any] = {
        "index": 0, "asked": (), "source": "draft" if drafted else None, "limit": drafted,
        "drafted": (1,) * drafted, "accepted": accepted, "emitted": (1,) * (accepted + 1),
        "text": "", "t_d": 0.25, "t_v": 0.5, "t_o": 0.25, "t_native": 0.0, "t_1": None,
        "n_past": 0, "clock": 0.0, "decision": Decision("draft", ""),
    }  # fmt: skip
    return Cycle(**values)


def test_what_was_answered_is_read_back() -> None:
    board = Board(("ngram-mod", "draft-simple"))
    for record in (PromptDone(9, 4, 0.5), cycle(3, 2), cycle(4, 4), cycle(0, 0)):
        board.take(record)
    board.take(Finished("eog", 9, 9, 1.0))
    board.running = 1
    samples = parse(board.text(waiting=7))
    reading = read_series("specctl", samples)
    sums = reading.sums
    assert (sums.drafts, sums.drafted, sums.accepted, sums.generated) == (2, 7, 6, 9)
    assert (sums.passes, sums.seconds) == (3, 3.0)
    assert sums.accepted_at == (2, 2, 1, 1)
    assert sums.drafted_at == (2, 2, 2, 1)
    assert reading.running == 1
    assert reading.began is not None
    finished = samples.by_name["specctl:request_finished_total"]
    assert finished == (({"reason": "eog"}, 1.0),)
    assert samples.total("specctl:num_requests_waiting") == 7
    assert samples.total("specctl:prompt_tokens_cached_total") == 4


@pytest.mark.parametrize(
    ("types", "told"),
    [(("auto",), (True, "auto")), (("a", "b"), (True, "a,b")), (("none",), (False, ""))],
)
def test_it_says_whether_it_speculates_and_by_what(types: Any, told: Any) -> None:
    samples = parse(Board(types).text(0))
    assert specctl_method(samples) == told
    assert read_series("specctl", samples).speculates is (True if told[0] else None)
