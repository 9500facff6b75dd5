"""A recording in time."""

from __future__ import annotations

import pytest
import records as r

from specctl.tui.player import PAUSE, Player, timeline

ONE = [
    r.started("one"),
    r.prompt(seconds=0.5),
    r.cycle(0, ("a",), clock=1.0),
    r.cycle(1, ("b", "c"), drafted=2, clock=1.5),
    r.finished(3),
]
BOTH = [*ONE, r.started("two", unix_time=9999.0), r.prompt(), r.cycle(0, ("d",), clock=0.75)]


def test_the_timeline_joins_answers_with_a_short_pause():
    start = 1.5 + PAUSE
    assert timeline(BOTH) == [0.0, 0.5, 1.0, 1.5, 1.5, start, start + 0.5, start + 0.75]


def test_time_passes():
    player = Player(ONE)
    player.advance(0.0)
    assert player.live.phase == "prompt"
    player.advance(1.2)
    assert player.live.turns[0].text == "a"
    player.advance(100)
    assert player.at_end
    assert player.now == player.length == 1.5
    assert player.live.turns[0].text == "abc"


def test_steps_go_from_cycle_to_cycle_and_back():
    player = Player(BOTH)
    texts = []
    for _ in range(4):
        player.step(1)
        texts.append("|".join(turn.text for turn in player.live.turns))
    assert texts == ["a", "abc", "abc|d", "abc|d"]
    player.step(-1)
    assert [turn.text for turn in player.live.turns] == ["abc"]
    player.step(-1)
    assert player.live.turns[0].text == "a"
    player.step(-1)
    assert player.position == 0
    assert player.live.turns == []


def test_jumping_back_gives_the_same_state_as_playing_there():
    player, other = Player(BOTH), Player(BOTH)
    player.finish()
    player.seek(1.2)
    other.advance(1.2)
    assert player.live.turns == other.live.turns
    assert player.live.totals == other.live.totals
    assert player.live.version > other.live.version  # it must be drawn again


def test_an_empty_recording_is_over_at_once():
    player = Player([])
    player.advance(1)
    assert player.at_end
    assert player.length == 0


def test_nothing_is_waited_for_where_a_recording_begins_in_the_middle():
    records = [r.started(), r.prompt(seconds=0.5), r.cycle(40, clock=60.0), r.cycle(41, clock=61.0)]
    times = timeline(records)
    assert times[2] == pytest.approx(0.5 + records[2].t_c)
    assert times[3] - times[2] == pytest.approx(1.0)
    assert timeline([r.started(), r.prompt(seconds=0.5), r.cycle(0, clock=3.0)])[2] == 3.0
