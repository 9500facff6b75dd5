"""The built-in prompts, and prompt files of all kinds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.bench.workloads import (
    FAMILIES,
    Prompt,
    load,
    parse_blocks,
    parse_jsonl,
    quick,
    read_file,
    unseen,
)
from specctl.errors import UsageError


def test_eight_families_of_four_to_six_prompts() -> None:
    assert len(FAMILIES) == 8
    for family in FAMILIES:
        prompts = load((family,))
        assert 4 <= len(prompts) <= 6
        assert {prompt.family for prompt in prompts} == {family}
    everything = load()
    assert len({prompt.key for prompt in everything}) == len(everything)
    assert len({prompt.text for prompt in everything}) == len(everything)


def test_prompts_that_carry_a_text_carry_enough_and_not_too_much() -> None:
    for prompt in load(("code-edit", "template-fill", "summarise", "translate")):
        words = len(re.findall(r"\w+", prompt.text))
        assert 60 <= words <= 400, (prompt.key, words)


def test_a_family_is_loaded_once_and_in_the_asked_order() -> None:
    prompts = load(("chat", "creative", "chat"))
    assert list(dict.fromkeys(p.family for p in prompts)) == ["chat", "creative"]
    assert len({p.key for p in prompts}) == len(prompts)


def test_an_unknown_family_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="'poems' is not a built-in workload") as caught:
        load(("poems",))
    assert "creative" in (caught.value.hint or "")


def test_quick_takes_three_prompts_of_three_families() -> None:
    assert [p.family for p in quick(load())] == ["code-edit", "template-fill", "chat"]
    assert len(quick(load(("chat",)))) == 3
    assert [p.family for p in quick(load(("creative", "chat")))] == ["chat", "creative", "chat"]
    assert len(quick(load(("chat",))[:2])) == 2


def test_families_without_a_measured_prompt() -> None:
    code, chat, prose = (load((one,)) for one in ("code-edit", "chat", "creative"))
    offered = (*code, *chat, *prose)
    assert unseen(offered, (chat[0],)) == ("code-edit", "creative")
    assert unseen(offered, (code[0], chat[1], prose[2])) == ()


def test_messages_carry_the_system_text_first() -> None:
    assert Prompt("f", "n", "hello").messages() == [{"role": "user", "content": "hello"}]
    roles = [m["role"] for m in Prompt("f", "n", "hello", "be brief").messages()]
    assert roles == ["system", "user"]


# ---------------------------------------------------------------- files


def test_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(
        '{"prompt": "one"}\n\n{"name": "b", "prompt": "two", "system": "s", "family": "f"}\n'
    )
    assert read_file(file) == (
        Prompt("mine", "line-1", "one"),
        Prompt("f", "b", "two", "s"),
    )


def test_text_blocks(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("one\n\nstill one\n---\n\ntwo\n---\n")
    assert read_file(file) == (
        Prompt("mine", "line-1", "one\n\nstill one"),
        Prompt("mine", "line-5", "two"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"prompt": "a"}\n{"prompt": }\n', r"mine\.jsonl, line 2: not JSON"),
        ('{"prompt": "a"}\n["b"]\n', r"line 2: a JSON list, not an object"),
        ('{"text": "a"}\n', r"line 1: no prompt"),
        ('{"prompt": "  "}\n', r"line 1: no prompt"),
        ('{"prompt": 7}\n', r"line 1: prompt is not a text"),
        ('{"prompt": "a", "name": []}\n', r"line 1: name is not a text"),
        ('{"name": "x", "prompt": "a"}\n{"name": "x", "prompt": "b"}', r"line 2: a second prompt"),
        ("\n\n", r"holds no prompts"),
        ("[" * 100_000, r"line 1: not JSON"),
    ],
)
def test_wrong_json_lines_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_file(file)


def test_wrong_files_are_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_file(tmp_path / "missing.txt")
    with pytest.raises(UsageError, match="cannot read prompts"):
        read_file(tmp_path)
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"fine\nfine\ncaf\xe9\n")
    with pytest.raises(UsageError, match="line 3: not UTF-8"):
        read_file(latin)
    empty_block = tmp_path / "block.txt"
    empty_block.write_text("one\n---\n\n---\ntwo\n")
    with pytest.raises(UsageError, match="line 4: no prompt before this ---"):
        read_file(empty_block)


@given(st.text())
def test_any_text_becomes_prompts_or_a_usage_error(text: str) -> None:
    for parse in (parse_jsonl, parse_blocks):
        try:
            prompts = parse(text, "file", "family")
        except UsageError:
            continue
        assert prompts
        assert all(prompt.text.strip() for prompt in prompts)
        assert len({prompt.key for prompt in prompts}) == len(prompts)


@given(st.lists(st.text().filter(lambda t: t.strip()), min_size=1, max_size=5))
def test_json_lines_round_trip(texts: list[str]) -> None:
    lines = "\n".join(json.dumps({"prompt": text}) for text in texts)
    assert [prompt.text for prompt in parse_jsonl(lines, "file", "family")] == texts


_LINE = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)


@given(st.lists(_LINE.filter(lambda t: t.strip() and t.rstrip() != "---"), min_size=1, max_size=5))
def test_blocks_round_trip(texts: list[str]) -> None:
    blocks = parse_blocks("\n---\n".join(texts), "file", "family")
    assert [prompt.text for prompt in blocks] == [text.strip() for text in texts]
