"""Estimates against llama.cpp's own plans of the same contexts, within the promised limits."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "gguf")]

import gguf_families as families  # noqa: E402
import memory_table  # noqa: E402

from specctl.gguf.facts import read_facts  # noqa: E402
from specctl.plan.memory import estimate  # noqa: E402

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(sys.platform != "linux", reason="reads a libstdc++ map by hand"),
]


def check(rows: list[memory_table.Row]) -> None:
    assert rows
    wrong = [row for row in rows if not row.good]
    assert not wrong, "\n".join(
        f"{row.model} {row.case}: llama.cpp {row.truth}, estimate {row.ours}" for row in wrong
    )


def test_tiny_models_of_every_family(tmp_path: Path) -> None:
    rows = memory_table.compare(memory_table.build(families.TINY, tmp_path), tiny=True)
    check(rows)
    assert len({row.model for row in rows}) == len(families.TINY)
    for row in rows:  # weights, KV and recurrent state are not near but equal
        assert row.ours[:2] == row.truth[:2], row


def test_dimensions_of_published_models(tmp_path: Path) -> None:
    rows = memory_table.compare(memory_table.build(families.FULL_SIZE, tmp_path), False, first=3)
    check(rows)


@pytest.mark.demo
def test_the_demo_model(demo_model: Path) -> None:
    check(memory_table.compare({"demo": demo_model}, tiny=False))


def test_models_of_a_folder() -> None:
    """Real models: set SPECCTL_TEST_MODELS to a folder of GGUF files."""
    folder = os.environ.get("SPECCTL_TEST_MODELS")
    models = {path.stem: path for path in sorted(Path(folder).glob("*.gguf"))} if folder else {}
    if not models:
        pytest.skip("SPECCTL_TEST_MODELS names no folder with models")
    check(memory_table.compare(models, tiny=False))


def test_a_separate_mtp_head_has_no_trunk_to_pay_for(tmp_path: Path) -> None:
    path = families.qwen35(tmp_path / "head.gguf", mtp=1, trunk=False)
    (truth,) = memory_table.truth_of({path: [{"n_ctx": 8192, "ctx_type": 1}]})
    facts = read_facts(str(path))
    memory = estimate(facts.shape, facts.weights, 8192, outputs=9, gpu_layers=0, mtp=True)
    assert memory.part("weights").host == truth["weights"]
    assert memory.part("compute").host == 0
    expected = truth["memory"] + truth["compute"]
    assert abs(memory.part("mtp").host - expected) < 0.1 * truth["compute"]


def test_a_wrong_estimate_would_be_noticed(tmp_path: Path) -> None:
    """The limits have teeth: a KV cache without padding, or a forgotten mask, is outside."""
    (row, *_) = memory_table.compare({"tiny": families.TINY["llama"](tmp_path / "m.gguf")}, True, 1)
    assert row.good
    weights, kv, compute = row.ours
    for ours in ((weights, int(kv * 0.96), compute), (weights, kv, compute - 2 * 512 * 8192)):
        assert not memory_table.Row(row.model, row.case, row.truth, ours, True).good
