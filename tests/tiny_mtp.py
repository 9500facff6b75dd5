"""More models for `tiny.MODELS`: targets with MTP heads (qwen35: a hybrid; glm4moe: a KV cache).

mtp-clock        the clock; its head is right only with the hidden state of the token before
mtp-clock-draft  the clock; its head is the clock draft: acceptance is known exactly (`tiny.walk`)
mtp              the jitter hybrid; drafts depend on all that the head's own KV cache holds
mtp-glm          the same on a target without a recurrent state
mtp-only         the head of mtp-clock-draft in a file of its own, for hybrid-clock
mtp-no-tensors, mtp-no-key, mtp-two, mtp-elsewhere: files that claim what they cannot give
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tiny
from numpy.typing import NDArray
from tiny import EMBD, Dims

_EXPERTS = 2


@dataclass(frozen=True)
class Mtp:
    """`follow` is the weight of the hidden state against the token before it.

    With `follow` 0 and a `head` of its own it is a bigram model; else it passes on the hidden state
    (the token before, moved one step along the clock). `out` is how loud its attention is.
    `declared` is what the header says.
    """

    follow: float = 0.0
    head: NDArray[np.float32] | None = None
    out: float = 0.0
    declared: int = 1
    tensors: bool = True
    trunk: bool = True

    def write(self, weights: tiny._Weights, i: int, dims: Dims) -> None:
        """The whole block of a qwen35 head."""
        weights.norms(i, "attn_norm", "post_attention_norm")
        weights.attention(i, dims, qk_norm=True, gated=True)
        weights.ffn(i, dims.n_ff)
        self.join(weights, i)

    def join(self, weights: tiny._Weights, i: int) -> None:
        """What makes a block an MTP head: token and hidden state joined."""
        step = np.zeros((EMBD, EMBD))
        step[tiny.clock_target().first, np.arange(EMBD)] = 1
        joined = np.concatenate([(1 - self.follow) * np.eye(EMBD), self.follow * step], axis=1)
        weights.add(f"blk.{i}.nextn.eh_proj.weight", joined)
        weights.norms(i, "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm")
        if self.head is not None:
            weights.add(f"blk.{i}.nextn.shared_head_head.weight", self.head)


def write_glm(path: Path, head: NDArray[np.float32], out: float, mtp: Mtp) -> None:
    """A glm4moe model with a dense trunk; its MTP block is a mixture of two experts and silence."""
    trunk, vocab = Dims(), tiny.Vocab()
    dims = Dims(n_layer=trunk.n_layer + 1)
    writer = tiny._open(path, "glm4moe", dims, vocab)
    writer.add_leading_dense_block_count(trunk.n_layer)
    writer.add_expert_count(_EXPERTS)
    writer.add_expert_used_count(1)
    writer.add_expert_shared_count(1)
    writer.add_expert_feed_forward_length(trunk.n_ff)
    writer.add_nextn_predict_layers(1)
    weights = tiny._Weights(writer, 5, out)
    tiny._ends(weights, head)
    for i in range(dims.n_layer):
        if i == trunk.n_layer:
            weights.out = mtp.out
        weights.norms(i, "attn_norm", "post_attention_norm")
        weights.attention(i, dims, qk_norm=True)
        if i < trunk.n_layer:
            weights.ffn(i, dims.n_ff)
    last, wide = trunk.n_layer, (_EXPERTS, trunk.n_ff, EMBD)
    weights.add(f"blk.{last}.ffn_gate_inp.weight", np.zeros((_EXPERTS, EMBD)))
    weights.add(f"blk.{last}.exp_probs_b.bias", np.zeros(_EXPERTS))
    for name, shape in (("gate", wide), ("up", wide), ("down", (_EXPERTS, EMBD, trunk.n_ff))):
        weights.add(f"blk.{last}.ffn_{name}_exps.weight", np.zeros(shape))
        weights.add(f"blk.{last}.ffn_{name}_shexp.weight", np.zeros(shape[1:]))
    mtp.join(weights, last)
    tiny._close(writer)


def _clock(path: Path, mtp: Mtp) -> None:
    tiny.write_hybrid(path, tiny._law_head(tiny.clock_target(), tiny.Vocab()), mtp=mtp)


def _jitter(path: Path) -> None:
    mtp = Mtp(follow=0.6, out=0.4)
    tiny.write_hybrid(path, tiny._jitter_head(), out=tiny.LOUD["qwen35"], mtp=mtp)


def _draft_head() -> NDArray[np.float32]:
    return tiny._law_head(tiny.clock_draft(), tiny.Vocab())


def _glm(path: Path) -> None:
    write_glm(path, tiny._jitter_head(), tiny.LOUD["llama"], Mtp(follow=0.6, out=0.4))


def _elsewhere(path: Path) -> None:
    """Of an architecture of which llama.cpp runs no heads: key and tensors are there."""
    dims, vocab = Dims(n_layer=1), tiny.Vocab()
    writer = tiny._open(path, "llama", dims, vocab)
    writer.add_nextn_predict_layers(1)
    weights = tiny._Weights(writer, 5, 0.0)
    tiny._ends(weights, tiny._law_head(tiny.clock_target(), vocab))
    weights.norms(0, "attn_norm", "ffn_norm")
    weights.attention(0, dims, qk_norm=False)
    weights.ffn(0, dims.n_ff)
    Mtp().join(weights, 1)
    tiny._close(writer)


tiny.BROKEN |= {"mtp-only", "mtp-no-tensors", "mtp-no-key", "mtp-two", "mtp-elsewhere"}
tiny.MODELS.update(
    {
        "mtp": _jitter,
        "mtp-glm": _glm,
        "mtp-clock": lambda path: _clock(path, Mtp(follow=0.6)),
        "mtp-clock-draft": lambda path: _clock(path, Mtp(head=_draft_head())),
        "mtp-only": lambda path: _clock(path, Mtp(head=_draft_head(), trunk=False)),
        "mtp-no-tensors": lambda path: _clock(path, Mtp(tensors=False)),
        "mtp-no-key": lambda path: _clock(path, Mtp(declared=0)),
        "mtp-two": lambda path: _clock(path, Mtp(declared=2)),
        "mtp-elsewhere": _elsewhere,
    }
)
