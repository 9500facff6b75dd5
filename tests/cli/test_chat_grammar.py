"""What `chat` says of grammar and schema files that cannot be meant; no model is opened for it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.native


@pytest.mark.parametrize(
    ("flag", "content", "words"),
    [
        ("--json-schema", b'{"type":"nonsense"}', 'the JSON schema, at #/type: "nonsense" is no'),
        ("--json-schema", b"hello", "is no JSON: Expecting value: line 1 column 1"),
        ("--json-schema", b"", "is no JSON: there is nothing in it"),
        ("--json-schema", b"\xff\xfe", "is no UTF-8 text"),
        ("--json-schema", b'\xef\xbb\xbf{"enum":[]}', "at #/enum: an empty list"),
        ("--json-schema", None, "No such file or directory\n  a file, or the schema itself"),
        ("--grammar", b'root = "a"', "line 1: after `root` comes ::="),
        ("--grammar", b"", "the grammar is empty"),
        ("--grammar", None, "No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_meant(specctl, tmp_path: Path, flag, content, words) -> None:
    file = tmp_path / "x.file"
    if content is not None:
        file.write_bytes(content)
    code, out, err = specctl("chat", "-m", "none.gguf", "-p", "hi", flag, str(file))
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {flag}")
    assert str(file) in err
    assert words in err


def test_a_schema_on_the_command_line(specctl) -> None:
    code, _, err = specctl("chat", "-m", "none.gguf", "-p", "hi", "--json-schema", "{a: 1}")
    assert code == 2
    assert "--json-schema: the JSON schema is no JSON: Expecting property name" in err
    code, _, err = specctl("chat", "-p", "hi", "--json-schema", "{}", "--grammar", "x")
    assert code == 2
    assert "exclude each other" in err


def test_what_is_not_enforced_is_said(specctl, tiny_models) -> None:
    schema = '{"type": "integer", "minimum": 3}'
    model = str(tiny_models["clock"])
    code, out, err = specctl(
        "chat", "-m", model, "-p", "amber", "-n", "3", "-t", "1", "--json-schema", schema
    )
    assert code == 0, err
    assert "of the JSON schema, not enforced: minimum" in err
    assert out.strip().lstrip("-").isdigit()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--grammar", ""), "--grammar '' names no file"),
        (("--json-schema", ""), "--json-schema '' names no file"),
        (("--stop", ""), "--stop '' would stop every answer at once"),
        (("--k", "abc"), "Invalid value for '--k': 'abc' is not a whole number"),
        (("--ctx", "1.5"), "Invalid value for '--ctx': '1.5' is not a whole number"),
        (("--top-p", "x"), "Invalid value for '--top-p': 'x' is not a number"),
        (("-s", "nonsense"), "auto, draft-self"),
        (("--k", "4", "-s", "draft-self,nonsense"), "'nonsense' is not a spec type"),
    ],
)
def test_values_that_cannot_be_meant_are_named_before_anything_is_opened(
    specctl, flags, words, monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, _, err = specctl("chat", "-m", "none.gguf", "-p", "hi", *flags)
    assert code == 2
    assert words in " ".join(err.split())
