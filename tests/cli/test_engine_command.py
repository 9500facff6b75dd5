"""`specctl engine show` and `explain` as a user runs them."""

from __future__ import annotations

import json

import pytest

from specctl.external import wish


@pytest.fixture(autouse=True)
def _nothing_here(monkeypatch):
    monkeypatch.setattr(wish, "find", lambda *_: None)


def test_show_for_people(specctl):
    code, out, err = specctl("engine", "show", "vllm", "qwen3-8b+draft-simple", "--tp", "2")
    assert code == 0
    assert "vllm serve Qwen/Qwen3-8B \\\n" in out
    assert '"model":"Qwen/Qwen3-0.6B","num_speculative_tokens":4}\' \\\n' in out  # never wrapped
    assert "checked for vLLM 0.33.0: source, not run" in out
    assert not err


def test_shell_prints_the_command_alone(specctl):
    code, out, err = specctl("engine", "show", "sglang", "hf:a/b", "--shell", "--port", "1234")
    assert code == 0
    assert out == (
        "sglang serve --model-path a/b --enable-metrics --decode-log-interval 5 "
        "--host 127.0.0.1 --port 1234\n"
    )
    assert "plain decoding" in err


def test_json(specctl):
    code, out, _ = specctl(
        "engine", "show", "trtllm", "qwen3-8b+ngram-suffix", "--json", "--", "--frob", "1"
    )
    found = json.loads(out)
    assert code == 0
    assert found["config"] == {"decoding_type": "SA", "max_draft_len": 4}
    assert found["metrics"] == "http://127.0.0.1:8000/prometheus/metrics"
    grades = {flag["name"]: flag["grade"] for flag in found["flags"]}
    assert grades["--frob"] == "unverified"
    assert grades["max_draft_len"] == "H"
    assert grades["--config"] == "M"


def test_unverified_is_shown(specctl):
    _, out, _ = specctl("engine", "show", "vllm", "hf:a/b", "--", "--frob")
    assert "unverified, read nowhere: --frob" in out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("vllm", "qwen3-8b+ngram-map-k"), "nearest: ngram-suffix; --nearest takes it"),
        (("vllm", "qwen3-8b+draft-mtp"), "qwen3-8b has no MTP heads"),
        (("vllm", "qwen3-8bb"), "no profile 'qwen3-8bb'"),
        (("vllm", "hf:a/b", "--shell", "--json"), "two outputs"),
        (("vllm", "hf:a/b", "--node", "1"), "no node 1"),
    ],
)
def test_refusals(specctl, args, says):
    code, out, err = specctl("engine", "show", *args)
    assert code == 2
    assert says in err
    assert not out
    assert "Traceback" not in err


def test_explain_takes_flags_as_they_are(specctl):
    code, out, _ = specctl(
        "engine", "explain", "--draft-max", "16", "-hf", "a/b", "-md", "d.gguf", "--json"
    )
    assert code == 0
    found = {one["typed"]: one["verdict"] for one in json.loads(out)}
    assert found == {"--draft-max 16": "old", "-hf a/b": "valid", "-md d.gguf": "catch"}


def test_explain_for_people(specctl):
    code, out, _ = specctl("engine", "explain", "llama-server -m x --draft-max 16")
    assert code == 0
    assert "--spec-draft-n-max" in out
    assert specctl("engine", "explain")[0] == 2


def test_an_old_flag_typed_to_specctl_is_explained(specctl):
    code, _, err = specctl("chat", "--draft-max", "8")
    assert code == 2
    assert "--draft-max is --spec-draft-n-max 8 in specctl" in err
    assert "in specctl" not in specctl("chat", "--frobnicate", "8")[2]


@pytest.mark.parametrize("args", [("engine",), ("engine", "--help"), ("engine", "-h")])
def test_the_first_word_alone_lists_what_there_is(specctl, args):
    code, out, _ = specctl(*args)
    assert code == 0
    assert [line.split()[2] for line in out.splitlines()] == ["show", "run", "explain"]
    assert specctl("engine", "foo")[0] == 2
