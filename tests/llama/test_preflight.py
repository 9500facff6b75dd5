"""Files that llama.cpp would abort on are told from their header."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny

from specctl.errors import ModelError
from specctl.llama import damage, preflight, rawheader
from specctl.llama.model import Model
from specctl.settings import ModelSettings

Edit = Callable[[gguf.GGUFWriter], None]


def written(
    path: Path,
    tokens: list[str],
    kind: type[np.floating] = np.float32,
    arch: str = "llama",
    *edits: Edit,
    blocks: int = 1,
) -> Path:
    """A header with a vocabulary and what `edits` add, and one tensor of a trunk."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(blocks)
    for edit in edits:
        edit(writer)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_tensor("token_embd.weight", np.zeros((len(tokens), 32), np.float32))
    writer.add_tensor("blk.0.attn_norm.weight", np.zeros(32, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_whole_file_passes(tmp_path: Path) -> None:
    preflight.check(written(tmp_path / "m.gguf", ["a", "b"]))


def test_a_tensor_of_doubles_is_refused_by_name(tmp_path: Path) -> None:
    path = written(tmp_path / "m.gguf", ["a", "b"], np.float64)
    with pytest.raises(ModelError, match=r"tensor blk\.0\.attn_norm\.weight is F64"):
        preflight.check(path)


def test_a_token_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"m\.gguf: .*twice"):
        preflight.check(written(tmp_path / "m.gguf", ["a", "b", "a"]))


def with_keys(path: Path, arch: str, keys: Mapping[str, object], blocks: int = 1) -> Path:
    """Of this architecture, four heads of eight, with these keys under its name."""

    def edit(writer: gguf.GGUFWriter) -> None:
        for name, value in {
            "embedding_length": 32,
            "attention.head_count": 4,
            **keys,
        }.items():
            full = f"{arch}.{name}"
            if isinstance(value, float):
                writer.add_float32(full, value)
            elif isinstance(value, int):
                writer.add_uint32(full, value)
            else:
                writer.add_array(full, value)

    return written(path, ["a", "b"], np.float32, arch, edit, blocks=blocks)


@pytest.mark.parametrize("blocks", [0, 513])
def test_a_count_of_layers_that_cannot_be_is_refused(tmp_path: Path, blocks: int) -> None:
    path = with_keys(tmp_path / "m.gguf", "llama", {}, blocks)
    with pytest.raises(ModelError, match=rf"llama\.block_count is {blocks}, .*1 to 512") as caught:
        preflight.check(path)
    assert "fetch it again" in (caught.value.hint or "")


NAN = float("nan")
MOE = "qwen3moe"


@pytest.mark.parametrize(
    ("arch", "keys", "said"),
    [
        ("llama", {"attention.layer_norm_rms_epsilon": -1.0}, "layer_norm_rms_epsilon is -1,"),
        ("llama", {"attention.layer_norm_rms_epsilon": NAN}, "layer_norm_rms_epsilon is nan,"),
        ("gpt2", {"attention.layer_norm_epsilon": -0.5}, "layer_norm_epsilon is -0.5,"),
        (MOE, {"expert_count": 0, "expert_used_count": 2}, "used_count is 2, .* of 0"),
        (MOE, {"expert_count": 4, "expert_used_count": 0}, "used_count is 0, .* of 4"),
        (MOE, {"expert_count": 4}, "used_count is 0, .* of 4"),
        (MOE, {"expert_count": 4, "expert_used_count": 5}, "used_count is 5, .* of 4"),
        (MOE, {"expert_count": 4, "expert_used_count": [0, 5]}, "used_count is 5, .* of 4"),
        (MOE, {"expert_count": 1025, "expert_used_count": 5}, "expert_count is 1025, .* 1024"),
        (
            MOE,
            {"expert_count": 4, "expert_used_count": 2, "expert_group_count": 4},
            "expert_group_count is 4",
        ),
        (
            MOE,
            {"expert_count": 4, "expert_used_count": 2, "expert_group_count": 3},
            "does not divide 4",
        ),
        (
            MOE,
            {"expert_count": 4, "expert_used_count": 2, "expert_group_count": 2},
            "group_used_count is 0, of 2",
        ),
        ("glm4moe", {"rope.dimension_count": 0}, "rope.dimension_count is 0, with heads 8 wide"),
        ("qwen35", {"rope.dimension_count": 10}, "rope.dimension_count is 10, with heads 8 wide"),
        ("qwen3", {"rope.dimension_count": 3}, "is 3, and must be a multiple of 2"),
        ("step35", {"rope.dimension_count": 6}, "is 6, and must be a multiple of 4"),
        (
            "gemma4",
            {
                "attention.key_length": 16,
                "attention.key_length_swa": 8,
                "attention.sliding_window": 4,
                "rope.dimension_count": 16,
                "rope.dimension_count_swa": 10,
            },
            "rope.dimension_count_swa is 10, with heads 8 wide",
        ),
        ("qwen35", {"rope.dimension_sections": [0, 0, 0, 0]}, "sections are all 0"),
        ("qwen35", {"rope.dimension_sections": [4, 4, 4, 0]}, r"\(4, 4, 4, 0\), with heads 8"),
    ],
)
def test_a_value_that_llama_cpp_aborts_or_hangs_on_is_refused_by_its_key(
    tmp_path: Path, arch: str, keys: dict[str, object], said: str
) -> None:
    path = with_keys(tmp_path / "m.gguf", arch, keys)
    with pytest.raises(ModelError, match=rf"m\.gguf is damaged, .*{arch}\..*{said}"):
        preflight.check(path)


@pytest.mark.parametrize(
    ("arch", "keys"),
    [
        ("llama", {"expert_count": 0, "expert_used_count": 0}),  # dense, and says so
        ("hunyuan-dense", {"expert_count": 1}),
        (MOE, {"expert_count": 4, "expert_used_count": [0, 2]}),  # a dense layer among others
        (MOE, {"expert_count": 4, "expert_used_count": 4, "expert_group_count": 1}),
        ("llama", {"attention.layer_norm_rms_epsilon": 0.0}),
        ("nemotron_h", {"rope.dimension_count": 0}),  # turns nothing
        ("mamba", {"attention.head_count": 0, "rope.dimension_count": 0}),
        ("jamba", {"attention.head_count": [0, 4], "rope.dimension_count": 64}),
        ("deepseek2", {"attention.key_length": 576, "rope.dimension_count": 64}),
        ("qwen3", {"attention.key_length": 16, "rope.dimension_count": 16}),
        ("qwen3", {"attention.key_length_swa": 4, "rope.dimension_count": 8}),  # no window
        ("glm4", {"rope.dimension_sections": [0, 0, 0, 0]}),
    ],
)
def test_what_llama_cpp_takes_is_not_refused(
    tmp_path: Path, arch: str, keys: dict[str, object]
) -> None:
    preflight.check(with_keys(tmp_path / "m.gguf", arch, keys))


def test_no_model_that_works_is_called_damaged(tiny_models: Mapping[str, Path]) -> None:
    said = {}
    for name in set(tiny.MODELS) - {"slow"}:
        with rawheader.opened(tiny_models[name]) as header:
            assert header is not None
            said[name] = damage.found(*header, rawheader.text(*header, "general.architecture"))
    assert {name for name, wrong in said.items() if wrong} == {"dflash-no-blocks"}  # has none


@pytest.mark.native
def test_a_file_that_is_cut_off_is_to_be_fetched_again(
    tiny_models: Mapping[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_models["clock"].read_bytes()[:-1])
    with pytest.raises(ModelError, match="not within the file bounds") as caught:
        Model(path, ModelSettings())
    assert caught.value.hint == "fetch it again"
