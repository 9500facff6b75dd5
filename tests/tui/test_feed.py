"""The thread between the engine and the screen."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from specctl.errors import UsageError
from specctl.tui.feed import Feed
from specctl.tui.ladder import higher, lower
from specctl.tui.messages import Event, Note


@pytest.fixture
def feed() -> Iterator[Feed]:
    feed = Feed()
    yield feed
    assert feed.close()


def job(*texts: str):
    def run() -> Iterator[Event]:
        yield from (Note(text) for text in texts)

    return run


def texts(feed: Feed) -> list[str]:
    assert feed.wait()
    return [event.text for event in feed.take() if isinstance(event, Note)]


def test_jobs_run_in_order_in_another_thread(feed):
    threads: list[int] = []

    def where() -> Iterator[Event]:
        threads.append(threading.get_ident())
        yield Note("here")

    feed.submit(job("a", "b"))
    feed.submit(where)
    assert texts(feed) == ["a", "b", "here"]
    assert threads != [threading.get_ident()]


def test_what_came_can_be_taken_while_a_job_goes_on(feed):
    go, seen = threading.Event(), threading.Event()

    def slow() -> Iterator[Event]:
        yield Note("first")
        seen.set()
        go.wait(5)
        yield Note("second")

    feed.submit(slow)
    assert seen.wait(5)
    assert [e.text for e in feed.take() if isinstance(e, Note)] == ["first"]
    assert feed.busy
    go.set()
    assert texts(feed) == ["second"]
    assert not feed.busy


def test_a_failing_job_says_so_and_the_next_one_runs(feed):
    def fails() -> Iterator[Event]:
        yield Note("before")
        raise UsageError("no such file", "check the path")

    def is_broken() -> Iterator[Event]:
        yield Note("begins")
        raise ZeroDivisionError("oh")

    for one in (fails, is_broken, job("after")):
        feed.submit(one)
    assert feed.wait()
    assert feed.take() == [
        Note("before"),
        Note("no such file (check the path)", "error"),
        Note("begins"),
        Note("ZeroDivisionError: oh (a bug in specctl)", "error"),
        Note("after"),
    ]


def test_steps_of_k():
    assert lower(None, 48) == 32
    assert lower(None, 3) == 2
    assert lower(1, 48) == 1
    assert lower(5, 48) == 4
    assert higher(None) == 0
    assert higher(5) == 6
    assert higher(64) == 0
