"""What is read of MTP heads before a file is loaded, split files included."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import pytest

from specctl.errors import ModelError
from specctl.llama import preflight
from specctl.llama.mtp import why_not
from specctl.llama.preflight import HeadFacts, heads

pytestmark = pytest.mark.native


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("mtp", HeadFacts("qwen35", 1, 1, True)),
        ("mtp-only", HeadFacts("qwen35", 1, 1, False)),
        ("mtp-no-tensors", HeadFacts("qwen35", 1, 0, True)),
        ("mtp-no-key", HeadFacts("qwen35", 0, 1, True)),
        ("mtp-two", HeadFacts("qwen35", 2, 2, True)),
        ("chain-two-of-three", HeadFacts("hy_v3", 3, 2, True)),
        ("chain-only", HeadFacts("hy_v3", 3, 3, False)),
        ("clock", HeadFacts("llama", 0, 0, True)),
    ],
)
def test_facts_of_each_file(tiny_models: Mapping[str, Path], name: str, facts: HeadFacts) -> None:
    assert heads(tiny_models[name]) == facts


def _part(path: Path, tensor: str, declared: int = 1) -> None:
    writer = gguf.GGUFWriter(path, "qwen35")
    writer.add_block_count(2)
    writer.add_nextn_predict_layers(declared)
    writer.add_uint16("split.count", 2)
    import numpy as np

    writer.add_tensor(tensor, np.zeros((2, 2), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_heads_in_the_last_part_of_a_split_file(tmp_path: Path) -> None:
    first, second = (tmp_path / f"m-0000{n}-of-00002.gguf" for n in (1, 2))
    _part(first, "blk.0.attn_norm.weight")
    assert heads(first) == HeadFacts("qwen35", 1, 0, True)  # the other part is not there
    _part(second, "blk.7.nextn.eh_proj.weight")
    assert heads(first) == HeadFacts("qwen35", 1, 1, True)
    assert preflight._other_parts(first, 3) == []  # a name that does not say so


def test_an_assistant_is_heads_without_a_trunk(tiny_models: Mapping[str, Path]) -> None:
    assert heads(tiny_models["assistant-draft"]) == HeadFacts("gemma4-assistant", 2, 2, False)
    preflight.check(tiny_models["assistant-draft"], trunk=False)
    with pytest.raises(ModelError, match="is a Gemma 4 assistant") as caught:
        preflight.check(tiny_models["assistant-draft"])
    assert "draft-mtp" in (caught.value.hint or "")
    assert why_not(tiny_models["assistant-draft"]) is None
    assert "does not declare them" in (why_not(tiny_models["assistant-no-key"]) or "")


def test_more_heads_than_layers_are_refused_before_llama_cpp_aborts(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    _part(path, "blk.0.attn_norm.weight", declared=3)
    with pytest.raises(ModelError, match="3 MTP layers among 2"):
        preflight.check(path)


def test_a_tensor_that_heads_need_is_named(tiny_models: Mapping[str, Path]) -> None:
    lacking = heads(tiny_models["chain-mimo2-split"])
    assert lacking is not None
    assert lacking.lacking == "blk.2.attn_qkv.weight"
    assert "without which llama.cpp would abort" in (
        why_not(tiny_models["chain-mimo2-split"]) or ""
    )
