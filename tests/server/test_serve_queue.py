"""Whose turn it is: fair among clients, in order within one, bounded."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from specctl.server.queue import FairQueue


def test_a_client_with_many_requests_does_not_keep_the_others_waiting() -> None:
    queue: FairQueue[str] = FairQueue(10)
    for name in ("a1", "a2", "a3", "b1", "c1", "b2"):
        assert queue.put(name[0], name)
    assert [queue.take() for _ in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 99))))
def test_nothing_is_lost_and_each_client_keeps_its_order(puts: list[tuple[str, int]]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue(len(puts))
    for entry in puts:
        queue.put(entry[0], entry)
    taken = [queue.take() for _ in puts]
    for client in "abc":
        assert [e for e in taken if e and e[0] == client] == [e for e in puts if e[0] == client]


def test_it_is_bounded_can_give_up_entries_and_closes() -> None:
    queue: FairQueue[int] = FairQueue(2)
    assert queue.put("a", 1)
    assert queue.put("b", 2)
    assert not queue.put("c", 3)
    assert queue.remove(1)
    assert not queue.remove(1)
    assert len(queue) == 1
    assert queue.close() == [2]
    assert not queue.put("a", 4)
    assert queue.take() is None


def test_closing_wakes_who_waits() -> None:
    queue: FairQueue[int] = FairQueue(1)
    taken: list[int | None] = []
    taker = threading.Thread(target=lambda: taken.append(queue.take()))
    taker.start()
    queue.close()
    taker.join(5)
    assert taken == [None]
