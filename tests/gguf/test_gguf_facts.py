"""Facts from headers: shapes against hand arithmetic, MTP states, kinds, splits, tokenizers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf_families as families
import gguf_headers as headers
import pytest

from specctl.enginefacts import LAYER_TAPS
from specctl.errors import GgufError
from specctl.gguf.facts import ModelFacts, read_facts
from specctl.gguf.shape import LayerMemory


def facts(path: Path) -> ModelFacts:
    return read_facts(str(path))


def test_grouped_query_attention(tmp_path: Path) -> None:
    found = facts(families.llama(tmp_path / "m.gguf"))
    shape = found.shape
    assert (found.kind, found.known_arch, found.quant) == ("model", True, "Q4_K_M")
    assert (shape.n_layer, shape.n_embd, shape.n_head, shape.n_ff) == (4, 256, 4, 512)
    assert (shape.kv_width_k, shape.kv_width_v, shape.n_attention) == (2 * 64, 2 * 64, 4)
    assert shape.layers == (LayerMemory(128, 128),) * 4
    assert (shape.n_vocab, shape.head_dim, shape.is_hybrid) == (1024, 64, False)


def test_weights_by_place(tmp_path: Path) -> None:
    size = families.Size(n_layer=2, kind="f16")
    weights = facts(families.llama(tmp_path / "m.gguf", size)).weights
    matrices = 256 * 256 + 2 * 256 * 128 + 256 * 256 + 3 * 256 * 512
    assert weights.layers == (2 * matrices + 4 * 2 * 256,) * 2
    assert weights.embedding == 2 * 256 * 1024
    assert weights.output == 2 * 256 * 1024 + 4 * 256
    assert not weights.tied
    assert weights.total == sum(weights.layers) + weights.embedding + weights.output
    assert facts(families.qwen3(tmp_path / "q.gguf", size)).weights.tied


def test_sliding_window_five_to_one(tmp_path: Path) -> None:
    shape = facts(families.gemma3(tmp_path / "m.gguf")).shape
    assert (shape.n_attention, shape.n_swa, shape.window) == (2, 10, 128)
    assert [layer.sliding for layer in shape.layers] == ([True] * 5 + [False]) * 2


@pytest.mark.parametrize(
    ("arch", "more", "n_layer", "full"),
    [
        ("gpt-oss", {"attention.sliding_window": 128}, 4, [1, 3]),
        ("cohere2moe", {"attention.sliding_window": 128}, 8, [0, 4]),  # dense first
        ("gemma2", {}, 4, [1, 3]),  # a window by default
        ("gemma3", {}, 6, range(6)),  # no window in the file: nothing slides
        (
            "gemma3",
            {"attention.sliding_window": 8, "attention.sliding_window_pattern": 3},
            6,
            [2, 5],
        ),
        ("phi3", {"attention.sliding_window": 128}, 4, range(4)),  # switched off in llama.cpp
        ("qwen2", {"attention.sliding_window": 128}, 4, range(4)),  # the key is not read
        ("exaone4", {"attention.sliding_window": 128}, 4, range(4)),  # only with 64 layers
        ("exaone4", {"attention.sliding_window": 128}, 64, range(3, 64, 4)),
        (
            "mimo2",
            {"attention.sliding_window": 9, "attention.sliding_window_pattern": [True, False] * 2},
            4,
            [1, 3],
        ),
    ],
)
def test_which_layers_slide(
    tmp_path: Path, arch: str, more: dict[str, object], n_layer: int, full: list[int]
) -> None:
    keys = headers.base(arch, n_layer, 64, 2, 1, 32, 64, 32)
    keys |= {f"{arch}.{key}": value for key, value in more.items()}
    shape = facts(headers.write(tmp_path / "m.gguf", keys, headers.ends(64, 32, "f32"))).shape
    assert [i for i, layer in enumerate(shape.layers) if not layer.sliding] == list(full)


def test_windows_with_heads_of_their_own(tmp_path: Path) -> None:
    """gemma4: sliding layers have other head sizes, the last ones share the cache of others."""
    keys = headers.base(
        "gemma4", 6, 64, 4, 2, 32, 64, 32,
        attention__sliding_window=16,
        attention__sliding_window_pattern=[True, True, False] * 2,
        attention__key_length_swa=16,
        attention__value_length_swa=8,
        attention__shared_kv_layers=2,
    )  # fmt: skip
    shape = facts(headers.write(tmp_path / "m.gguf", keys, headers.ends(64, 32, "f32"))).shape
    assert shape.layers == (
        LayerMemory(2 * 16, 2 * 8, sliding=True),
        LayerMemory(2 * 16, 2 * 8, sliding=True),
        LayerMemory(2 * 32, 2 * 32),
        LayerMemory(2 * 16, 2 * 8, sliding=True),
        LayerMemory(),
        LayerMemory(),
    )
    assert (shape.n_attention, shape.n_swa, shape.swa_width_k, shape.swa_width_v) == (1, 3, 32, 16)


def test_latent_attention_keeps_no_values(tmp_path: Path) -> None:
    found = facts(families.deepseek2(tmp_path / "m.gguf"))
    assert found.mla
    assert (found.shape.kv_width_k, found.shape.kv_width_v) == (512 + 64, 0)
    assert found.shape.kv_lora == 512


def test_hybrid_state_by_hand(tmp_path: Path) -> None:
    found = facts(families.qwen35(tmp_path / "m.gguf"))
    shape = found.shape
    assert (shape.n_attention, shape.n_recurrent) == (1, 3)
    inner, state, groups = 4 * 64, 64, 2
    one = 4 * (3 * (inner + 2 * groups * state) + state * inner)
    assert shape.recurrent_bytes == 3 * one
    assert [bool(layer.kv_k) for layer in shape.layers] == [False, False, False, True]
    assert found.can_roll_back


@pytest.mark.parametrize(
    ("arch", "more", "attention", "recurrent", "one"),
    [
        ("jamba", {"attention.head_count_kv": [0, 2, 0, 0]}, 1, 3, 4 * (3 * 128 + 16 * 128)),
        (
            "lfm2",
            {"attention.head_count_kv": [0, 2, 0, 2], "shortconv.l_cache": 3},
            2, 2, 4 * 64 * 2,
        ),
        ("falcon-h1", {}, 4, 4, 4 * (3 * (128 + 2 * 1 * 16) + 16 * 128)),
        ("mamba", {}, 0, 4, 4 * (3 * 128 + 16 * 128)),
        ("rwkv7", {"wkv.head_size": 16}, 0, 4, 4 * 64 * (2 + 16)),
        ("qwen3next", {"attention.recurrent_layers": [1, 0, 1, 0]}, 2, 2, None),
        ("qwen3next", {"full_attention_interval": 2}, 2, 2, None),
        (
            "nemotron_h",
            {"attention.head_count_kv": [0, 2, 0, 0], "feed_forward_length": [0, 0, 64, 0]},
            1, 2, None,
        ),
        (
            "kimi-linear",
            {"attention.head_count_kv": [0, 0, 2, 0], "kda.head_dim": 8},
            1, 3, 4 * 4 * 8 * (3 * 3 + 8),
        ),
    ],
)  # fmt: skip
def test_recurrent_families(
    tmp_path: Path, arch: str, more: dict[str, object], attention: int, recurrent: int,
    one: int | None,
) -> None:  # fmt: skip
    keys = headers.base(arch, 4, 64, 4, 2, 16, 64, 32)
    ssm = {"conv_kernel": 4, "inner_size": 128, "state_size": 16}
    if arch in ("falcon-h1", "qwen3next", "nemotron_h"):
        ssm["group_count"] = 1
    keys |= {f"{arch}.ssm.{key}": value for key, value in ssm.items()}
    keys |= {f"{arch}.{key}": value for key, value in more.items()}
    found = facts(headers.write(tmp_path / "m.gguf", keys, headers.ends(64, 32, "f32")))
    shape = found.shape
    assert (shape.n_attention, shape.n_recurrent) == (attention, recurrent)
    if one is not None:
        assert shape.recurrent_bytes == recurrent * one
    assert found.can_roll_back == (arch in ("lfm2", "nemotron_h"))


def test_an_unknown_architecture_is_said(tmp_path: Path) -> None:
    keys = headers.base("qwen99", 2, 64, 2, 1, 32, 64, 32)
    found = facts(headers.write(tmp_path / "m.gguf", keys, headers.ends(64, 32, "f32")))
    assert not found.known_arch
    assert "qwen99" in found.notes[0]
    assert found.shape.kv_width_k == 32


def test_mtp_is_decided_by_tensors_not_by_the_name(tmp_path: Path) -> None:
    embedded = facts(families.qwen35(tmp_path / "a.gguf", mtp=1))
    assert (embedded.mtp, embedded.shape.n_nextn, embedded.shape.n_layer) == ("embedded", 1, 4)
    assert len(embedded.weights.layers) == 5
    stripped = facts(families.qwen35(tmp_path / "b.gguf", mtp=1, mtp_tensors=False))
    assert (stripped.mtp, stripped.shape.n_nextn) == ("stripped", 0)
    assert any("refuses to load" in note for note in stripped.notes)
    head = facts(families.qwen35(tmp_path / "c.gguf", mtp=1, trunk=False))
    assert (head.mtp, head.kind, head.shape.n_layer) == ("head", "mtp head", 0)
    named = facts(families.qwen35(tmp_path / "Model-MTP-Q4.gguf"))
    assert (named.mtp, named.kind) == ("none", "model")
    assert any("no MTP head" in note for note in named.notes)


@pytest.mark.parametrize(
    ("tensors", "kind"),
    [
        ([], "dflash"),
        ([("markov_w1.weight", (8, 32), "f32")], "dspark"),
        ([("selector_hidden.weight", (64, 8), "f32")], "dflash2"),
    ],
)
def test_block_drafts(tmp_path: Path, tensors: headers.Tensors, kind: str) -> None:
    keys = headers.base("dflash", 2, 64, 2, 1, 32, 64, 32, target_layers=[1, 3], block_size=8)
    found = facts(
        headers.write(tmp_path / "m.gguf", keys, [("fc.weight", (128, 64), "f32"), *tensors])
    )
    assert (found.kind, found.target_layers, found.block_size) == (kind, (1, 3), 8)
    assert not found.own_embedding


def test_eagle3_draft(tmp_path: Path) -> None:
    keys = headers.base("eagle3", 1, 64, 2, 1, 32, 64, 32, target_layers=[2, 5, 9])
    keys["eagle3.target_hidden_size"] = 128
    tensors: headers.Tensors = [("fc.weight", (384, 64), "f32"), ("d2t", (16,), "i64")]
    found = facts(headers.write(tmp_path / "m.gguf", keys, tensors))
    assert (found.kind, found.target_layers, found.target_n_embd) == ("eagle3", (2, 5, 9), 128)
    assert found.outer == {"fc.weight": "f32", "d2t": "i64"}
    assert not found.own_output  # its ids alone give no logits
    assert found.n_params == 384 * 64


def test_projector(tmp_path: Path) -> None:
    keys = {"general.architecture": "clip", "clip.has_vision_encoder": True}
    found = facts(headers.write(tmp_path / "mmproj.gguf", keys, [("v.x", (4, 4), "f16")]))
    assert (found.kind, found.shape.n_layer, found.weights.total) == ("projector", 0, 32)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"llama.block_count": 0}, "0 layers"),
        ({"llama.block_count": 100_000}, "100000 layers"),
        ({"llama.nextn_predict_layers": 9}, "more MTP layers"),
        ({"general.architecture": 5}, "names no architecture"),
    ],
)
def test_keys_that_cannot_be(tmp_path: Path, change: dict[str, object], said: str) -> None:
    keys = headers.base("llama", 2, 64, 2, 1, 32, 64, 32) | change
    with pytest.raises(GgufError, match=said):
        facts(headers.write(tmp_path / "m.gguf", keys, headers.ends(64, 32, "f32")))


def split(tmp_path: Path, counts: list[int], **change: int) -> list[Path]:
    """A two-layer model in parts; `change` overrides keys of the first part."""
    size = families.Size(n_layer=2, n_embd=64, n_head=2, n_kv=1, head_dim=32, n_ff=64, n_vocab=32)
    whole = families.llama(tmp_path / "whole.gguf", replace(size, kind="f32"))
    tensors = [(t.name, t.shape, t.type) for t in facts(whole).header.tensors]  # type: ignore[union-attr]
    keys = headers.base("llama", 2, 64, 2, 1, 32, 64, 32)
    paths, start = [], 0
    for index, count in enumerate(counts):
        own = {
            "split.no": index,
            "split.count": len(counts),
            "split.tensors.count": len(tensors),
        }
        own |= {f"split.{key}": value for key, value in change.items()} if not index else {}
        path = tmp_path / f"m-{index + 1:05d}-of-{len(counts):05d}.gguf"
        part = tensors[start : start + count] if index + 1 < len(counts) else tensors[start:]
        paths.append(headers.write(path, {**(keys if not index else {}), **own}, part))
        start += count
    return paths


def test_parts_are_one_model(tmp_path: Path) -> None:
    paths = split(tmp_path, [7, 5, 3])
    whole = facts(tmp_path / "whole.gguf")
    for path in paths:  # whichever part was named
        found = facts(path)
        assert found.weights == whole.weights
        assert len(found.sources) == 3
        assert found.file_size == sum(part.stat().st_size for part in paths)


def test_an_incomplete_set_is_refused_by_name(tmp_path: Path) -> None:
    paths = split(tmp_path, [7, 5, 3])
    paths[1].unlink()
    with pytest.raises(GgufError, match="m-00002-of-00003") as caught:
        facts(paths[0])
    assert "whole set" in (caught.value.hint or "")


def test_parts_that_do_not_belong_together(tmp_path: Path) -> None:
    paths = split(tmp_path, [7, 5, 3], **{"tensors.count": 99})
    with pytest.raises(GgufError, match="99 promised"):
        facts(paths[0])
    paths = split(tmp_path, [7, 5, 3])
    paths[1].write_bytes(paths[2].read_bytes())
    with pytest.raises(GgufError, match="not part 2 of 3"):
        facts(paths[0])
    lonely = paths[0].rename(tmp_path / "renamed.gguf")
    with pytest.raises(GgufError, match="part 1 of 3"):
        facts(lonely)


@pytest.mark.parametrize(
    ("model", "pre", "flag", "expected"),
    [
        ("gpt2", "qwen2", None, ("bpe", False)),
        ("gpt2", "llama-bpe", None, ("bpe", True)),
        ("gpt2", "llama-bpe", False, ("bpe", False)),
        ("llama", "default", None, ("spm", True)),
        ("gemma4", "gemma4", False, ("bpe", True)),  # llama.cpp overrides the file
    ],
)
def test_tokenizer_defaults(
    tmp_path: Path, model: str, pre: str, flag: bool | None, expected: tuple[str, bool]
) -> None:
    keys = headers.base("llama", 2, 64, 2, 1, 32, 64, 32) | headers.vocabulary(300)
    keys |= {"tokenizer.ggml.model": model, "tokenizer.ggml.pre": pre}
    del keys["tokenizer.ggml.add_bos_token"]
    if flag is not None:
        keys["tokenizer.ggml.add_bos_token"] = flag
    tokenizer = facts(
        headers.write(tmp_path / "m.gguf", keys, headers.ends(64, 32, "f32"))
    ).tokenizer
    assert tokenizer is not None
    vocabulary = tokenizer.vocabulary
    assert (vocabulary.kind, vocabulary.add_bos) == expected
    assert (vocabulary.bos, vocabulary.eos, vocabulary.size) == (1, 2, 300)


def test_a_cut_download_is_noticed(tmp_path: Path) -> None:
    path = families.llama(tmp_path / "m.gguf")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 1000)
    found = facts(path)
    assert 0 < found.missing <= 1000
    assert any("incomplete" in note for note in found.notes)


@pytest.mark.native
def test_the_list_of_architectures_is_the_installed_engine_s() -> None:
    """Every architecture of our list that the installed build knows, and none that it lacks."""
    from specctl.gguf import arches
    from specctl.hardware.engineprobe import probe_engine

    engine = probe_engine()
    assert not isinstance(engine, str)
    if engine.architectures is None or "0.3.36" not in engine.version:
        pytest.skip("another build: the list is llama.cpp 0c1e570's")
    assert not arches.KNOWN - engine.architectures - {"clip"}
    named = set(arches.SLIDING) | arches.RECURRENT | arches.ROLLBACK | LAYER_TAPS
    assert named <= arches.KNOWN
