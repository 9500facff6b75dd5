"""The sections as lines: they keep to their size, and nothing that counts is lost on the way."""

from __future__ import annotations

import pytest
from home_stage import ALL, DOWNLOADED, home, model, proposal, pull

from specctl.tui.home_state import SECTIONS, Failed, Home, Pulling, ResultRow, Seen
from specctl.tui.widgets.glyphs import ASCII, UNICODE, glyphs
from specctl.tui.widgets.homelines import (
    command_line,
    heading,
    keys_line,
    plain_lines,
    pull_line,
    row_at,
    section_lines,
    wrapped,
)

MANY = Seen("downloaded", tuple(model(f"model-{index:03}.gguf") for index in range(100)))
FULL = Pulling("m:Q4_K_M", "fetching 1/2", 30, 100, "30.0 MiB of 100.0 MiB  24.0 MiB/s  ≈ 3.1 s")


def text(state: Home, section, width=76, height=100, signs=UNICODE, focused=False) -> str:
    lines = section_lines(state, section, width, height, signs, focused)
    return "\n".join(line.plain for line in lines)


@pytest.mark.parametrize("signs", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("width", [1, 2, 7, 20, 38, 55, 56, 76, 200])
@pytest.mark.parametrize("height", [0, 1, 2, 5, 40])
@pytest.mark.parametrize("section", SECTIONS)
def test_they_keep_to_their_size(section, height, width, signs):
    for state in (home(), home(MANY), Home(), home(Failed(section, "no such thing " * 9))):
        lines = section_lines(state, section, width, height, signs, True)
        assert len(lines) <= height
        assert all(line.cell_length <= width for line in lines)
        if signs is ASCII:
            assert all(line.plain.isascii() for line in lines)


@pytest.mark.parametrize("width", [1, 9, 38, 60, 118])
def test_so_do_the_lines_below(width):
    state = home(*ALL, FULL)
    state.select("recommended", 2)
    for signs in (UNICODE, ASCII):
        for line in (
            pull_line(FULL, width, signs),
            pull_line(Pulling("m", "looking up"), width, signs),
            command_line(state, width, signs),
            keys_line(state, width, signs),
        ):
            assert line.cell_length <= width


@pytest.mark.parametrize("width", [36, 56, 66, 116])
def test_a_proposal_says_what_one_must_know(width):
    shown = text(home(), "recommended", width)
    for words in ("model-1-8b Q4_K_M", "draft-simple", "≈33–47 → 37–83 tok/s", "get ≈ 5.3 GiB"):
        assert words in shown
    assert "apache-2.0" in shown
    assert "here" in shown  # the second one
    assert "estimates" in heading(home(), "recommended", UNICODE)


@pytest.mark.parametrize("width", [38, 44, 76])
def test_losses_stand_as_plainly_as_gains(width):
    shown = text(home(), "results", width)
    assert "▲ auto 1.43× faster" in shown
    assert "▼ ngram-cache 0.71× slower" in shown
    assert "! ngram-mod never drafted" in shown
    assert "damaged: no" in shown
    ascii_shown = text(home(), "results", width, signs=ASCII)
    assert "+ auto 1.43x faster" in ascii_shown
    assert "- ngram-cache 0.71x slower" in ascii_shown


def test_of_a_hundred_models_the_selected_one_is_always_in_sight():
    state = home(MANY)
    for _ in range(100):
        assert f"▸ {state.row.name}" in text(state, "downloaded", 40, 7, focused=True)
        state.move(1)
    assert heading(state, "downloaded", UNICODE) == "downloaded · 100/100"


def test_the_mark_is_there_only_in_focus():
    assert "▸" not in text(home(), "downloaded")
    assert text(home(), "downloaded", focused=True).count("▸") == 1
    assert text(home(), "downloaded", signs=ASCII, focused=True).count(">") == 1


def test_wide_names_are_cut_by_cells_in_the_middle():
    shown = text(home(), "downloaded", 40).splitlines()
    row = next(line for line in shown if "俳句" in line)
    assert row.endswith("4.7 GiB")
    assert "Q4_K_M" in row  # the quant is at the end


def test_empty_and_failed_say_what_to_do():
    state = home(Seen("downloaded", (), "", "nothing downloaded: Enter on a row"))
    assert text(state, "downloaded") == "nothing downloaded: Enter on a row"
    assert text(Home(), "downloaded") == "looking …"
    state.apply(Failed("downloaded", "cannot read /models"))
    assert text(state, "downloaded") == "cannot read /models"
    warned = Seen("downloaded", (), "", "nothing", ("x.toml is wrong",))
    assert text(home(warned), "downloaded") == "nothing\nx.toml is wrong"
    assert "x.toml is wrong" in text(
        home(Seen("downloaded", DOWNLOADED.rows, warnings=("x.toml is wrong",))), "downloaded"
    )


def test_the_machine_is_told_in_full_where_it_fits_and_in_a_line_each_where_not():
    state = home()
    whole = text(state, "machine", 60, 30)
    assert "8 cores to use" in whole.splitlines()[3]
    short = text(state, "machine", 100, 7).splitlines()
    assert short[0].startswith("A model can use 10.9 GiB")
    assert short[1] == "CPU     AMD Ryzen 7 5800X 8-Core Processor, 8 cores to use, AVX2"
    assert len(short) == 7


def test_names_that_would_steer_the_terminal_are_shown_harmless():
    evil = "x\x1b[2J\x07\u202ey.gguf"
    state = home(
        Seen("downloaded", (model(evil, note="\x1b]0;"),)),
        Seen("results", (ResultRow("k", "2026", evil, broken=evil),)),
        Seen("recommended", (proposal(1, name=evil, actions=(pull(evil),)),)),
    )
    for section in SECTIONS:
        shown = text(state, section) + heading(state, section, UNICODE)
        assert not any(sign in shown for sign in "\x1b\x07\u202e")
    state.go("recommended")
    assert "\x1b" not in command_line(state, 80, UNICODE).plain


def test_a_line_of_the_picture_belongs_to_a_row():
    state = home()
    size = (40, 20)  # two lines where there is a note
    rows = [row_at(state, "downloaded", y, size, UNICODE) for y in range(8)]
    assert rows == [0, 0, 1, 1, 2, 3, 3, None]


def test_a_pull_is_a_bar_with_figures_where_there_is_room():
    wide = pull_line(FULL, 118, UNICODE).plain
    assert wide.startswith("fetching 1/2 m:Q4_K_M  ")
    cells = wide.count("█") + wide.count("░")
    assert wide.count("█") == int(cells * 0.3)
    assert "24.0 MiB/s" in wide
    assert wide.endswith("Esc stops")
    assert "30.0 MiB of 100.0 MiB" in pull_line(FULL, 60, UNICODE).plain


def test_what_enter_does_is_said_as_a_command():
    state = home()
    assert command_line(state, 80, UNICODE).plain == "$ specctl chat --model demo"
    assert "Enter menu" in keys_line(state, 80, UNICODE).plain
    state.select("recommended", 0)
    assert "specctl pull model-1-8b" in command_line(state, 80, UNICODE).plain
    assert "Enter pull" in keys_line(state, 80, UNICODE).plain
    state.select("results", 1)  # broken: nothing to do with it
    assert command_line(state, 80, UNICODE).plain == ""
    assert "Enter" not in keys_line(state, 80, UNICODE).plain


def test_plain_text_has_all_four_sections_and_their_commands():
    lines = plain_lines(home(), 80, glyphs(False))
    for title in ("this machine", "recommended for it", "downloaded", "recent results"):
        assert any(line.startswith(title) for line in lines)
    assert "  $ specctl chat --model demo" in lines
    assert not any("▸" in line for line in lines)


def test_wrapping_keeps_every_word():
    words = "A model can use 10.9 GiB on 東京のカード and averyveryverylongwordindeed."
    for width in (5, 11, 40, 200):
        lines = wrapped(words, width, UNICODE)
        assert "".join(lines).replace(" ", "") == words.replace(" ", "")
