"""Old flags, and the page that lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.external.explain import explain, hints, recognise
from specctl.external.flags import ENGINES, FLAGS, KEYS, SOURCES
from specctl.external.oldflags import OLD
from specctl.external.table import methods_table, old_table, sources_table

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"


def today(line: str, engine: str) -> dict[str, tuple[str, str]]:
    return {one.typed: (one.verdict, one.today) for one in explain([line]) if one.engine == engine}


@pytest.mark.parametrize(
    ("line", "engine", "typed", "verdict", "form"),
    [
        ("x --draft-max 16", "llama-server", "--draft-max 16", "old", "--spec-draft-n-max 16"),
        ("x --draft-model d.gguf", "llama-server", "--draft-model d.gguf", "never", "-md d.gguf"),
        ("x -md d", "llama-server", "-md d", "catch", "--spec-type draft-simple"),
        ("x --spec-type draft-self", "llama-server", "--spec-type draft-self", "never", "ngram-"),
        ("x --spec-type ngram-mod,mtp", "llama-server", "--spec-type ngram-mod,mtp", "old", "mtp"),
        ("x --parallel 1", "llama-server", "--parallel 1", "catch", "-np 1"),
        ("x --parallel 4", "llama-server", "--parallel 4", "valid", ""),
        ("x --spec_draft_n_max 4", "llama-server", "--spec_draft_n_max 4", "valid", ""),
        ("x --speculative-num-steps 3", "vllm", "--speculative-num-steps 3", "never", "3"),
        ("x --speculative-num-steps 3", "sglang", "--speculative-num-steps 3", "valid", ""),
        ("x --num-speculative-tokens=5", "vllm", "--num-speculative-tokens 5", "old", "5"),
        ("x decoding_type: DraftTarget", "trtllm", "decoding_type DraftTarget", "old", "Draft_T"),
        ("x sa_spec_threshold=4", "trtllm", "sa_spec_threshold 4", "old", "{threshold: 4}"),
        ("x SGLANG_ENABLE_SPEC_V2=True", "sglang", "SGLANG_ENABLE_SPEC_V2 True", "old", ""),
    ],
)
def test_what_it_is_today(line, engine, typed, verdict, form):
    found = today(line, engine)
    assert found[typed][0] == verdict
    assert form in found[typed][1]


def test_a_whole_line_is_read_as_its_engine():
    line = """python -m sglang.launch_server --model-path a/b --speculative-algorithm ngram \\
        --ngram-context-size 3 --speculative-draft-tensor-parallel-size 1"""
    found = explain([line])
    assert {one.engine for one in found} == {"sglang"}
    verdicts = {one.typed: one.verdict for one in found}
    assert verdicts == {
        "sglang.launch_server": "catch",
        "--model-path a/b": "valid",
        "--speculative-algorithm ngram": "catch",
        "--ngram-context-size 3": "never",
        "--speculative-draft-tensor-parallel-size 1": "unverified",
    }


def test_keys_inside_vllms_json_are_read():
    line = (
        """vllm serve x -sc '{"method":"medusa","tensor_parallel_size":1,"frob":2,"model":"m"}'"""
    )
    verdicts = {one.typed: one.verdict for one in explain([line])}
    assert verdicts["method medusa"] == "old"
    assert verdicts["tensor_parallel_size 1"] == "never"
    assert verdicts["frob 2"] == "unverified"
    assert verdicts["model m"] == "valid"


@pytest.mark.parametrize(
    ("words", "engine"),
    [
        (["/opt/bin/llama-server", "-m", "x"], "llama-server"),
        (["vllm", "serve", "x"], "vllm"),
        (["python", "-m", "vllm.entrypoints.openai.api_server"], "vllm"),
        (["sglang", "serve"], "sglang"),
        (["trtllm-serve", "x"], "trtllm"),
        (["--draft-max", "16"], None),
    ],
)
def test_recognise(words, engine):
    assert recognise(words) == engine


@given(st.lists(st.text(max_size=20), max_size=6))
def test_it_reads_anything(words):
    for one in explain(words):
        assert one.verdict in ("valid", "catch", "old", "never", "unverified")
        assert "{}" not in one.today or "{}" in "".join(words)


def test_no_flag_is_both_todays_and_old():
    """What is old is in no table of today; what works with a catch is."""
    for old in OLD:
        table = {**FLAGS[old.engine], **KEYS.get(old.engine, {})}
        if old.verdict in ("old", "never") and "=" not in old.name:
            assert old.name not in table, old
        assert old.engine in ENGINES
        assert old.why
    names = [(old.engine, old.name) for old in OLD]
    assert len(names) == len(set(names))


def test_every_entry_names_a_source():
    for table in (*FLAGS.values(), *KEYS.values()):
        assert all(known.source in SOURCES and known.grade in "HM" for known in table.values())


def test_hints_name_specctls_form():
    assert hints(["chat", "--draft-max", "8"]) == (
        "--draft-max is --spec-draft-n-max 8 in specctl",
    )
    assert hints(["chat", "-md", "d"]) == ("-md is --draft d in specctl",)
    assert hints(["chat", "--spec-draft-n-max", "8", "-m", "x"]) == ()


# ---------------------------------------------------------------- docs/engines.md


@pytest.mark.parametrize(
    ("name", "table"),
    [("methods", methods_table), ("sources", sources_table), ("old", old_table)],
)
def test_the_page_is_current(name, table):
    text = PAGE.read_text(encoding="utf-8")
    (found,) = re.findall(rf"<!-- {name}: [^\n]*-->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert found == table()


def test_no_cell_is_empty():
    for table in (methods_table(), sources_table(), old_table()):
        for line in table.splitlines():
            assert all(cell.strip() for cell in line.strip("|").split("|")), line
