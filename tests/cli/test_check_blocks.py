"""What check and plan say of DFlash and DSpark drafts, as the engine would run them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "gguf")]

import gguf_families as families  # noqa: E402
import gguf_headers as headers  # noqa: E402

from specctl.cli.check import _with_drafter  # noqa: E402
from specctl.cli.inspect import _rows  # noqa: E402
from specctl.cli.plan import _ubatch  # noqa: E402
from specctl.enginefacts import BLOCK_BATCH  # noqa: E402
from specctl.gguf.facts import ModelFacts, read_facts  # noqa: E402
from specctl.gguf.pair import check_pair  # noqa: E402

SPARK = ("markov_w1.weight", "markov_w2.weight")


def block(path: Path, *tensors: str, **keys: Any) -> ModelFacts:
    """A draft for a llama of width 64."""
    how = {"target_layers": [0, 1], "block_size": 8, **keys}
    all_keys = headers.base("dflash", 1, 64, 2, 1, 32, 64, 300, **how)
    all_keys |= headers.vocabulary(300) | {"tokenizer.ggml.mask_token_id": 3}
    shapes: headers.Tensors = [("fc.weight", (128, 64), "f32")]
    shapes += [(name, (8, 300), "f32") for name in tensors]
    return read_facts(str(headers.write(path, all_keys, shapes)))


@pytest.fixture
def target(tmp_path: Path) -> ModelFacts:
    keys = headers.base("llama", 2, 64, 2, 1, 32, 64, 300) | headers.vocabulary(300)
    return read_facts(str(headers.write(tmp_path / "t.gguf", keys, headers.ends(64, 300, "f32"))))


@pytest.mark.parametrize(
    ("tensors", "keys", "method", "said"),
    [
        ((), {}, "draft-dflash", ""),
        (SPARK, {}, "draft-dspark", ""),
        (("selector_hidden.weight",), {}, "draft-dflash", "no DFlash2 drafts"),
        ((), {"block_size": 129}, "draft-dflash", "at most 128 tokens, not 129"),
        (SPARK, {"hyper_connection__count": 4}, "draft-dspark", "DeepSeek-V4"),
        ((), {"hyper_connection__count": 4}, "draft-dflash", "DeepSeek-V4"),
    ],
)
def test_check_says_what_specctl_does_not_run(
    target: ModelFacts, tmp_path: Path, tensors: tuple[str, ...], keys: dict, method: str, said: str
) -> None:
    draft = block(tmp_path / "b.gguf", *tensors, **keys)
    found = _with_drafter(check_pair(target, draft), draft)
    assert found.method == method
    warnings = [one.text for one in found.findings if one.level == "warning"]
    assert found.verdict == ("ok with warnings" if said else "ok"), found
    assert all(said in text for text in warnings)
    assert bool(warnings) == bool(said)


def test_inspect_shows_the_block(tmp_path: Path) -> None:
    rows = dict(_rows(None, block(tmp_path / "b.gguf", block_size=7)))
    assert rows["Block"] == "7 tokens in one pass, mask token 3"
    assert "Block" not in dict(_rows(None, read_facts(str(families.qwen35(tmp_path / "d.gguf")))))


def test_plan_takes_the_micro_batch_of_the_engine(tmp_path: Path) -> None:
    assert _ubatch(block(tmp_path / "a.gguf")) == BLOCK_BATCH
    assert _ubatch(block(tmp_path / "b.gguf", block_size=48)) == 48
    assert _ubatch(block(tmp_path / "c.gguf", "selector_hidden.weight")) is None
    assert _ubatch(read_facts(str(families.qwen35(tmp_path / "d.gguf")))) is None
