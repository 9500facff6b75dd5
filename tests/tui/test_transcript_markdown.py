"""Finished answers as Markdown rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from specctl.tui.widgets.markdown import STRETCH, Colours, markdown_rows, stretches

DARK = Colours(dark=True)
PARTS = [
    *(
        "# head\n",
        "para ",
        "\n",
        "\n\n",
        "- item\n",
        "1. one\n",
        "> quote\n",
        "```py\nx = 1\n",
        "```\n",
    ),
    *(
        "| a | b |\n|---|---|\n| 1 | 2 |\n",
        "**bold**",
        "`code`",
        "[l](http://x.y)",
        "![i](z)",
        "***\n",
    ),
    *(
        "日本語",
        "👩\u200d🚀",
        "\x1b[31m",
        "&#27;",
        "&#8238;",
        "&#x9b;",
        "\u202e",
        "<b>",
        "[x",
        "\\",
        "\t",
    ),
    *("https://example.org/a/very/long/address/that/does/not/end ", "> " * 30 + "deep\n"),
]


def text_rows(text: str, width: int = 40, plain: bool = False) -> list[str]:
    return [
        "".join(part for part, _ in row).rstrip()
        for rows in markdown_rows(text, width, DARK, plain)
        for row in rows
    ]


def test_blocks_are_set_apart_and_code_is_flush_left() -> None:
    rows = text_rows("# Title\n\nSome **bold** text.\n\n```python\nx = 1\n```\n\n- a\n- b\n")
    assert rows == ["Title", "", "Some bold text.", "", "x = 1", "", " • a", " • b"]


def test_addresses_are_shown_not_hidden() -> None:
    assert text_rows("[click](http://x.y)") == ["click (http://x.y)"]


def test_plain_ornaments() -> None:
    text = "- a\n\n> q\n\n---\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert not all(row.isascii() for row in text_rows(text))
    assert all(row.isascii() for row in text_rows(text, plain=True))


@given(st.lists(st.sampled_from(PARTS), max_size=25), st.integers(4, 60))
def test_any_text_gives_safe_rows(parts: list[str], width: int) -> None:
    for row in text_rows("".join(parts), width):
        assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or c in "\u202a\u202e" for c in row)


@pytest.mark.parametrize("entity", ["&#8238;", "&#x202E;", "&#27;", "&#13;", "&#155;", "&Tab;"])
def test_entities_do_not_bring_controls_back(entity: str) -> None:
    joined = "".join(text_rows(f"a{entity}b"))
    assert "\u202e" not in joined
    assert all(ord(c) >= 0x20 and not 0x7F <= ord(c) < 0xA0 for c in joined)


def test_stretches_join_to_the_text_and_keep_fences_whole() -> None:
    fence = "```\n" + "line\n\n" * STRETCH + "```\n"
    text = ("word " * 100 + "\n\n") * 20 + fence + "\n" + "after\n\n" * 600 + "- a\n\n- b\n"
    parts = list(stretches(text))
    assert len(parts) > 5
    assert "\n".join(parts) == text
    assert all(part.count("```") % 2 == 0 for part in parts)
    assert max(len(part) for part in parts if "```" not in part) < 2 * STRETCH


def test_one_stretch_in_trouble_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("Couldn't process")

    monkeypatch.setattr("specctl.tui.widgets.markdown._Markdown", fail)
    assert text_rows("**a**\nb") == ["**a**", "b"]


def test_wide_characters_are_not_cut() -> None:
    assert all(cell_len(row) <= 11 for row in text_rows("日本語テキスト " * 10, 11))
