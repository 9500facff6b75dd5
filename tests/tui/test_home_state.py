"""The fold behind the home screen, without a terminal."""

from __future__ import annotations

import pytest
from home_stage import ALL, DOWNLOADED, RECOMMENDED, RESULTS, home, model, proposal, pull, run

from specctl.tui.home_state import (
    SECTIONS,
    Failed,
    Home,
    Looking,
    Pulled,
    Pulling,
    Seen,
    beside,
    heights,
)
from specctl.tui.messages import Note


def test_sections_come_one_by_one_and_looking_ends_with_the_last():
    state = Home()
    state.apply(Looking())
    assert state.waiting == frozenset(SECTIONS)
    state.apply(Seen("machine", (), final=False))
    assert "machine" in state.waiting  # the engine has still to be asked
    for event in ALL:
        state.apply(event)
    assert not state.waiting
    assert all(part.seen for part in state.parts.values())


def test_one_that_fails_hides_only_itself():
    state = home()
    state.apply(Failed("downloaded", "cannot read /models: permission denied"))
    part = state.parts["downloaded"]
    assert (part.rows, part.failed) == ((), "cannot read /models: permission denied")
    assert state.parts["results"].rows == RESULTS.rows
    state.apply(DOWNLOADED)  # the next look
    assert not state.parts["downloaded"].failed


def test_the_selected_row_stays_selected_when_others_come_before_it():
    state = home()
    state.move(2)
    chosen = state.row
    state.apply(Seen("downloaded", (model("new"), *DOWNLOADED.rows)))
    assert state.row == chosen
    state.apply(Seen("downloaded", DOWNLOADED.rows[:2]))  # it is gone: the last one there is
    assert state.row == DOWNLOADED.rows[1]
    state.apply(Seen("downloaded", ()))
    assert state.row is None
    assert state.actions() == ()


def test_moving_ends_at_the_ends_and_says_so():
    state = home()
    assert not state.move(-1)
    assert [state.move(1) for _ in range(4)] == [True, True, True, False]
    assert state.move(-9999)
    assert state.parts["downloaded"].at == 0
    assert not home(Seen("downloaded", ())).move(1)


def test_nothing_downloaded_begins_at_the_recommended_but_never_takes_the_focus_away():
    assert home(Seen("downloaded", ())).focus == "recommended"
    state = home()
    assert state.focus == "downloaded"
    state.go("downloaded")
    state.apply(Seen("downloaded", ()))
    assert state.focus == "downloaded"


def test_actions_by_verb():
    state = home()
    assert state.actions("bench") == (run("demo")[1],)
    assert state.actions("pull") == ()
    state.select("recommended", 2)
    assert state.actions() == (pull("model-3-8b:Q4_K_M+draft-simple"),)
    assert state.actions()[0].line == "specctl pull model-3-8b:Q4_K_M+draft-simple"


def test_a_command_is_shown_as_one_would_type_it():
    assert run("/my models/a b.gguf")[0].line == "specctl chat --model '/my models/a b.gguf'"


def test_a_pull_comes_and_goes():
    state = home()
    state.apply(Pulling("x", "fetching", 5, 10))
    assert state.pulling is not None
    before = state.version
    state.apply(Note("a retry"))
    assert state.version == before  # notes are toasts
    state.apply(Pulled("x: fetched"))
    assert state.pulling is None
    assert state.version > before


@pytest.mark.parametrize(
    ("section", "step", "columns", "there"),
    [
        ("machine", 1, 1, "recommended"),
        ("machine", 1, 2, "downloaded"),
        ("recommended", 1, 2, "results"),
        ("results", -1, 2, "recommended"),
        ("results", 1, 1, None),
        ("recommended", -1, 2, None),
    ],
)
def test_sections_beside_each_other(section, step, columns, there):
    assert beside(section, step, columns) == there


@pytest.mark.parametrize("total", range(4, 60))
@pytest.mark.parametrize("focus", SECTIONS)
def test_heights_use_all_the_lines_and_open_the_focus(total, focus):
    wants = {"machine": 9, "recommended": 12, "downloaded": 4, "results": 1}
    given = heights(total, wants, focus)
    assert sum(given.values()) == total - 4
    assert all(lines >= 0 for lines in given.values())
    if total - 4 < 8:
        assert given[focus] == total - 4
    else:
        assert all(given[one] >= min(2, wants[one]) for one in wants)
    if total - 4 >= sum(wants.values()):
        assert all(given[one] >= wants[one] for one in wants)


def test_the_section_in_focus_gets_more():
    wants = {"machine": 12, "recommended": 12, "downloaded": 12, "results": 12}
    given = heights(21, wants, "results")
    assert given["results"] > max(given[one] for one in SECTIONS[:3])


def test_a_proposal_that_is_here_is_chatted_with():
    assert {one.verb for one in proposal(1, here=True).actions} == {"chat", "bench", "tune"}
    assert RECOMMENDED.rows[1].actions[0].argv == ("chat", "--model", RECOMMENDED.rows[1].key)
