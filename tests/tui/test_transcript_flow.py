"""Text made safe, cut into rows and joined again."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from specctl.tui.widgets import flow as flow_module
from specctl.tui.widgets.flow import Cleaner, Flow, clean, clusters, wrap

ALPHABET = [
    *"ab -_.",
    "word ",
    "日",
    "本",
    "한",
    "e\u0301",
    "\u0301",  # a mark that belongs to what came before
    "👩\u200d🚀",
    "👩\u200d",
    "🚀",
    "\u200d",
    "❤",
    "\ufe0f",
    "👍🏽",
    "🏽",
    "🇩🇪",
    "🇩",
    "🇪",
    "\u200b",
    "\u00ad",
    "שלום",
    "مرحبا",
    "क\u094d\u200dष",
    "1\ufe0f\u20e3",
    "\n",
    "\r\n",
    "\r",
    "\x1b[31m",
    "\u202e",
]
TEXTS = st.lists(st.sampled_from(ALPHABET), max_size=40)


def rows_of(flow: Flow) -> list[list[str]]:
    """What is drawn, row by row, in its pieces."""
    return [
        [text for text, _, _ in flow.pieces(number, row)]
        for number, line in enumerate(flow.lines)
        for row in range(len(line.rows))
    ]


@given(TEXTS, st.integers(2, 25))
@example(["👩", "\u200d", "🚀", "e", "\u0301"], 2)
@example(["🇩", "🇪", "🇩", "🇪"], 3)
def test_rows_fit_and_hold_the_whole_text(parts: list[str], width: int) -> None:
    flow = Flow(width)
    for number, part in enumerate(parts):
        flow.feed(part, f"look-{number % 3}")
    flow.finish()
    assert "\n".join(line.text for line in flow.lines) == clean("".join(parts))
    for line in flow.lines:
        rebuilt = "".join(line.text[s : line.end(n)] for n, s in enumerate(line.rows))
        assert rebuilt == line.text
        assert line.rows == sorted(set(line.rows))
    for pieces in rows_of(flow):
        assert sum(map(cell_len, pieces)) <= width
        borders = {end for _, end, _ in clusters("".join(pieces))} | {0}
        place = 0
        for piece in pieces:
            place += len(piece)
            assert place in borders  # no column is decided by a style
        assert sum(map(cell_len, pieces)) == sum(c for *_, c in clusters("".join(pieces)))


@given(TEXTS, st.integers(2, 25))
def test_growing_is_the_same_as_wrapping_at_once(parts: list[str], width: int) -> None:
    flow = Flow(width)
    for part in parts:
        flow.feed(part, "")
    flow.finish()
    assert [line.rows for line in flow.lines] == [wrap(line.text, 0, width) for line in flow.lines]
    tops = list(flow.tops)
    flow.rewrap(width)
    assert flow.tops == tops


@given(TEXTS, st.integers(2, 25))
def test_text_in_one_piece_or_many_is_the_same(parts: list[str], width: int) -> None:
    one, many = Flow(width), Flow(width)
    one.feed("".join(parts), "")
    for character in "".join(parts):
        many.feed(character, "")
    one.finish()
    many.finish()
    assert [line.text for line in one.lines] == [line.text for line in many.lines]


def drawn(text: str, width: int) -> list[str]:
    flow = Flow(width)
    flow.feed(text, "")
    flow.finish()
    return ["".join(row) for row in rows_of(flow)]


def test_words_move_and_long_ones_are_cut() -> None:
    assert drawn("the quick brown fox", 10) == ["the quick ", "brown fox"]
    assert drawn("ab   cd", 3) == ["ab ", "cd"]  # spaces at the end stand out, undrawn
    assert drawn("x abcdefghijkl y", 5) == ["x ", "abcde", "fghij", "kl y"]
    assert drawn("日本語テキスト", 5) == ["日本", "語テ", "キス", "ト"]
    assert drawn("    indented_name", 10) == ["    indent", "ed_name"]
    assert drawn("a\tb\n\tc", 20) == ["a   b", "    c"]


def test_style_comes_from_the_first_part_of_a_cluster() -> None:
    flow = Flow(20)
    flow.feed("ab", "one")
    flow.feed("\u0301c", "two")
    assert flow.pieces(0, 0) == [("ab\u0301", "one", None), ("c", "two", None)]


def test_trailing_empty_lines_have_no_height() -> None:
    flow = Flow(20)
    flow.feed("a\n\nb\n\n", "")
    assert flow.height == 3
    flow.feed("c", "")
    assert flow.height == 5


def test_cost_is_that_of_the_new_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where all of it is one line."""
    seen: list[int] = []

    def counted(text: str, start: int, width: int) -> list[int]:
        seen.append(len(text) - start)
        return wrap(text, start, width)

    monkeypatch.setattr(flow_module, "wrap", counted)
    flow = Flow(40)
    for _ in range(2000):
        flow.feed("token ", "")
    assert flow.height > 250
    assert max(seen) <= 40 + len("token ") + 6


@pytest.mark.parametrize(
    ("raw", "safe", "plain"),
    [
        ("\x1b[2J", "␛[2J", "^[[2J"),
        ("\x1b]0;title\x07", "␛]0;title␇", "^[]0;title^G"),
        ("\x9b31m", "\ufffd31m", "?31m"),
        ("a\u202eb\u2066c", "a\ufffdb\ufffdc", "a?b?c"),
        ("a\rb", "a␍b", "a^Mb"),
        ("a\r\nb\n", "a\nb\n", "a\nb\n"),
        ("\x7f\x00", "␡␀", "^?^@"),
        ("\ud800", "\ufffd", "?"),
        ("a\tb", "a\tb", "a\tb"),
        ("a\u200db", "ab", "ab"),
        ("👩\u200d🚀", "👩\u200d🚀", "👩\u200d🚀"),
        ("❤\ufe0f\u200d🔥", "❤\ufe0f\u200d🔥", "❤\ufe0f\u200d🔥"),
    ],
)
def test_what_steers_a_terminal_is_replaced(raw: str, safe: str, plain: str) -> None:
    assert clean(raw) == safe
    assert clean(raw, plain=True) == plain
    cleaner = Cleaner()
    assert "".join(map(cleaner.push, raw)) + cleaner.finish() == safe


@given(st.text())
def test_nothing_that_steers_is_left(text: str) -> None:
    for character in clean(text) + clean(text, plain=True):
        assert character in "\t\n" or ord(character) >= 0x20
        assert not 0x7F <= ord(character) <= 0x9F
        assert not 0x202A <= ord(character) <= 0x202E
        assert not 0x2066 <= ord(character) <= 0x2069
