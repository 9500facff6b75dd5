"""Drafts that are the target without some of its layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import clocks
import pytest
import tiny
from selfdraft_kit import outcome_of, plan, told_costs

from specctl.bench.selfdraft_layers import layers_to_drop
from specctl.errors import UsageError
from specctl.gguf.facts import read_facts

pytestmark = pytest.mark.native


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Costs as told: a draft's step over the target's; verifying costs nothing more."""
    return told_costs(monkeypatch)


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A clock of six layers that say nothing: any of them can go."""
    path = tmp_path / "deep.gguf"
    tiny._clock(path, clocks.clock_target(), n_layer=6)
    return path


def _data(path: Path, layer: int) -> dict[str, bytes]:
    """The bytes of each tensor of a layer."""
    header = read_facts(str(path)).header
    assert header is not None
    whole, name = path.read_bytes(), f"blk.{layer}."
    return {
        one.name.removeprefix(name): whole[header.data_offset + one.offset :][: one.n_bytes]
        for one in header.tensors
        if one.name.startswith(name)
    }


def test_layers_are_dropped_from_the_middle(deep: Path, cheap: Any, tmp_path: Path) -> None:
    cheap(0.5)
    kept = tmp_path / "kept.gguf"
    outcome = outcome_of(plan(deep, quants=(), drop=2, out=kept))
    (judged,), (wanted,) = outcome.judged, outcome.prepared.wanted
    assert wanted.dropped == (2, 3)
    assert (judged.made.quant, judged.made.kind) == ("F32-drop2", None)
    assert judged.forecast.beta == 1.0
    assert wanted.size == read_facts(str(kept)).weights.total
    assert read_facts(str(kept)).shape.n_layer == 4
    for place, layer in enumerate((0, 1, 4, 5)):
        assert _data(kept, place) == _data(deep, layer) != {}
    assert any("layers 2 to 3" in note and "did not pay" in note for note in outcome.prepared.notes)


def test_what_is_dropped_is_missed(tmp_path: Path, cheap: Any) -> None:
    """Loud layers, one of them gone: the choices are no longer the target's."""
    cheap(0.5)
    loud = tmp_path / "loud.gguf"
    tiny.write_dense(loud, tiny._jitter_head(), dims=tiny.Dims(n_layer=4), out=tiny.LOUD["llama"])
    (judged,) = outcome_of(plan(loud, quants=(), drop=1, max_tokens=24)).judged
    assert judged.forecast.beta < 0.9


def test_dropped_and_requantised(deep: Path, cheap: Any) -> None:
    cheap(0.5)
    outcome = outcome_of(plan(deep, quants=("Q8_0",), drop=2))
    assert outcome.kept is not None
    assert outcome.kept.path.name == "deep-Q8_0-drop2.gguf"
    facts = read_facts(str(outcome.kept.path))
    assert (facts.shape.n_layer, facts.tensor_types[0][0]) == (4, "q8_0")


@pytest.mark.parametrize(
    ("name", "count", "words"),
    [
        ("clock", 1, "the first and the last stay"),
        ("jitter-swa", 1, "gemma3 is not known to treat its layers alike"),
        ("slow", 11, "12 layers are there"),
    ],
)
def test_layers_that_cannot_be_dropped(tiny_models: Any, name: str, count: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        layers_to_drop(read_facts(str(tiny_models[name])), count)


def test_where_no_layer_can_go_no_number_is_advised(tiny_models: Any) -> None:
    with pytest.raises(UsageError) as caught:
        layers_to_drop(read_facts(str(tiny_models["clock"])), 1)
    assert "…" not in str(caught.value.hint)
    with pytest.raises(UsageError) as caught:
        layers_to_drop(read_facts(str(tiny_models["slow"])), 11)
    assert caught.value.hint == "1 … 10"


def test_layers_that_differ_are_not_dropped(deep: Path) -> None:
    facts = read_facts(str(deep))
    assert layers_to_drop(facts, 4) == (1, 2, 3, 4)
    assert facts.header is not None
    listed = {**facts.header.metadata, "llama.attention.head_count_kv": (2,) * 6}
    with pytest.raises(UsageError, match=r"head_count_kv is a list"):
        layers_to_drop(replace(facts, header=replace(facts.header, metadata=listed)), 1)
    other = tuple(one for one in facts.header.tensors if one.name != "blk.3.ffn_norm.weight")
    with pytest.raises(UsageError, match="different shapes"):
        layers_to_drop(replace(facts, header=replace(facts.header, tensors=other)), 1)
