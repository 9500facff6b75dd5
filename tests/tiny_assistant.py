"""More models for `tiny.MODELS`: Gemma 4 targets, and assistants that read their KV cache.

The clock design of tiny.py holds for both. An assistant is wider than its target here (llama.cpp
wants another width): the extra values stay 0.

gemma4              jitter: a sliding layer, then a full one, loud
gemma4-clock        the clock
assistant-draft     the clock draft: acceptance is known exactly (`tiny.walk`)
assistant-follow    right only with the hidden state of the token before
assistant           drafts depend on all that the target's KV cache holds, and on hidden states
the rest            files that do not fit these targets, each for one reason
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tiny
from numpy.typing import NDArray
from tiny import EMBD, EPS, Dims

WIDTH = EMBD + 32  # of the assistants
HEAD, HEAD_SLIDING = 64, 32  # key lengths of full and sliding layers
WINDOW = 32
PATTERN = (True, False)
_AMP = float(1 / np.sqrt(1 / WIDTH + EPS))  # what RMSNorm makes of a one-hot vector this wide


def _keys(writer: gguf.GGUFWriter, pattern: tuple[bool, ...]) -> None:
    writer.add_sliding_window(WINDOW)
    writer.add_sliding_window_pattern(list(pattern))
    writer.add_shared_kv_layers(0)
    writer.add_embedding_length_per_layer_input(0)
    writer.add_key_length_swa(HEAD_SLIDING)
    writer.add_value_length_swa(HEAD_SLIDING)
    writer.add_rope_dimension_count_swa(HEAD_SLIDING)


def write_target(
    path: Path,
    head: NDArray[np.float32],
    out: float,
    pattern: tuple[bool, ...] = PATTERN,
) -> None:
    """A gemma4 model without per-layer embeddings."""
    dims = Dims(n_layer=len(pattern), head_dim=HEAD)
    writer = tiny._open(path, "gemma4", dims, tiny.Vocab())
    _keys(writer, pattern)
    weights = tiny._Weights(writer, 5, out)
    tiny._ends(weights, head, scale=float(np.sqrt(EMBD)))
    weights.add("rope_freqs.weight", np.ones(HEAD // 2))
    for i, sliding in enumerate(pattern):
        width = HEAD_SLIDING if sliding else HEAD
        weights.norms(i, "attn_norm", "ffn_norm")
        weights.attention(i, dataclasses.replace(dims, head_dim=width), qk_norm=True)
        weights.ffn(i, dims.n_ff)
        weights.norms(i, "post_attention_norm", "post_ffw_norm", value=out * 0.02)
    tiny._close(writer)


@dataclass(frozen=True)
class Assistant:
    """`follow` is the weight of the hidden state against the token before it, as in tiny_mtp.py."""

    law: NDArray[np.float64]  # [SIZE, EMBD] logits of a one-hot vector
    follow: float = 0.0
    out: float = 0.0
    pattern: tuple[bool, ...] = PATTERN
    head: int = HEAD
    n_head_kv: int = 1
    backbone: int = EMBD
    declared: bool = True
    vocab: tiny.Vocab = field(default_factory=tiny.Vocab)

    def write(self, path: Path) -> None:
        """The file."""
        dims = Dims(n_layer=len(self.pattern), head_dim=self.head, n_head_kv=self.n_head_kv)
        writer = tiny._open(path, "gemma4-assistant", dims, self.vocab, width=WIDTH)
        writer.add_embedding_length_out(self.backbone)
        if self.declared:
            writer.add_nextn_predict_layers(dims.n_layer)
        _keys(writer, self.pattern)
        weights = tiny._Weights(writer, 31, self.out)
        table = np.zeros((tiny.SIZE, WIDTH))
        table[:, :EMBD] = self.law / _AMP
        weights.add("token_embd.weight", table)
        weights.add("output_norm.weight", np.ones(WIDTH))
        self._join(weights)
        if not all(self.pattern):
            weights.add("rope_freqs.weight", np.ones(self.head // 2))
        for i, sliding in enumerate(self.pattern):
            self._layer(weights, i, dims.n_head * (HEAD_SLIDING if sliding else self.head), dims)
        tiny._close(writer)

    def _join(self, weights: tiny._Weights) -> None:
        """The token's one-hot vector and the target's state, AMP times that of the token before."""
        before = np.zeros((WIDTH, 2 * self.backbone))
        before[:EMBD, :EMBD] = (1 - self.follow) * np.eye(EMBD)
        step = self.backbone + np.arange(EMBD)
        before[tiny.clock_target().first, step] = self.follow / tiny.AMP
        after = np.zeros((self.backbone, WIDTH))
        after[:EMBD, :EMBD] = np.eye(EMBD) * tiny.AMP / _AMP
        weights.add("nextn.pre_projection.weight", before)
        weights.add("nextn.post_projection.weight", after)

    def _layer(self, weights: tiny._Weights, i: int, wide: int, dims: Dims) -> None:
        weights.norms(i, "attn_norm", "ffn_norm", width=WIDTH)
        weights.norms(i, "post_attention_norm", "post_ffw_norm", value=self.out * 0.02, width=WIDTH)
        weights.norms(i, "attn_q_norm", width=wide // dims.n_head)
        weights.norms(i, "layer_output_scale", width=1)
        weights.add(f"blk.{i}.attn_q.weight", weights.random(wide, WIDTH))
        weights.add(f"blk.{i}.attn_output.weight", weights.random(WIDTH, wide, self.out))
        weights.add(f"blk.{i}.ffn_gate.weight", weights.random(dims.n_ff, WIDTH))
        weights.add(f"blk.{i}.ffn_up.weight", weights.random(dims.n_ff, WIDTH))
        weights.add(f"blk.{i}.ffn_down.weight", weights.random(WIDTH, dims.n_ff, self.out / 3))


LOUD_TARGET, LOUD_ASSISTANT = 2.5, 0.7


def _law(clock: tiny.Clock) -> NDArray[np.float64]:
    return np.log(clock.laws()).T


def _assistant(clock: tiny.Clock | None = None, **how: Any) -> Callable[[Path], None]:
    law = _law(clock or tiny.clock_draft())
    return lambda path: Assistant(law, **how).write(path)


def _loud(path: Path) -> None:
    Assistant(tiny._jitter_head() * tiny.AMP, follow=0.5, out=LOUD_ASSISTANT).write(path)


def _target(path: Path, out: float, pattern: tuple[bool, ...] = PATTERN) -> None:
    head = tiny._jitter_head() if out else tiny._law_head(tiny.clock_target(), tiny.Vocab())
    write_target(path, head, out, pattern)


_MISFITS: dict[str, dict[str, Any]] = {
    "assistant-head": {"head": 32},  # the target's full layers have keys of 64
    "assistant-heads": {"n_head_kv": 2},
    "assistant-wide": {"backbone": EMBD + 16},
    "assistant-no-key": {"declared": False},
    "assistant-token": {"vocab": tiny.Vocab(changed={tiny.word("cedar"): "\u0120zebra"})},
}
tiny.MODELS.update({name: _assistant(**how) for name, how in _MISFITS.items()})
tiny.MODELS.update(
    {
        "gemma4": lambda path: _target(path, LOUD_TARGET),
        "gemma4-clock": lambda path: _target(path, 0.0),
        "gemma4-upside": lambda path: _target(path, 0.0, PATTERN[::-1]),
        "assistant": _loud,
        "assistant-draft": _assistant(),
        "assistant-follow": _assistant(tiny.clock_target(), follow=0.6),
    }
)
tiny.BROKEN |= {name for name in tiny.MODELS if name.startswith("assistant")}
