"""More models for `tiny.MODELS`: EAGLE-3 heads for the tiny targets, and two dense targets more.

The residual stream of a clock is the one-hot vector of its token, so a head whose `fc` takes the
middle layer gets the token before as g, exactly; whether it guesses right hangs on that alone.

eagle-draft      the clock draft as a head: acceptance is known exactly (`tiny.walk`)
eagle-draft-d2t  the same with a vocabulary of its own, words: every other token is -inf
eagle-borrow     without embedding and output: on the clock, with the target's, always right
eagle-last       reads what leaves the target's last layer; hybrid-clock gives it, normalised
eagle-loud       random layers: its drafts depend on all that its cache holds
eagle-heard      the clock target and random attention: right on the clock, and depends on its cache
the rest         files that cannot draft, each for one reason
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tiny
from numpy.typing import NDArray
from tiny import AMP, EMBD, Dims


@dataclass(frozen=True)
class Eagle:
    """`head` is its output. With `out` its attention and feed-forward layers are random, that loud;
    without, its layer moves g one step along the clock, and `heard` is how loud attention is.
    """

    head: NDArray[np.float32] | None = None
    out: float = 0.0
    heard: float = 0.0
    layers: tuple[int, ...] = (0, 1, 1)
    width: int = EMBD
    embedding: bool = True
    d2t: NDArray[np.int64] | None = None
    d2t_kind: type = np.int64
    blocks: int = 1
    fc: bool = True
    scale: float = 1.0  # of what the middle layer gives
    vocab: tiny.Vocab = field(default_factory=tiny.Vocab)

    def write(self, path: Path) -> None:
        """The file."""
        dims = Dims(n_layer=self.blocks, n_ff=2 * EMBD)
        writer = tiny._open(path, "eagle3", dims, self.vocab)
        writer.add_array("eagle3.target_layers", list(self.layers))
        writer.add_uint32("eagle3.target_hidden_size", self.width)
        weights = tiny._Weights(writer, 21, self.out)
        if self.fc:
            part = np.zeros((EMBD, self.width))
            np.fill_diagonal(part, self.scale)
            zero = np.zeros_like(part)
            fused = [zero, part, zero] if len(self.layers) == 3 else [part] * len(self.layers)
            weights.add("fc.weight", np.concatenate(fused, axis=1))
        weights.norms(0, "attn_norm", "attn_norm_2", "ffn_norm")
        self._attention(weights, dims)
        self._step(weights, dims.n_ff)
        weights.add("output_norm.weight", np.ones(EMBD))
        if self.embedding:
            weights.add("token_embd.weight", np.eye(tiny.SIZE + self.vocab.padding, EMBD))
        if self.d2t is not None:
            writer.add_tensor("d2t", self.d2t.astype(self.d2t_kind))
        if self.head is not None:
            rows = self.head if self.d2t is None else self.head[np.clip(self.d2t, 0, EMBD - 1)]
            weights.add("output.weight", rows)
        tiny._close(writer)

    def _attention(self, weights: tiny._Weights, dims: Dims) -> None:
        wide, narrow = dims.n_head * dims.head_dim, dims.n_head_kv * dims.head_dim
        for name, rows in (("q", wide), ("k", narrow), ("v", narrow)):
            weights.add(f"blk.0.attn_{name}.weight", weights.random(rows, 2 * EMBD))
        weights.add("blk.0.attn_output.weight", weights.random(EMBD, wide, self.out or self.heard))

    def _step(self, weights: tiny._Weights, n_ff: int) -> None:
        """x of token v becomes that of first[v]: unit j fires where the norm of x is AMP at j.

        A one-hot x gives silu(AMP) AMP at its unit and 0 elsewhere, exactly.
        """
        gate, down = np.zeros((n_ff, EMBD)), np.zeros((EMBD, n_ff))
        if self.out:
            gate, up = weights.random(n_ff, EMBD), weights.random(n_ff, EMBD)
            down = weights.random(EMBD, n_ff, self.out / 3)
        else:
            gate[:EMBD] = np.eye(EMBD)
            up = gate
            fired = AMP / (1 + np.exp(-AMP)) * AMP
            first = tiny.clock_target().first
            down[first, np.arange(EMBD)] += 1 / fired
            down[np.arange(EMBD), np.arange(EMBD)] -= 1 / fired
        weights.add("blk.0.ffn_gate.weight", gate)
        weights.add("blk.0.ffn_up.weight", up)
        weights.add("blk.0.ffn_down.weight", down)


def _head(clock: tiny.Clock) -> NDArray[np.float32]:
    return tiny._law_head(clock, tiny.Vocab())


def _draft(**how: Any) -> Callable[[Path], None]:
    """g is the token before, the layer moves it to the token itself, the head drafts from there."""
    how.setdefault("head", _head(tiny.clock_draft()))
    return lambda path: Eagle(**how).write(path)


_WORDS = np.arange(tiny.FIRST_WORD, tiny.SIZE)
_BROKEN = {
    "eagle-wide": {"width": EMBD + 32},
    "eagle-layer": {"layers": (0, 1, 3)},
    "eagle-two": {"layers": (0, 1)},
    "eagle-blocks": {"blocks": 2},
    "eagle-d2t-i32": {"d2t": _WORDS, "d2t_kind": np.int32},
    "eagle-d2t-range": {"d2t": np.append(_WORDS, tiny.SIZE)},
    "eagle-no-fc": {"fc": False},
    "eagle-token": {"vocab": tiny.Vocab(changed={tiny.word("cedar"): "\u0120zebra"})},
}
tiny.MODELS.update({name: _draft(**how) for name, how in _BROKEN.items()})
tiny.MODELS.update(
    {
        "eagle-draft": _draft(),
        "eagle-draft-d2t": _draft(d2t=_WORDS),
        "eagle-borrow": lambda path: Eagle(embedding=False).write(path),
        "eagle-last": _draft(layers=(0, 2, 1), scale=1 / AMP),
        "eagle-loud": _draft(head=tiny._jitter_head(), out=0.05),
        "eagle-heard": _draft(head=tiny._jitter_head(), heard=0.006, layers=(0, 0, 1)),
        "eagle-d2t-no-output": lambda path: Eagle(d2t=_WORDS).write(path),
    }
)
tiny.BROKEN |= {name for name in tiny.MODELS if name.startswith("eagle-")}
