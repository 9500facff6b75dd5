"""A plan counts the snapshots of a recurrent state that the engine keeps, and no more of them."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "gguf")]

import memory_table  # noqa: E402

from specctl import enginefacts  # noqa: E402
from specctl.cli.app import main  # noqa: E402
from specctl.engine.session import open_session  # noqa: E402
from specctl.gguf.facts import read_facts  # noqa: E402
from specctl.llama import rollback  # noqa: E402
from specctl.llama.model import Model  # noqa: E402
from specctl.llama.rollback import StateFacts  # noqa: E402
from specctl.plan.memory import most_kept  # noqa: E402
from specctl.settings import EngineSettings, ModelSettings, SpecSettings  # noqa: E402

pytestmark = pytest.mark.native
Plan = Callable[..., dict[str, Any]]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Plan:
    """`specctl plan … --vram 0 --json`: what it says, read."""

    def call(*arguments: str) -> dict[str, Any]:
        line = ["specctl", "plan", *arguments, "--vram", "0", "--json"]
        monkeypatch.setattr(sys, "argv", line)
        with pytest.raises(SystemExit):
            main()
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return call


def part(found: dict[str, Any], name: str, side: str = "target") -> int:
    return sum(one["host"] for one in found[side]["parts"] if one["name"] == name)


@pytest.mark.skipif(sys.platform != "linux", reason="reads a libstdc++ map by hand")
@pytest.mark.parametrize("k", [1, 4, 8])
def test_they_are_what_llama_cpp_itself_plans(
    plan: Plan, tiny_models: Mapping[str, Path], k: int
) -> None:
    target, draft = tiny_models["hybrid"], tiny_models["hybrid-draft"]
    found = plan(str(target), "--draft", str(draft), "--ctx", "512", "--k", str(k))
    options = {"n_ctx": 512, "n_rs_seq": k, "n_outputs_max": k + 1}
    truth, alone = memory_table.truth_of({target: [options], draft: [{"n_ctx": 512}]})
    held = sum(part(found, name) for name in memory_table.STATE)
    assert held == truth["memory"]
    assert part(found, "snapshots") == k * part(found, "recurrent") > 0
    drafts = sum(part(found, name, "draft") for name in memory_table.STATE)
    assert drafts == alone["memory"]  # opened for one row: it keeps none


def test_k_is_bounded_as_the_engine_bounds_it(
    plan: Plan, tiny_models: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tiny_models["hybrid"]
    state = read_facts(str(target)).shape.recurrent_bytes
    monkeypatch.setattr(enginefacts, "_SHARE", 0.0)
    monkeypatch.setattr(enginefacts, "_LEAST", 5.7 * state)
    with closing(Model(target, ModelSettings())) as model:  # its figure is a rounded one
        assert state <= model.snapshot_bytes <= state + 0.01 * (1 << 20)
    monkeypatch.setattr(rollback, "survey", lambda _: StateFacts(True, state))
    found = plan(str(target), "--ctx", "512", "--k", "8")
    settings = EngineSettings(n_ctx=512, threads=1)
    with open_session(target, None, (SpecSettings(types=("ngram-mod",), k=8),), settings) as opened:
        assert found["k"] == opened.k_max == 4
        assert any("drafts of at most 4 tokens" in note for note in opened.notes)
    assert part(found, "snapshots") == 4 * state
    assert "drafts of at most 4 tokens, not 8" in " ".join(found["decisions"])
    enough = plan(str(target), "--ctx", "512", "--k", "3")
    assert (enough["k"], part(enough, "snapshots")) == (3, 3 * state)
    assert not any("drafts of at most" in text for text in enough["decisions"])


def test_a_state_without_snapshots_and_a_kv_cache_are_told_apart(
    plan: Plan, tiny_models: Mapping[str, Path]
) -> None:
    mamba, dense = str(tiny_models["recurrent"]), str(tiny_models["clock"])
    found = plan(mamba, "--ctx", "512")
    assert (found["k"], part(found, "snapshots")) == (8, 0)
    assert any("costs a second pass" in text for text in found["decisions"])
    assert most_kept(read_facts(mamba).shape, 10**9) == 0
    other = plan(dense, "--ctx", "512")
    assert not part(other, "snapshots")
    assert most_kept(read_facts(dense).shape, 10**9) is None


def test_weights_that_are_not_loaded_do_not_count(tiny_models: Mapping[str, Path]) -> None:
    facts = read_facts(str(tiny_models["hybrid"]))
    shape = dataclasses.replace(facts.shape, recurrent_bytes=1 << 20)
    layer = 64 << 30
    heads = dataclasses.replace(
        facts.weights,
        layers=(*facts.weights.layers, layer),
        experts=(*facts.weights.experts, 0),
    )
    without = most_kept(shape, facts.weights)
    assert without == most_kept(shape, heads)
    assert most_kept(shape, heads, mtp=True) == (heads.total >> 23) - 1
