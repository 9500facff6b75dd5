"""The numbers, the log and the header: exact lines, and no line too wide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from panel_cases import BAD, GOOD, HUGE, PLAIN, asked, cycle, interval, live, states
from rich.cells import cell_len

from specctl.events import Finished
from specctl.tui.messages import Changed, Gauges, Note, Ready
from specctl.tui.state import Live, LogLine
from specctl.tui.widgets.glyphs import ASCII, UNICODE, clean, cut, cut_middle
from specctl.tui.widgets.header import drafting, header_line, short_name
from specctl.tui.widgets.log import folded, log_lines
from specctl.tui.widgets.numbers import number_lines
from specctl.units import GIB


def numbers(state, width, height, signs=UNICODE, **more):
    return [line.plain for line in number_lines(state, width, height, signs, **more)]


FULL = [
    "above: ≈ 1.6×   you need 0.80 accepted per cycle, you get 2.00",
    # 26 tokens in 328 ms
    "79.3 tok/s now   plain 50.0 (measured)   this answer 79.3   last 10 cycles",
    "α 0.67, drafted 80 %   K 3.0   α×K 2.00   tokens/pass 2.60",
    "cycle ▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░  ▓ draft 10 %  ▒ verify 85 %  ░ rest 5 %",
    "by position ▇▆▃ .88 .75 .38 of 8 8 8",
    "context 102 of 4096  ░░░░░░░░░░░░░░░░░░░░ 2 %",
    "net gain against plain ≈ +0.2 s since the start   prompt 200 tok/s",
    "last 10 cycles: draft-simple 8 · plain 2",
]


def test_all_lines():
    got = numbers(live(GOOD), 80, 12)
    assert [line for line in got if not line.startswith("cycle")] == [
        line for line in FULL if not line.startswith("cycle")
    ]
    split = next(line for line in got if line.startswith("cycle"))
    assert "▓ draft 10 %  ▒ verify 85 %  ░ rest 5 %" in split
    bar = split.split()[1]
    assert len(bar) >= 8
    assert abs(bar.count("▒") / len(bar) - 0.85) < 0.1


def test_the_most_telling_lines_come_first():
    assert numbers(live(GOOD), 80, 3) == FULL[:3]


def test_one_line_and_two():
    assert numbers(live(GOOD), 80, 1) == [
        "above ≈ 1.6×: need 0.80, get 2.00 · 79.3 tok/s · α 0.67, drafted 80 %"
    ]
    assert numbers(live(GOOD), 40, 1) == ["above ≈ 1.6× · 79.3 tok/s"]
    assert numbers(live(GOOD), 40, 2) == [
        "above ≈ 1.6×: need 0.80, get 2.00",
        "79.3 tok/s   α 0.67, drafted 80 %",
    ]


def test_a_finished_answer_shows_its_mean():
    state = live([*GOOD, Finished("eog", 101, 26, 1.0)])
    assert numbers(state, 80, 3)[1] == "79.3 tok/s   plain 50.0 (measured)   whole answer"


def test_switched_off_in_the_middle():
    state = live([*GOOD, Changed(("none",), None, 0, 0.0)])
    assert numbers(state, 80, 3)[0] == "plain decoding: F2 switches speculation on"
    assert numbers(state, 80, 3, keys=False)[0] == "plain decoding"


def test_off_and_on_stand_side_by_side_once_each_has_written_enough():
    def compared(state):
        return [one for one in numbers(state, 100, 12) if one.startswith("speculation")]

    state = live(GOOD)
    assert compared(state) == []
    state.apply(Changed(("none",), None, 0, 0.0))
    for index in range(15):
        state.apply(cycle(0, 0, index))
    assert compared(state) == []  # one token short
    state.apply(cycle(0, 0, 15))
    text = (
        "speculation off 50.0, on 79.3 tok/s   over 16 and 26 tokens   measured, not the same text"
    )
    assert compared(state) == [text]
    state.apply(Changed(("auto",), None, 8, 0.0))  # another way of drafting counts as on
    state.apply(cycle(3, 3, 16))
    assert "over 16 and 30 tokens" in compared(state)[0]


def test_without_any_draft():
    lines = numbers(live(PLAIN), 80, 8)
    assert lines[2] == "α –, drafted 0 %   K –   α×K –   tokens/pass 1.00"
    assert lines[4] == "by position –"
    assert not any("net gain" in line for line in lines)


def test_opening_and_reading():
    assert numbers(Live(), 60, 3)[0] == "opening the model"
    lines = numbers(live(), 60, 8)
    assert lines[0] == "nothing generated yet"
    state = asked()
    assert numbers(state, 60, 8)[0] == "reading the prompt"
    assert "reading 101 prompt tokens" in numbers(state, 60, 8)


def test_verification_outside_the_band_is_marked():
    state = live([cycle(3, 3, t_d=0.0, t_o=0.0)])
    split = next(line for line in numbers(state, 90, 8) if "verify" in line)
    assert split.endswith("outside the rule: verify 42–95 %")
    inside = next(line for line in numbers(live(GOOD), 100, 8) if "verify" in line)
    assert inside.endswith("  rule: verify 42–95 %")
    assert "outside" not in inside


def test_what_a_source_does_not_say_is_a_dash():
    state = live([interval(passes=None, drafted_passes=None, drafted_at=None, exact=False)])
    lines = numbers(state, 90, 8)
    assert lines[2] == ("α 0.50, drafted ? %   K –   α×K –   tokens/pass –   sums mixed or derived")
    assert not any("cycle time" in line for line in lines)


def test_a_full_context_and_full_vram_come_before_the_rest():
    state = live([cycle(3, 3, n_past=4000)])
    state.apply(Gauges(GIB, 4 * GIB, 16 * GIB - 1, 16 * GIB, 0.5))
    lines = numbers(state, 90, 12)
    assert lines[1].startswith("VRAM is full: the driver may spill")
    assert lines[2].startswith("context 98 % full")
    assert "VRAM 16.0 of 16.0 GiB   GPU 50 %   RAM 1.0 of 4.0 GiB" in lines


def test_many_positions_show_as_many_figures_as_fit():
    line = next(x for x in numbers(live(HUGE), 60, 8) if x.startswith("by position"))
    figures, counts = line.split(" of ")
    assert len(counts.split()) == sum(part.startswith((".", "1")) for part in figures.split()[3:])
    assert counts.split()[0] == "4"


@given(st.sampled_from(sorted(states())), st.integers(20, 200), st.integers(1, 12), st.booleans())
def test_no_line_is_too_wide(name, width, height, ascii_only):
    state = states()[name]
    state.apply(Gauges(GIB, 4 * GIB, GIB, 2 * GIB, 0.5))
    signs = ASCII if ascii_only else UNICODE
    lines = number_lines(state, width, height, signs)
    lines += log_lines(list(state.log), width, height, signs)
    lines.append(header_line(state, width, signs, recording=True, state="paused"))
    assert len(number_lines(state, width, height, signs)) <= height
    assert all(cell_len(line.plain) <= width for line in lines)
    assert not ascii_only or all(line.plain.isascii() for line in lines)


# ---------------------------------------------------------------- log


def test_alternating_decisions_are_two_lines():
    events = []
    for index in range(0, 40, 2):
        events.append(cycle(3, 2, index, f"ngram match {index}: needs 0.6{index % 7}"))
        events.append(cycle(0, 0, index + 1, "off: nothing to propose"))
    lines = [x.plain for x in log_lines(list(live(events).log), 60, 6)]
    assert lines == [
        "decisions  cycle, why, how often",
        "   38 ngram match 38: needs 0.63 ×20",
        "   39 off: nothing to propose ×20",
    ]


def test_a_note_and_a_new_answer_begin_anew():
    log = [
        LogLine("a 1", "decision", 5),
        LogLine("a 2", "decision", 6),
        LogLine("K 4", "note"),
        LogLine("a 3", "decision", 7),
        LogLine("a 4", "decision", 0),
    ]
    assert [(entry.line.text, entry.count) for entry in folded(log)] == [
        ("a 2", 2),
        ("K 4", 1),
        ("a 3", 1),
        ("a 4", 1),
    ]


def test_notes_are_wrapped_and_errors_marked():
    log = [LogLine("the model does not fit: give a smaller --ctx or --ngl", "error")]
    assert [x.plain for x in log_lines(log, 36, 3)] == [
        "error the model does not fit: give a",
        "      smaller --ctx or --ngl",
    ]


def test_a_warning_is_no_error():
    log = [LogLine("slow", "warning"), LogLine("over", "error")]
    assert [x.plain for x in log_lines(log, 36, 3)] == [" warn slow", "error over"]


def test_a_decision_loses_words_before_figures():
    text = "ngram-suffix match 9: needs 0.61 accepted per cycle, expects 2.11"
    log = [LogLine(text, "decision", 7), LogLine(text, "decision", 9)]
    assert [x.plain for x in log_lines(log, 60, 3)] == [
        "    9 ngram-suffix match 9: needs 0.61, expects 2.11 ×2"
    ]


def test_nothing_steers_the_terminal():
    log = [LogLine("evil \x1b[31m\u202e name\nnext", "note")]
    (line,) = log_lines(log, 60, 3)
    assert line.plain == " note evil �[31m� name next"
    assert clean("a\tb\r\n\x07") == "a b �"


# ---------------------------------------------------------------- header


def test_names():
    assert short_name("/a/b/Qwen3-8B-Q4_K_M-00001-of-00002.gguf") == "Qwen3-8B-Q4_K_M"
    assert short_name("C:\\models\\x.gguf") == "x"
    assert short_name("demo") == "demo"


def test_what_drafts():
    assert drafting(live()) == "draft-simple K 4"
    assert drafting(live(spec=("auto",), k=None, k_max=0)) == "auto K ≤ 4"  # as it was started
    assert drafting(live(spec=("auto",))) == "auto K ≤ 4"  # a cap that was set is a cap
    assert drafting(live(spec=("none",))) == "speculation off"
    assert drafting(live(spec=("ngram-simple", "draft-simple"))) == "ngram-simple,draft-simple K 4"


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (
            120,
            " specctl   Qwen3-8B-Q4_K_M + Qwen3-0.6B-Q8_0   auto K ≤ 4   RTX 4080   ctx 102/4096",
        ),
        (60, " Qwen3-8B-Q4_K_M +   auto K ≤ 4   RTX 4080   ctx 102/4096"),
        (40, " Qwen3-8B-Q4_K_M +   auto K ≤ 4"),
        (28, " Qwen3-…4_K_M +   auto K ≤ 4"),
    ],
)
def test_the_line(width, text):
    state = live(GOOD, ("auto",), k=None, device="RTX 4080", draft_model="Qwen3-0.6B-Q8_0.gguf")
    assert header_line(state, width).plain == text


def test_recording_and_paused_stay_longer_than_the_machine():
    state = live(BAD)
    text = header_line(state, 56, recording=True, state="paused").plain
    assert text == " Qwen3-8B-Q4_K_M   draft-simple K 4   ● REC   paused"
    assert "CPU" in header_line(state, 100, recording=True).plain


def test_before_a_model_is_there():
    state = Live()
    assert header_line(state, 40).plain == " specctl   opening the model"
    state.apply(Note("no such file", "error"))
    assert header_line(state, 40).plain == " specctl   no model"


@given(st.text(), st.integers(0, 60))
def test_cut_keeps_to_the_width(text, width):
    text = clean(text)
    assert cell_len(cut(text, width)) <= width
    assert cell_len(cut_middle(text, width)) <= width
    if cell_len(text) <= width:
        assert cut(text, width) == cut_middle(text, width) == text


def test_a_name_from_a_file_is_cleaned():
    state = Live()
    state.apply(Ready("evil\x1b]0;x\x07.gguf", None, ("none",), None, 0, 10, 1, 0.0))
    assert "\x1b" not in header_line(state, 80).plain


def test_off_and_on_never_stand_without_saying_that_the_text_is_another():
    state = live([*GOOD, Changed(("none",), None, 0, 0.0), *(cycle(0, 0, i) for i in range(16))])
    for width in range(36, 120):
        (shown,) = (one for one in numbers(state, width, 12) if "off 50.0, on 79.3" in one)
        assert shown.endswith(("not the same text", "other text"))
        assert len(shown) <= width
