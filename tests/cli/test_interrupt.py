"""What ends a command, and what must not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from specctl.cli.interrupt import ended_alike, on_endings


@pytest.fixture(params=["SIGHUP", "SIGTERM", "SIGINT"])
def ending(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal whose handler is given back afterwards."""
    one = signal.Signals[request.param]
    before = signal.getsignal(one)
    yield one
    signal.signal(one, before)


def test_what_was_ignored_stays_ignored(ending: signal.Signals) -> None:
    """As under nohup."""
    signal.signal(ending, signal.SIG_IGN)
    with ended_alike():
        os.kill(os.getpid(), ending)
        assert signal.getsignal(ending) == signal.SIG_IGN
    assert signal.getsignal(ending) == signal.SIG_IGN


def test_the_others_end_it_once_and_get_their_handlers_back(ending: signal.Signals) -> None:
    signal.signal(ending, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt), ended_alike():
        os.kill(os.getpid(), ending)
    heard: list[int] = []
    with on_endings(lambda number, _frame: heard.append(number)):
        os.kill(os.getpid(), ending)
    assert heard == [ending]
    assert signal.getsignal(ending) is signal.default_int_handler
