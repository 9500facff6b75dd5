"""Whole made-up models, one per architecture family, that llama.cpp loads without their weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf_headers import (
    Tensors,
    attention,
    base,
    ends,
    experts,
    feed_forward,
    head_norms,
    write,
)


@dataclass(frozen=True)
class Size:
    """Dimensions; tiny by default. `kind` is the type of all matrices."""

    n_layer: int = 4
    n_embd: int = 256
    n_head: int = 4
    n_kv: int = 2
    head_dim: int = 64
    n_ff: int = 512
    n_vocab: int = 1024
    kind: str = "f16"
    n_expert: int = 8
    n_used: int = 2
    n_ff_exp: int = 128
    window: int = 128
    interval: int = 4

    @property
    def q(self) -> int:
        return self.n_head * self.head_dim

    @property
    def kv(self) -> int:
        return self.n_kv * self.head_dim


def _keys(arch: str, s: Size, **more: Any) -> dict[str, Any]:
    return base(arch, s.n_layer, s.n_embd, s.n_head, s.n_kv, s.head_dim, s.n_ff, s.n_vocab, **more)


def llama(path: Path, s: Size = Size()) -> Path:
    tensors = ends(s.n_embd, s.n_vocab, s.kind)
    for i in range(s.n_layer):
        tensors += attention(i, s.n_embd, s.q, s.kv, s.kind)
        tensors += feed_forward(i, s.n_embd, s.n_ff, s.kind)
    return write(path, _keys("llama", s), tensors)


def qwen3(path: Path, s: Size = Size()) -> Path:
    tensors = ends(s.n_embd, s.n_vocab, s.kind, tied=True)
    for i in range(s.n_layer):
        tensors += attention(i, s.n_embd, s.q, s.kv, s.kind) + head_norms(i, s.head_dim)
        tensors += feed_forward(i, s.n_embd, s.n_ff, s.kind)
    return write(path, _keys("qwen3", s), tensors)


def gemma3(path: Path, s: Size = Size(n_layer=12)) -> Path:
    tensors = ends(s.n_embd, s.n_vocab, s.kind, tied=True)
    for i in range(s.n_layer):
        tensors += attention(i, s.n_embd, s.q, s.kv, s.kind) + head_norms(i, s.head_dim)
        tensors += feed_forward(i, s.n_embd, s.n_ff, s.kind)
        tensors += [
            (f"blk.{i}.post_attention_norm.weight", (s.n_embd,), "f32"),
            (f"blk.{i}.post_ffw_norm.weight", (s.n_embd,), "f32"),
        ]
    return write(path, _keys("gemma3", s, attention__sliding_window=s.window), tensors)


def _expert_keys(s: Size) -> dict[str, Any]:
    return {
        "expert_count": s.n_expert,
        "expert_used_count": s.n_used,
        "expert_feed_forward_length": s.n_ff_exp,
    }


def qwen3moe(path: Path, s: Size = Size()) -> Path:
    tensors = ends(s.n_embd, s.n_vocab, s.kind)
    for i in range(s.n_layer):
        tensors += attention(i, s.n_embd, s.q, s.kv, s.kind) + head_norms(i, s.head_dim)
        tensors += [(f"blk.{i}.ffn_norm.weight", (s.n_embd,), "f32")]
        tensors += experts(i, s.n_embd, s.n_ff_exp, s.n_expert, s.kind)
    return write(path, _keys("qwen3moe", s, **_expert_keys(s)), tensors)


def gpt_oss(path: Path, s: Size = Size()) -> Path:
    tensors = ends(s.n_embd, s.n_vocab, s.kind)
    for i in range(s.n_layer):
        tensors += attention(i, s.n_embd, s.q, s.kv, s.kind)
        tensors += experts(i, s.n_embd, s.n_ff_exp, s.n_expert, s.kind)
        tensors += [
            (f"blk.{i}.{name}", shape, "f32")
            for name, shape in (
                ("post_attention_norm.weight", (s.n_embd,)),
                ("attn_sinks.weight", (s.n_head,)),
                ("attn_q.bias", (s.q,)),
                ("attn_k.bias", (s.kv,)),
                ("attn_v.bias", (s.kv,)),
                ("attn_output.bias", (s.n_embd,)),
                ("ffn_gate_inp.bias", (s.n_expert,)),
                ("ffn_gate_exps.bias", (s.n_ff_exp, s.n_expert)),
                ("ffn_up_exps.bias", (s.n_ff_exp, s.n_expert)),
                ("ffn_down_exps.bias", (s.n_embd, s.n_expert)),
            )
        ]
    keys = _keys("gpt-oss", s, attention__sliding_window=s.window, **_expert_keys(s))
    return write(path, keys, tensors)


@dataclass(frozen=True)
class Delta:
    """Gated delta net dimensions: key heads, value heads, state size, convolution."""

    nk: int = 2
    nv: int = 4
    ds: int = 64
    conv: int = 4

    @property
    def channels(self) -> int:
        return 2 * self.nk * self.ds + self.nv * self.ds


def _delta_block(i: int, s: Size, d: Delta) -> Tensors:
    inner = d.nv * d.ds
    named = [
        ("attn_norm.weight", (s.n_embd,), "f32"),
        ("attn_qkv.weight", (s.n_embd, d.channels), s.kind),
        ("attn_gate.weight", (s.n_embd, inner), s.kind),
        ("ssm_conv1d.weight", (d.conv, d.channels), "f32"),
        ("ssm_dt.bias", (d.nv,), "f32"),
        ("ssm_a", (d.nv,), "f32"),
        ("ssm_beta.weight", (s.n_embd, d.nv), s.kind),
        ("ssm_alpha.weight", (s.n_embd, d.nv), s.kind),
        ("ssm_norm.weight", (d.ds,), "f32"),
        ("ssm_out.weight", (inner, s.n_embd), s.kind),
    ]
    return [(f"blk.{i}.{name}", shape, kind) for name, shape, kind in named]


def _gated_block(i: int, s: Size) -> Tensors:
    return attention(i, s.n_embd, 2 * s.q, s.kv, s.kind, out=s.q) + head_norms(i, s.head_dim)


def qwen35(
    path: Path, s: Size = Size(), d: Delta = Delta(), mtp: int = 0, moe: bool = False,
    mtp_tensors: bool = True, trunk: bool = True,
) -> Path:  # fmt: skip
    """Hybrid of gated delta net and attention, dense or MoE, with `mtp` MTP layers."""
    tensors = ends(s.n_embd, s.n_vocab, s.kind)
    mixer: Tensors
    for i in range(s.n_layer + (mtp if mtp_tensors else 0)):
        if i < s.n_layer and not trunk:
            continue
        full = i >= s.n_layer or (i + 1) % s.interval == 0
        mixer = _gated_block(i, s) if full else _delta_block(i, s, d)
        tensors += mixer
        if moe:
            shared = [
                ("ffn_gate_inp_shexp.weight", (s.n_embd,), "f32"),
                ("ffn_gate_shexp.weight", (s.n_embd, s.n_ff_exp), s.kind),
                ("ffn_up_shexp.weight", (s.n_embd, s.n_ff_exp), s.kind),
                ("ffn_down_shexp.weight", (s.n_ff_exp, s.n_embd), s.kind),
                ("post_attention_norm.weight", (s.n_embd,), "f32"),
            ]
            tensors += [(f"blk.{i}.{name}", shape, kind) for name, shape, kind in shared]
            tensors += experts(i, s.n_embd, s.n_ff_exp, s.n_expert, s.kind)
        else:
            tensors += feed_forward(i, s.n_embd, s.n_ff, s.kind, norm="post_attention_norm")
        if i >= s.n_layer:
            tensors += [
                (f"blk.{i}.nextn.eh_proj.weight", (2 * s.n_embd, s.n_embd), s.kind),
                (f"blk.{i}.nextn.enorm.weight", (s.n_embd,), "f32"),
                (f"blk.{i}.nextn.hnorm.weight", (s.n_embd,), "f32"),
            ]
    more: dict[str, Any] = {
        "rope__dimension_sections": [8, 4, 4, 0],
        "ssm__conv_kernel": d.conv,
        "ssm__state_size": d.ds,
        "ssm__group_count": d.nk,
        "ssm__time_step_rank": d.nv,
        "ssm__inner_size": d.nv * d.ds,
        "full_attention_interval": s.interval,
    }
    if moe:
        more |= {**_expert_keys(s), "expert_shared_feed_forward_length": s.n_ff_exp}
    if mtp:
        more |= {"nextn_predict_layers": mtp, "block_count": s.n_layer + mtp}
    return write(path, _keys("qwen35moe" if moe else "qwen35", s, **more), tensors)


def deepseek2(
    path: Path, s: Size = Size(), lora: int = 512, rope: int = 64, n_dense: int = 1
) -> Path:
    """Multi-head latent attention with experts (DeepSeek V2/V3); head_dim is its no-rope part."""
    tensors = ends(s.n_embd, s.n_vocab, s.kind)
    q_lora, key = 192, s.head_dim + rope
    for i in range(s.n_layer):
        named = [
            ("attn_norm.weight", (s.n_embd,), "f32"),
            ("attn_q_a_norm.weight", (q_lora,), "f32"),
            ("attn_kv_a_norm.weight", (lora,), "f32"),
            ("attn_q_a.weight", (s.n_embd, q_lora), s.kind),
            ("attn_q_b.weight", (q_lora, s.n_head * key), s.kind),
            ("attn_kv_a_mqa.weight", (s.n_embd, lora + rope), s.kind),
            ("attn_k_b.weight", (s.head_dim, lora, s.n_head), s.kind),
            ("attn_v_b.weight", (lora, s.head_dim, s.n_head), s.kind),
            ("attn_output.weight", (s.n_head * s.head_dim, s.n_embd), s.kind),
        ]
        tensors += [(f"blk.{i}.{name}", shape, kind) for name, shape, kind in named]
        if i < n_dense:
            tensors += feed_forward(i, s.n_embd, s.n_ff, s.kind)
            continue
        shared = [
            ("ffn_norm.weight", (s.n_embd,), "f32"),
            ("ffn_gate_shexp.weight", (s.n_embd, s.n_ff_exp), s.kind),
            ("ffn_up_shexp.weight", (s.n_embd, s.n_ff_exp), s.kind),
            ("ffn_down_shexp.weight", (s.n_ff_exp, s.n_embd), s.kind),
        ]
        tensors += [(f"blk.{i}.{name}", shape, kind) for name, shape, kind in shared]
        tensors += experts(i, s.n_embd, s.n_ff_exp, s.n_expert, s.kind)
    keys = base(
        "deepseek2", s.n_layer, s.n_embd, s.n_head, 1, lora + rope, s.n_ff, s.n_vocab,
        attention__value_length=lora,
        attention__key_length_mla=key,
        attention__value_length_mla=s.head_dim,
        attention__q_lora_rank=q_lora,
        attention__kv_lora_rank=lora,
        rope__dimension_count=rope,
        leading_dense_block_count=n_dense,
        expert_shared_count=1,
        expert_weights_scale=1.0,
        **_expert_keys(s),
    )  # fmt: skip
    return write(path, keys, tensors)


TINY: dict[str, Callable[[Path], Path]] = {
    "llama": llama,
    "qwen3": qwen3,
    "gemma3": gemma3,
    "qwen3moe": qwen3moe,
    "gpt-oss": gpt_oss,
    "qwen35": lambda path: qwen35(path, mtp=1),
    "qwen35moe": lambda path: qwen35(path, moe=True),
    "deepseek2": lambda path: deepseek2(path, Size(kind="f32")),
}
"""One of each family, some megabytes."""

FULL_SIZE: dict[str, Callable[[Path], Path]] = {
    "Llama 3.1 8B": lambda path: llama(path, Size(32, 4096, 32, 8, 128, 14336, 128256, "q4_K")),
    "Qwen3 0.6B": lambda path: qwen3(path, Size(28, 1024, 16, 8, 128, 3072, 151936, "q8_0")),
    "Qwen3 8B": lambda path: qwen3(path, Size(36, 4096, 32, 8, 128, 12288, 151936, "q4_K")),
    "Gemma 3 4B": lambda path: gemma3(
        path, Size(34, 2560, 8, 4, 256, 10240, 262144, "q4_K", window=1024)
    ),
    "Gemma 3 27B": lambda path: gemma3(
        path, Size(62, 5376, 32, 16, 128, 21504, 262144, "q4_K", window=1024)
    ),
    "Qwen3 30B-A3B": lambda path: qwen3moe(
        path, Size(48, 2048, 32, 4, 128, 6144, 151936, "q4_K", 128, 8, 768)
    ),
    "gpt-oss 20B": lambda path: gpt_oss(
        path, Size(24, 2880, 64, 8, 64, 2880, 201088, "mxfp4", 32, 4, 2880, 128)
    ),
    "Qwen3.5 27B": lambda path: qwen35(
        path, Size(64, 5120, 24, 4, 256, 17408, 248320, "q4_K"), Delta(16, 48, 128), mtp=1
    ),
    "Qwen3.5 35B-A3B": lambda path: qwen35(
        path,
        Size(40, 2048, 16, 2, 256, 512, 248320, "q4_K", 256, 8, 512),
        Delta(16, 32, 128),
        mtp=1,
        moe=True,
    ),
    "DeepSeek V2 Lite, 28 layers": lambda path: deepseek2(
        path, Size(28, 2048, 16, 1, 128, 10944, 102400, "f32", 64, 6, 1408)
    ),
}
"""The dimensions of published models, in files whose weights are holes."""
