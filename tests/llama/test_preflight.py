"""Files that llama.cpp would abort on are told from their header."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from specctl.errors import ModelError
from specctl.llama import preflight


def written(
    path: Path, tokens: list[str], kind: type[np.floating] = np.float32, arch: str = "llama"
) -> Path:
    """A header with a vocabulary, and one tensor of a trunk."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(1)
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
