"""A recorded generation replays; a damaged file says where."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_events import records

from specctl.errors import SpecctlError
from specctl.events import Finished, PromptDone
from specctl.recording import read, tee, write_line

PROMPT = PromptDone(12, 3, 0.5)
END = Finished("eog", 12, 7, 1.5, "\u2028 ü 😀\n")


@given(st.lists(records, max_size=5))
def test_round_trip(tmp_path_factory, made):
    path = tmp_path_factory.mktemp("rec") / "run.jsonl"
    with path.open("w", encoding="utf-8") as out:
        assert list(tee(made, out)) == made
    assert len(path.read_text(encoding="utf-8").splitlines()) == len(made)
    assert list(read(path)) == made


def test_tee_writes_a_record_before_it_passes_it_on():
    out = io.StringIO()
    running = tee([PROMPT, END], out)
    assert next(running) == PROMPT
    assert out.getvalue().count("\n") == 1


def test_tee_without_a_file_only_passes_on():
    assert list(tee([PROMPT, END], None)) == [PROMPT, END]


def test_empty_lines_are_no_records(tmp_path):
    path = tmp_path / "run.jsonl"
    with path.open("w") as out:
        out.write("\n")
        write_line(PROMPT, out)
        out.write("  \n")
    assert list(read(path)) == [PROMPT]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"type": "prompt", "prompt_tok', "not JSON"),
        ("[1, 2]", "not a record"),
        ("3", "not a record"),
        ('{"type": "nonsense"}', "not a record type"),
        ('{"type": "prompt"}', "damaged prompt record"),
        ('{"type": "started", "schema": 99}', "newer"),
    ],
)
def test_errors_name_file_and_line(tmp_path, line, words):
    path = tmp_path / "run.jsonl"
    with path.open("w") as out:
        write_line(PROMPT, out)
        out.write(line + "\n")
    reading = read(path)
    assert next(reading) == PROMPT
    with pytest.raises(SpecctlError, match=rf"run\.jsonl, line 2: .*{words}"):
        next(reading)


def test_a_file_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "missing.jsonl", tmp_path):
        with pytest.raises(SpecctlError, match="cannot read"):
            list(read(path))
    binary = tmp_path / "model.gguf"
    binary.write_bytes(b"GGUF\xff\xfe\x00\x81")
    with pytest.raises(SpecctlError, match="not a text file"):
        list(read(binary))
