"""Writes GGUF headers of made-up models; the weights are a hole in the file (sparse)."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specctl.gguf.header import TENSOR_TYPES

TYPE_NUMBERS = {name: number for number, (name, _, _) in TENSOR_TYPES.items()}
ALIGNMENT = 32

Tensors = list[tuple[str, tuple[int, ...], str]]


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(value: Any) -> bytes:
    """Type number and value. Whole numbers are u32, arrays of them i32, as the converters write."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, Sequence):
        if value and isinstance(value[0], str):
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        if value and isinstance(value[0], bool):
            return struct.pack(f"<IIQ{len(value)}?", 9, 7, len(value), *value)
        if value and isinstance(value[0], float):
            return struct.pack(f"<IIQ{len(value)}f", 9, 6, len(value), *value)
        return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    raise TypeError(value)


def header_bytes(
    metadata: dict[str, Any], tensors: Tensors = (), version: int = 3, counts: Any = None
) -> tuple[bytes, int]:
    """The header, and how many bytes of data should follow it."""
    n_tensors, n_keys = counts or (len(tensors), len(metadata))
    out = bytearray(b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_keys))
    for key, value in metadata.items():
        out += text(key) + value_bytes(value)
    offset = 0
    for name, shape, kind in tensors:
        number = TYPE_NUMBERS[kind]
        out += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, number, offset)
        _, block, width = TENSOR_TYPES[number]
        size = math.prod(shape) // block * width
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    out += bytes(-len(out) % ALIGNMENT)
    return bytes(out), offset


def write(path: Path, metadata: dict[str, Any], tensors: Tensors = ()) -> Path:
    """A whole file; its data is a hole."""
    raw, data = header_bytes(metadata, tensors)
    with path.open("wb") as file:
        file.write(raw)
        file.truncate(len(raw) + data)
    return path


def base(
    arch: str,
    n_layer: int,
    n_embd: int,
    n_head: int,
    n_kv: int | list[int],
    head_dim: int,
    n_ff: int | list[int],
    n_vocab: int,
    **more: Any,
) -> dict[str, Any]:
    """The keys every language model has; `more` with `__` for dots goes under the architecture."""
    keys = {
        "context_length": 32768,
        "embedding_length": n_embd,
        "block_count": n_layer,
        "feed_forward_length": n_ff,
        "attention.head_count": n_head,
        "attention.head_count_kv": n_kv,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": head_dim,
        "vocab_size": n_vocab,
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    return {
        "general.architecture": arch,
        "general.name": f"made-up {arch}",
        "general.file_type": 15,
        **{f"{arch}.{key}": value for key, value in keys.items()},
        "tokenizer.ggml.model": "no_vocab",
    }


def vocabulary(n: int, **more: Any) -> dict[str, Any]:
    """A byte-pair tokenizer of `n` tokens, for headers that need one."""
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(n)],
        "tokenizer.ggml.token_type": [1] * n,
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        **more,
    }


def ends(n_embd: int, n_vocab: int, kind: str = "q6_K", tied: bool = False) -> Tensors:
    tensors: Tensors = [
        ("token_embd.weight", (n_embd, n_vocab), kind),
        ("output_norm.weight", (n_embd,), "f32"),
    ]
    return tensors if tied else [*tensors, ("output.weight", (n_embd, n_vocab), kind)]


def attention(i: int, n_embd: int, q: int, kv: int, kind: str = "q4_K", out: int = 0) -> Tensors:
    """Projections and norm; `out` where the output projection reads less than `q` (gated)."""
    return [
        (f"blk.{i}.attn_norm.weight", (n_embd,), "f32"),
        (f"blk.{i}.attn_q.weight", (n_embd, q), kind),
        (f"blk.{i}.attn_k.weight", (n_embd, kv), kind),
        (f"blk.{i}.attn_v.weight", (n_embd, kv), kind),
        (f"blk.{i}.attn_output.weight", (out or q, n_embd), kind),
    ]


def head_norms(i: int, head_dim: int) -> Tensors:
    return [
        (f"blk.{i}.attn_q_norm.weight", (head_dim,), "f32"),
        (f"blk.{i}.attn_k_norm.weight", (head_dim,), "f32"),
    ]


def feed_forward(
    i: int, n_embd: int, n_ff: int, kind: str = "q4_K", norm: str = "ffn_norm"
) -> Tensors:
    return [
        (f"blk.{i}.{norm}.weight", (n_embd,), "f32"),
        (f"blk.{i}.ffn_gate.weight", (n_embd, n_ff), kind),
        (f"blk.{i}.ffn_up.weight", (n_embd, n_ff), kind),
        (f"blk.{i}.ffn_down.weight", (n_ff, n_embd), kind),
    ]


def experts(i: int, n_embd: int, n_ff: int, n: int, kind: str = "q4_K") -> Tensors:
    return [
        (f"blk.{i}.ffn_gate_inp.weight", (n_embd, n), "f32"),
        (f"blk.{i}.ffn_gate_exps.weight", (n_embd, n_ff, n), kind),
        (f"blk.{i}.ffn_up_exps.weight", (n_embd, n_ff, n), kind),
        (f"blk.{i}.ffn_down_exps.weight", (n_ff, n_embd, n), kind),
    ]
