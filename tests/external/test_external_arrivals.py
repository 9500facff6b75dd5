"""Streams that were held back, and ordinary ones that only look like it."""

from __future__ import annotations

import pytest

from specctl.external.arrivals import crowd, in_one_piece


def steps(first: float, *pieces: tuple[int, float]) -> list[float]:
    """Arrival times: (how many more, seconds between them)."""
    times = [first]
    for count, gap in pieces:
        times += [times[-1] + gap * (n + 1) for n in range(count)]
    return times


@pytest.mark.parametrize(
    ("times", "held"),
    [
        (steps(0.32, (63, 20e-6)), True),  # passed on at the end
        (steps(0.32, (30, 20e-6), (1, 0.004), (32, 20e-6)), True),  # with a hiccup
        (steps(5.0, (127, 0.0001)), True),  # over a slow network
        (steps(0.32), True),  # one text with everything in it
        (steps(0.02, (63, 0.005)), False),
        (steps(60.0, (63, 0.02)), False),  # a prompt that took a minute
        (steps(2.0, (20, 0.004)), False),  # a small model after a long queue
        (steps(0.03, (63, 0.0005)), False),  # a tiny model, really that fast
    ],
)
def test_an_answer_in_one_piece(times: list[float], held: bool) -> None:
    assert in_one_piece(times, 63) is held


def test_of_a_few_tokens_nothing_can_be_said() -> None:
    assert not in_one_piece(steps(0.32, (3, 20e-6)), 3)


@pytest.mark.parametrize(
    ("times", "count"),
    [
        (steps(0.16, (15, 20e-6), (1, 0.08), (15, 20e-6), (1, 0.08), (15, 20e-6)), 16),
        (steps(0.16, (63, 20e-6), (1, 0.2)), 64),  # the end alone comes later
        (steps(0.02, (63, 0.005)), 1),
        (steps(0.02, *[(1, 0.005), (3, 20e-6)] * 8), 1),  # accepted drafts come at once, too
        (steps(0.02, (2, 20e-6), *[(1, 0.005)] * 8), 1),
        (steps(0.03, (63, 0.0005)), 1),
        ([], 1),
    ],
)
def test_a_first_piece(times: list[float], count: int) -> None:
    assert crowd(times) == count
