"""Unfenced code and lines in a finished answer stay what was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.tui.widgets.barecode import FENCE, fenced
from specctl.tui.widgets.markdown import Colours, markdown_rows

PYTHON = """\
class Stack:
    def __init__(self):
        self.items = []

    def push(self, __x__):
        # on top
        self.items.append(__x__)

stack = Stack()"""
C = """\
#include <stdio.h>
int main(void) {
    int a = 1;
    return a * 2 * 3;
}"""


def shown(text: str, width: int = 60) -> list[str]:
    return [
        "".join(part for part, _ in row).rstrip()
        for rows in markdown_rows(text, width, Colours(dark=True))
        for row in rows
    ]


def test_unfenced_python_can_be_copied():
    code = PYTHON.rpartition("\n\n")[0]
    assert shown(f"Here it is:\n\n{code}\n\nIt is **simple**.") == [
        "Here it is:",
        "",
        *code.split("\n"),
        "",
        "It is simple.",
    ]


def test_unfenced_c_keeps_its_stars_and_indentation():
    assert shown(C)[-4:] == C.split("\n")[1:]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("first line\nsecond line", ["first line", "second line"]),
        ("call __init__ and a__b__c, **bold**", ["call __init__ and a__b__c, bold"]),
        ("`__init__` and __two words__", ["__init__ and two words"]),
    ],
)
def test_lines_and_names_stay(text, rows):
    assert shown(text) == rows


@pytest.mark.parametrize(
    "text",
    [
        "The steps:\n1. one\n    - inner\n2. two",
        "Note:\nthis is prose; that too.",
        "- item:\n    more of it\n- next",
        "One thing;\nand another.",
        "In class we learned:\n\n- a\n- b",
        "```python\ndef f():\n    pass\n```",
        "~~~\nclass A:\n    pass\n~~~",
        "def is a word of Python.\nSo is class.",
    ],
)
def test_prose_lists_and_fences_are_left_alone(text):
    assert fenced(text) == text


@given(
    st.lists(
        st.sampled_from([*PYTHON.split("\n"), *C.split("\n"), "", "prose", "```", "- a:", "~~~"]),
        max_size=20,
    )
)
def test_nothing_is_lost_or_added_but_fences(lines):
    text = "\n".join(lines)
    assert [line for line in fenced(text).split("\n") if line != FENCE] == text.split("\n")
    assert fenced(text).count(FENCE) % 2 == 0
