"""Drawing takes its share of the time and no more, but never stops for long."""

from __future__ import annotations

import pytest

from specctl.tui.pace import LONGEST, SHARE, Pace


class Scripted:
    """A clock and a thread's computing time that a test moves."""

    def __init__(self) -> None:
        self.now = self.computed = 0.0

    def run(self, frame: float, seconds: float, tick: float = 0.125) -> int:
        """Frames drawn in `seconds`, each of which computes for `frame` seconds."""
        pace = Pace(lambda: self.now, lambda: self.computed)
        frames = 0
        while self.now < seconds:
            self.now += tick
            if pace.may_draw():
                self.computed += frame
                frames += 1
        return frames


@pytest.mark.parametrize("frame", [0.002, 0.004, 0.008, 0.012])
def test_drawing_takes_at_most_its_share(frame: float) -> None:
    script = Scripted()
    script.run(frame, 60.0)
    assert script.computed <= SHARE * 60.0 + frame


def test_a_cheap_frame_is_drawn_at_every_tick() -> None:
    assert Scripted().run(0.001, 60.0) == 480


def test_a_dear_frame_is_drawn_about_as_often_as_the_share_allows() -> None:
    frames = Scripted().run(0.008, 60.0)
    assert frames == pytest.approx(60.0 * SHARE / 0.008, rel=0.15)


def test_a_frame_that_costs_more_than_all_credit_still_comes_every_second() -> None:
    frames = Scripted().run(0.5, 60.0)
    assert frames >= 60.0 / (LONGEST + 0.25)


def test_a_dear_first_paint_and_a_busy_thread_do_not_stop_the_picture() -> None:
    """What the thread computes besides drawing eats all credit; a frame still comes each second."""
    script = Scripted()
    pace = Pace(lambda: script.now, lambda: script.computed)
    script.computed += 3.0  # the first paint
    last, gaps = 0.0, []
    while script.now < 30.0:
        script.now += 0.125
        script.computed += 0.01  # more than its share, whether it draws or not
        if pace.may_draw():
            gaps.append(script.now - last)
            last = script.now
    assert max(gaps) <= LONGEST + 0.125
