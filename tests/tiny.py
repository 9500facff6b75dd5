"""Tiny GGUF models whose behaviour is known, written by the tests themselves (F32, 1–4 MB).

Design: n_embd = 320 = the vocabulary, `token_embd` is the identity and every norm weight is 1. The
residual stream of a token is then its one-hot vector, RMSNorm scales it by `AMP`, and
`output[w, v] = log P(w | v) / AMP` makes the logits exactly log P(w | v).

clock    attention and FFN write nothing: the exact bigram law of a clock (clocks.py).
jitter   the head knows only two successors per token, and random attention and FFN weights push
         between them: each token depends on the whole context, so a stale or missing KV cell
         changes the text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from clocks import *  # noqa: F403 - one name to import for models and what they compute
from clocks import (
    END_OF_TEXT,
    IM_END,
    SIZE,
    WORDS,
    Clock,
    clock_broken_utf8,
    clock_draft,
    clock_draft_unsure,
    clock_emoji,
    clock_eog,
    clock_target,
    word,
)
from numpy.typing import NDArray

EMBD = SIZE
EPS = 1e-6
AMP = float(1 / np.sqrt(1 / EMBD + EPS))  # what RMSNorm makes of a one-hot vector
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BROKEN_TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor"


# ---------------------------------------------------------------- vocabulary


def _printable_bytes() -> list[str]:
    """GPT-2's alphabet: a printable character for each byte."""
    keep = {*range(33, 127), *range(161, 173), *range(174, 256)}
    moved = iter(range(256, 512))
    return [chr(b) if b in keep else chr(next(moved)) for b in range(256)]


@dataclass(frozen=True)
class Vocab:
    """A byte-level BPE vocabulary; `padding` unused tokens at the end, `changed` texts by id."""

    padding: int = 0
    changed: dict[int, str] = field(default_factory=dict)
    add_bos: bool = False
    template: str | None = CHATML

    def texts(self) -> list[str]:
        out = [*_printable_bytes(), "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        out += ["\u0120" + word for word in WORDS]
        out += [f"<|pad{i}|>" for i in range(self.padding)]
        for token, text in self.changed.items():
            out[token] = text
        return out

    def types(self) -> list[int]:
        kind = gguf.TokenType
        out = [kind.NORMAL] * 256 + [kind.CONTROL] * 3 + [kind.NORMAL] * len(WORDS)
        return [int(t) for t in out + [kind.UNUSED] * self.padding]

    def write(self, writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("llama-bpe")  # takes whole words that are in the vocabulary
        writer.add_token_list(self.texts())
        writer.add_token_types(self.types())
        writer.add_token_merges(["\u0120 a"])  # the key must be there, and an empty array cannot
        writer.add_bos_token_id(END_OF_TEXT)
        writer.add_eos_token_id(IM_END)
        writer.add_add_bos_token(self.add_bos)
        if self.template is not None:
            writer.add_chat_template(self.template)


# ---------------------------------------------------------------- weights


def _law_head(clock: Clock, vocab: Vocab) -> NDArray[np.float32]:
    """output.weight [tokens, EMBD] whose logits are log P; padding is never said."""
    head = np.log(clock.laws()).T / AMP
    return np.concatenate([head, np.full((vocab.padding, EMBD), -30 / AMP)]).astype(np.float32)


def _jitter_head(noise: float = 0.0) -> NDArray[np.float32]:
    """Logits 12 and 8 for the two successors, 0 for the rest, plus fixed noise on all weights."""
    clock, rng = clock_target(), np.random.default_rng(82)
    head = np.zeros((SIZE, EMBD))
    head[clock.first, np.arange(EMBD)] = 12 / AMP
    head[clock.second, np.arange(EMBD)] = 8 / AMP
    head[np.arange(SIZE), np.arange(EMBD)] = -20 / AMP  # no token follows itself: text keeps moving
    return (head + rng.standard_normal(head.shape) * noise).astype(np.float32)


@dataclass(frozen=True)
class Dims:
    """A model's dimensions; key length 32 so that every KV type can be tried."""

    n_layer: int = 2
    n_head: int = 2
    n_head_kv: int = 1
    head_dim: int = 32
    n_ff: int = 32
    n_ctx: int = 4096


class _Weights:
    """Adds tensors to a writer; `gain` shapes what random layers compute, `out` what they add."""

    def __init__(self, writer: gguf.GGUFWriter, seed: int, out: float, dtype: type = np.float32):
        self.writer, self.rng, self.out, self.dtype = (
            writer,
            np.random.default_rng(seed),
            out,
            dtype,
        )

    def add(self, name: str, values: NDArray[np.floating]) -> None:
        # biases, norms and the small ssm tensors must stay F32
        dtype = self.dtype if values.ndim == 2 and "ssm_" not in name else np.float32
        self.writer.add_tensor(name, np.ascontiguousarray(values, dtype=dtype))

    def random(self, rows: int, columns: int, gain: float = 3.0) -> NDArray[np.float64]:
        """numpy [out, in] is ggml's ne [in, out]."""
        return self.rng.standard_normal((rows, columns)) * gain / np.sqrt(columns)

    def ffn(self, i: int, n_ff: int) -> None:
        self.add(f"blk.{i}.ffn_gate.weight", self.random(n_ff, EMBD))
        self.add(f"blk.{i}.ffn_up.weight", self.random(n_ff, EMBD))
        self.add(f"blk.{i}.ffn_down.weight", self.random(EMBD, n_ff, self.out / 3))

    def norms(self, i: int, *names: str, value: float = 1.0, width: int = EMBD) -> None:
        for name in names:
            self.add(f"blk.{i}.{name}.weight", np.full(width, value))

    def attention(self, i: int, dims: Dims, qk_norm: bool, gated: bool = False) -> None:
        wide, narrow = dims.n_head * dims.head_dim, dims.n_head_kv * dims.head_dim
        self.add(f"blk.{i}.attn_q.weight", self.random(wide * (2 if gated else 1), EMBD))
        self.add(f"blk.{i}.attn_k.weight", self.random(narrow, EMBD))
        self.add(f"blk.{i}.attn_v.weight", self.random(narrow, EMBD))
        self.add(f"blk.{i}.attn_output.weight", self.random(EMBD, wide, self.out))
        if qk_norm:
            self.norms(i, "attn_q_norm", "attn_k_norm", width=dims.head_dim)

    def delta_net(self, i: int, heads_k: int, heads_v: int, state: int, conv: int) -> None:
        """qwen35's recurrent layer; a = -0.05 decays slowly, so the state remembers long."""
        keys, values = heads_k * state, heads_v * state
        self.add(f"blk.{i}.attn_qkv.weight", self.random(2 * keys + values, EMBD))
        self.add(f"blk.{i}.attn_gate.weight", self.random(values, EMBD))
        self.add(f"blk.{i}.ssm_conv1d.weight", self.random(2 * keys + values, conv, 1.4))
        self.add(f"blk.{i}.ssm_dt.bias", np.zeros(heads_v))
        self.add(f"blk.{i}.ssm_a", np.full(heads_v, -0.05))
        self.add(f"blk.{i}.ssm_beta.weight", self.random(heads_v, EMBD))
        self.add(f"blk.{i}.ssm_alpha.weight", self.random(heads_v, EMBD))
        self.norms(i, "ssm_norm", width=state)
        self.add(f"blk.{i}.ssm_out.weight", self.random(EMBD, values, self.out))

    def mamba(self, i: int, inner: int, state: int, conv: int, rank: int) -> None:
        self.norms(i, "attn_norm")
        self.add(f"blk.{i}.ssm_in.weight", self.random(2 * inner, EMBD))
        self.add(f"blk.{i}.ssm_conv1d.weight", self.random(inner, conv, 1.4))
        self.add(f"blk.{i}.ssm_conv1d.bias", np.zeros(inner))
        self.add(f"blk.{i}.ssm_x.weight", self.random(rank + 2 * state, inner))
        self.add(f"blk.{i}.ssm_dt.weight", self.random(inner, rank))
        self.add(f"blk.{i}.ssm_dt.bias", np.zeros(inner))
        self.add(f"blk.{i}.ssm_a", np.full((inner, state), -0.05))
        self.add(f"blk.{i}.ssm_d", np.ones(inner))
        self.add(f"blk.{i}.ssm_out.weight", self.random(EMBD, inner, self.out))


def _open(path: Path, arch: str, dims: Dims, vocab: Vocab, width: int = EMBD) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(path.stem)
    writer.add_context_length(dims.n_ctx)
    writer.add_embedding_length(width)
    writer.add_block_count(dims.n_layer)
    writer.add_feed_forward_length(dims.n_ff)
    writer.add_head_count(dims.n_head)
    writer.add_head_count_kv(dims.n_head_kv)
    writer.add_layer_norm_rms_eps(EPS)
    if dims.n_head:
        writer.add_rope_dimension_count(dims.head_dim)
        writer.add_key_length(dims.head_dim)
        writer.add_value_length(dims.head_dim)
    writer.add_vocab_size(SIZE + vocab.padding)
    writer.add_file_type(0)
    vocab.write(writer)
    return writer


def _ends(weights: _Weights, head: NDArray[np.float32], scale: float = 1.0) -> None:
    """Embedding (identity; zero for padding), the last norm and the head."""
    weights.add("token_embd.weight", np.eye(len(head), EMBD) / scale)
    weights.add("output_norm.weight", np.ones(EMBD))
    weights.add("output.weight", head)


def _close(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_dense(
    path: Path,
    head: NDArray[np.float32],
    *,
    arch: str = "llama",
    dims: Dims | None = None,
    out: float = 0.0,
    seed: int = 5,
    window: int | None = None,
    vocab: Vocab | None = None,
    dtype: type = np.float32,
) -> None:
    """A llama, qwen3 or gemma3 model; `out` is how loud the random layers are (0: a pure clock)."""
    dims, vocab = dims or Dims(), vocab or Vocab()
    writer = _open(path, arch, dims, vocab)
    if window:
        writer.add_sliding_window(window)
    weights = _Weights(writer, seed, out, dtype)
    gemma = arch == "gemma3"
    _ends(weights, head, scale=float(np.sqrt(EMBD)) if gemma else 1.0)
    for i in range(dims.n_layer):
        weights.norms(i, "attn_norm", "ffn_norm")
        weights.attention(i, dims, qk_norm=arch in ("qwen3", "gemma3"))
        weights.ffn(i, dims.n_ff)
        if gemma:  # it normalises what a layer adds, so the loudness is in this norm
            weights.norms(i, "post_attention_norm", "post_ffw_norm", value=out * 0.02)
    _close(writer)


def write_hybrid(
    path: Path,
    head: NDArray[np.float32],
    *,
    out: float = 0.0,
    seed: int = 9,
    mtp: Any = None,
) -> None:
    """A qwen35 model: a recurrent layer, then an attention one, and what tiny_mtp.py adds to it."""
    heads_k, heads_v, state, conv = 2, 4, 16, 4
    trunk, vocab = Dims(), Vocab()
    extra = mtp.declared if mtp is not None else 0
    dims = dataclasses.replace(trunk, n_layer=trunk.n_layer + extra)
    writer = _open(path, "qwen35", dims, vocab)
    writer.add_rope_dimension_sections([8, 4, 4, 0])
    writer.add_ssm_conv_kernel(conv)
    writer.add_ssm_inner_size(heads_v * state)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(heads_v)
    writer.add_ssm_group_count(heads_k)
    writer.add_uint32("qwen35.full_attention_interval", 2)
    if extra:
        writer.add_nextn_predict_layers(extra)
    weights = _Weights(writer, seed, out)
    _ends(weights, head)
    for i in range(trunk.n_layer if mtp is None or mtp.trunk else 0):
        weights.norms(i, "attn_norm", "post_attention_norm")
        if i % 2 == 0:
            weights.delta_net(i, heads_k, heads_v, state, conv)
        else:
            weights.attention(i, dims, qk_norm=True, gated=True)
        weights.ffn(i, dims.n_ff)
    if mtp is not None and mtp.tensors:
        weights.out = mtp.out
        for i in range(trunk.n_layer, trunk.n_layer + max(1, mtp.declared)):
            mtp.write(weights, i, dims)
    _close(writer)


def write_recurrent(path: Path, head: NDArray[np.float32], *, out: float = 0.0) -> None:
    """A mamba model: no KV cache at all."""
    inner, state, conv, rank = 2 * EMBD, 16, 4, 8
    vocab, dims = Vocab(), Dims(n_layer=1, n_head=0, n_head_kv=0, n_ff=0)
    writer = _open(path, "mamba", dims, vocab)
    writer.add_ssm_conv_kernel(conv)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    weights = _Weights(writer, 11, out)
    _ends(weights, head)
    weights.mamba(0, inner, state, conv, rank)
    _close(writer)


# ---------------------------------------------------------------- the models by name

# How loud the random layers are: the first choice wins in a third to two thirds of the steps.
LOUD = {"llama": 0.025, "qwen3": 0.035, "gemma3": 1.5, "qwen35": 0.05, "mamba": 0.0003}
SLOW = Dims(n_layer=12, n_head=8, n_ff=2048, n_ctx=32768)


def _clock(path: Path, clock: Clock, vocab: Vocab | None = None, n_layer: int = 1) -> None:
    vocab = vocab or Vocab()
    write_dense(path, _law_head(clock, vocab), dims=Dims(n_layer=n_layer), vocab=vocab)


def _draft_vocab(**changes: object) -> Callable[[Path], None]:
    vocab = dataclasses.replace(Vocab(), **changes)  # type: ignore[arg-type]
    return lambda path: _clock(path, clock_draft(), vocab)


def _jitter(path: Path, arch: str = "llama", noise: float = 0.0) -> None:
    write_dense(path, _jitter_head(noise), arch=arch, out=LOUD[arch])


def _jitter_swa(path: Path) -> None:
    # gemma3 makes every sixth layer a full one
    write_dense(
        path, _jitter_head(), arch="gemma3", dims=Dims(n_layer=6), out=LOUD["gemma3"], window=32
    )


def _slow(path: Path) -> None:
    """A prompt of 16 000 tokens takes some ten seconds on one thread (49 MB, F16)."""
    head = _law_head(clock_target(), Vocab())
    write_dense(path, head, dims=SLOW, dtype=np.float16)


BROKEN: set[str] = set()  # models that need not load
MODELS: dict[str, Callable[[Path], None]] = {
    "clock": lambda path: _clock(path, clock_target(), n_layer=2),
    "clock-draft": lambda path: _clock(path, clock_draft()),
    "clock-draft-unsure": lambda path: _clock(path, clock_draft_unsure()),
    "clock-emoji": lambda path: _clock(path, clock_emoji()),
    "clock-broken-utf8": lambda path: _clock(path, clock_broken_utf8()),
    "clock-eog": lambda path: _clock(path, clock_eog()),
    "clock-broken-template": lambda path: _clock(
        path, clock_target(), Vocab(template=BROKEN_TEMPLATE)
    ),
    "clock-no-template": lambda path: _clock(path, clock_target(), Vocab(template=None)),
    "jitter": _jitter,
    "jitter-qwen3": lambda path: _jitter(path, "qwen3"),
    "jitter-swa": _jitter_swa,
    "jitter-draft": lambda path: _jitter(path, noise=0.05),
    "hybrid": lambda path: write_hybrid(path, _jitter_head(), out=LOUD["qwen35"]),
    "hybrid-draft": lambda path: write_hybrid(path, _jitter_head(0.05), out=LOUD["qwen35"]),
    "hybrid-clock": lambda path: write_hybrid(path, _law_head(clock_target(), Vocab())),
    "recurrent": lambda path: write_recurrent(path, _jitter_head(), out=LOUD["mamba"]),
    "draft-other-token": _draft_vocab(changed={word("cedar"): "\u0120zebra"}),
    "draft-padded-128": _draft_vocab(padding=128),
    "draft-padded-129": _draft_vocab(padding=129),
    "draft-add-bos": _draft_vocab(add_bos=True),
    "slow": _slow,
}


def build(name: str, folder: Path) -> Path:
    """Write the model `name` into `folder` unless it is there; its path."""
    path = folder / f"{name}.gguf"
    if not path.exists():
        MODELS[name](path)
    return path
