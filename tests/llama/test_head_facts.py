"""What is read of MTP heads before a file is loaded, split files included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import pytest

from specctl.errors import ModelError
from specctl.llama import preflight
from specctl.llama.preflight import HeadFacts, heads

pytestmark = pytest.mark.native


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("mtp", HeadFacts("qwen35", 1, True, True)),
        ("mtp-only", HeadFacts("qwen35", 1, True, False)),
        ("mtp-no-tensors", HeadFacts("qwen35", 1, False, True)),
        ("mtp-no-key", HeadFacts("qwen35", 0, True, True)),
        ("mtp-two", HeadFacts("qwen35", 2, True, True)),
        ("clock", HeadFacts("llama", 0, False, True)),
    ],
)
def test_facts_of_each_file(tiny_models: Mapping[str, Path], name: str, facts: HeadFacts) -> None:
    assert heads(tiny_models[name]) == facts


def _part(path: Path, tensor: str, arch: str = "qwen35") -> None:
    writer = gguf.GGUFWriter(path, arch)
    writer.add_nextn_predict_layers(1)
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
    assert heads(first) == HeadFacts("qwen35", 1, False, True)  # the other part is not there
    _part(second, "blk.7.nextn.eh_proj.weight")
    assert heads(first) == HeadFacts("qwen35", 1, True, True)
    assert preflight._other_parts(first, 3) == []  # a name that does not say so


@pytest.mark.parametrize("look", [preflight.check, heads])
def test_an_assistant_that_shares_the_targets_cache_is_refused(
    tmp_path: Path, look: Callable[[Path], object]
) -> None:
    path = tmp_path / "assistant.gguf"
    _part(path, "blk.0.attn_norm.weight", "gemma4-assistant")
    with pytest.raises(ModelError, match="is a Gemma 4 assistant") as caught:
        look(path)
    assert "llama-server" in (caught.value.hint or "")
