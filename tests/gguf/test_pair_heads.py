"""Heads in a chain and Gemma 4 assistants: what two headers say of them, and what `check` adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from specctl.cli.check import _with_drafter
from specctl.gguf.facts import ModelFacts, read_facts
from specctl.gguf.pair import PairCheck, check_pair


def facts(tiny_models: Mapping[str, Path], name: str) -> ModelFacts:
    return read_facts(str(tiny_models[name]))


def checked(tiny_models: Mapping[str, Path], target: str, draft: str) -> PairCheck:
    theirs = facts(tiny_models, draft)
    return _with_drafter(check_pair(facts(tiny_models, target), theirs), theirs)


def test_an_assistant_keeps_no_cache_and_names_its_targets_width(
    tiny_models: Mapping[str, Path],
) -> None:
    read = facts(tiny_models, "assistant-draft")
    assert (read.kind, read.mtp, read.target_n_embd) == ("mtp head", "head", 320)
    assert (read.shape.kv_width_k, read.shape.kv_width_v) == (0, 0)
    assert {layer.kv_k + layer.kv_v for layer in read.shape.layers} <= {0}


def test_an_assistant_fits_its_target_and_specctl_runs_it(tiny_models: Mapping[str, Path]) -> None:
    found = checked(tiny_models, "gemma4-clock", "assistant-draft")
    assert (found.verdict, found.method) == ("ok", "draft-mtp")
    assert any("keeps none of its own" in finding.text for finding in found.findings)


@pytest.mark.parametrize(
    ("target", "draft", "said"),
    [
        ("jitter-swa", "assistant-draft", "of a gemma4 model, not of a gemma3"),
        ("gemma4-clock", "assistant-wide", "made for a target of width 336, this one has 320"),
        ("mtp", "chain-only", "an MTP head of hy_v3 cannot serve a target of qwen35"),
    ],
)
def test_heads_for_another_target(
    tiny_models: Mapping[str, Path], target: str, draft: str, said: str
) -> None:
    found = checked(tiny_models, target, draft)
    assert found.verdict == "no"
    assert any(said in finding.text for finding in found.findings if finding.level == "no")


def test_chains_are_run_where_llama_cpp_runs_each_head(tiny_models: Mapping[str, Path]) -> None:
    trunk, heads = facts(tiny_models, "chain-trunk"), facts(tiny_models, "chain-only")
    assert heads.shape.n_nextn == 3
    assert _with_drafter(check_pair(trunk, heads), heads).verdict == "ok"
    single = replace(heads, shape=replace(heads.shape, arch="qwen35"))
    target = replace(trunk, shape=replace(trunk.shape, arch="qwen35"))
    found = _with_drafter(check_pair(target, single), single)
    assert found.verdict == "ok with warnings"
    assert "of qwen35 llama.cpp runs one" in found.findings[0].text
