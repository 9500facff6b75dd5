"""Prompt files in the forms of public benchmarks, recognised by their keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.bench.styles import Prompt
from specctl.bench.workloads import (
    parse_json,
    parse_jsonl,
    per_family,
    read_file,
    turns_note,
)
from specctl.errors import UsageError

SPEC_BENCH = {
    "question_id": 81,
    "category": "writing",
    "turns": ["Compose a post.", "Rewrite it."],
    "reference": ["…"],
}
SPEED_BENCH = {
    "question_id": "c0ffee",
    "category": "coding",
    "sub_category": None,
    "turns": ["Write a sieve."],
    "source": "x",
    "src_id": "7",
    "difficulty": "easy",
    "multiturn": False,
}
GPQA = {
    "Question": "Which?",
    "Correct Answer": "this",
    "Incorrect Answer 1": "that",
    "Incorrect Answer 2": "those",
    "Incorrect Answer 3": "these",
}


def one(value: dict[str, Any]) -> Prompt:
    (prompt,) = parse_jsonl(json.dumps(value), "file", "stem")
    return prompt


def test_spec_bench() -> None:
    prompt = one(SPEC_BENCH)
    assert prompt == Prompt("writing", "81", "Compose a post.", turns=2)
    assert prompt.messages() == [{"role": "user", "content": "Compose a post."}]


def test_speed_bench() -> None:
    assert one(SPEED_BENCH) == Prompt("coding", "c0ffee", "Write a sieve.")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"question": "How many?", "answer": "4"}, "How many?"),
        ({"problem": "Find x.", "solution": "…"}, "Find x."),
        ({"instruction": "Say it.", "input": ""}, "Say it."),
        ({"prompt": "p", "question": "q"}, "p"),
        ({"conversations": [{"from": "human", "value": "hi"}]}, "hi"),
    ],
)
def test_data_sets_of_specdecode_bench(value: dict[str, Any], text: str) -> None:
    assert one(value) == Prompt("stem", "line-1", text)


def test_articles_edits_and_choices_are_wrapped_whole() -> None:
    assert one({"article": "Rain.", "id": "a1"}).text.endswith("\n\nRain.")
    edit = one({"instruction": "Add types.", "input": "def f(x): …"}).text
    assert edit.startswith("def f(x): …\n\nAdd types.")
    choices = one(GPQA).text
    assert [line[:3] for line in choices.splitlines()[-4:]] == ["(A)", "(B)", "(C)", "(D)"]
    assert "(A) this" in choices


def test_a_chat_gives_its_system_text_and_first_question() -> None:
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "two"},
    ]
    assert one({"messages": chat}) == Prompt("stem", "line-1", "one", "Be brief.", 2)


def test_turns_that_are_not_asked_are_said() -> None:
    single, double = Prompt("f", "a", "x"), Prompt("f", "b", "y", turns=2)
    assert turns_note([single]) is None
    assert turns_note([single, double]) == (
        "1 prompt has more than one turn: the first turn is asked, the others are not"
    )
    assert (turns_note([double, double]) or "").startswith("2 prompts have")


def test_a_list_and_its_wrappings(tmp_path: Path) -> None:
    rows = [{"prompt": "one"}, {"prompt": "two"}]
    listed = [Prompt("mine", "line-2", "one"), Prompt("mine", "line-3", "two")]
    text = '[\n {"prompt": "one"},\n {"prompt": "two"}\n]\n'
    for name in ("mine.json", "mine.txt"):
        file = tmp_path / name
        file.write_text(text)
        assert list(read_file(file)) == listed
    file = tmp_path / "mine.json"
    held = {"rows": [{"row_idx": n, "row": row} for n, row in enumerate(rows)]}
    for value in ({"data": rows}, {"prompts": rows}, held):
        file.write_text(json.dumps(value))
        assert [p.text for p in read_file(file)] == ["one", "two"]
    file.write_text('{\n"prompt":\n"one"\n}')
    assert [p.text for p in read_file(file)] == ["one"]
    file.write_text('{"prompt": "one"}\n{"prompt": "two"}\n')  # lines under the wrong name
    assert [p.text for p in read_file(file)] == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[\n{"prompt": "a"},\n{"prompt": 7}]', r"line 3: prompt is not a text"),
        ('[\n{"prompt": "a"}\n{"prompt": "b"}]', r"line 3: not JSON \(a comma"),
        ('[\n{"prompt": "a"},\n{"prompt" "b"}]', r"line 3: not JSON"),
        ('[\n{"prompt": "a"}', r"line 2: not JSON \(a comma or \]"),
        ('[{"prompt": "a"}]\nmore', r"line 1: something follows"),
        ("[]", r"holds no prompts"),
        ('{"prompt": "a"', r"line 1: not JSON"),
        ('{"turns": []}', r"turns is not a list of texts"),
        ('{"turns": ["a", 3]}', r"turns is not a list of texts"),
        ('{"turns": "abc"}', r"turns is not a list of texts"),
        ('{"turns": ["a"], "category": 5}', r"category is not a text"),
        ('{"turns": ["a"], "question_id": [1]}', r"question_id is not a text"),
        ('{"turns": [" "]}', r"no prompt"),
        ('{"answer": "42"}', r"no prompt"),
        ('{"article": 1}', r"article is not a text"),
        ('{"instruction": "a", "input": []}', r"input is not a text"),
        ('{"Question": "a"}', r"Correct Answer is not a text"),
        ('{"conversations": [{"from": "gpt", "value": "a"}]}', r"nobody asks"),
        ('{"messages": [{"role": "user"}]}', r"without who says what"),
        ('{"messages": ["a"]}', r"not a list of messages"),
    ],
)
def test_wrong_files_name_their_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_file(file)


def test_parquet_is_refused_with_the_way_out(tmp_path: Path) -> None:
    named, magic = tmp_path / "test.parquet", tmp_path / "test.jsonl"
    named.write_bytes(b"")
    magic.write_bytes(b"PAR1\x15\x04")
    for file in (named, magic):
        with pytest.raises(UsageError, match="Parquet") as caught:
            read_file(file)
        assert "read_parquet" in (caught.value.hint or "")
        assert "lines=True" in (caught.value.hint or "")


def test_the_first_of_each_workload() -> None:
    prompts = [Prompt(family, str(n), "x") for n in range(3) for family in "ab"]
    assert [p.key for p in per_family(prompts, 2)] == ["a/0", "b/0", "a/1", "b/1"]
    assert per_family(prompts, None) == tuple(prompts)
    with pytest.raises(UsageError, match="per-workload 0"):
        per_family(prompts, 0)


# ---------------------------------------------------------------- whatever is in the file

_KEYS = st.sampled_from(
    [
        *("prompt", "turns", "conversations", "messages", "article", "instruction", "input"),
        *("problem", "Question", "question", "category", "question_id", "id", "name", "system"),
        *("family", "from", "value", "role", "content", "rows", "row", "data"),
    ]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["user", "human"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=12,
)


def read_or_refused(parse: Any, text: str) -> tuple[Prompt, ...] | None:
    """None: refused, and the file was named."""
    message = "file"
    try:
        return parse(text, "file", "family")
    except UsageError as error:
        message = error.message
    assert message.startswith("file")
    return None


@given(st.lists(_VALUES, max_size=4))
def test_any_json_becomes_prompts_or_a_usage_error(values: list[Any]) -> None:
    texts = (json.dumps(values, indent=1), "\n".join(json.dumps(value) for value in values))
    for parse, text in ((parse_json, texts[0]), (parse_jsonl, texts[1]), (parse_json, texts[1])):
        prompts = read_or_refused(parse, text)
        if prompts is None:
            continue
        assert prompts
        assert all(prompt.text.strip() and prompt.family and prompt.name for prompt in prompts)
        assert len({prompt.key for prompt in prompts}) == len(prompts)


@given(
    st.lists(st.text().filter(lambda text: text.strip()), min_size=1, max_size=5), st.integers(1, 3)
)
def test_a_list_round_trips_and_counts_its_lines(texts: list[str], turns: int) -> None:
    rows = [{"question_id": n, "turns": [text] * turns} for n, text in enumerate(texts)]
    lines = ",\n".join(json.dumps(row) for row in rows)
    found = parse_json(f"\n[{lines}]", "file", "family")
    assert [(p.text, p.turns, p.name) for p in found] == [
        (text, turns, str(n)) for n, text in enumerate(texts)
    ]
    bare = ",\n".join(json.dumps({"question": text}) for text in texts)
    assert [p.name for p in parse_json(f"\n[{bare}]", "file", "family")] == [
        f"line-{n + 2}" for n in range(len(texts))
    ]


@given(st.text())
def test_any_text_is_no_traceback(text: str) -> None:
    prompts = read_or_refused(parse_json, text)
    assert prompts is None or all(prompt.text.strip() for prompt in prompts)
