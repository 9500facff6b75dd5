"""More models for `tiny.MODELS`: DFlash and DSpark drafts for the tiny targets.

Only words are ever said, so the dimensions of the byte tokens are free: the mask is the last byte,
and `fc` puts the word that a layer of the target read into the first sixty-one.

A DFlash draft has a head for each place i of its block that looks i back, at the last token, and
sees nothing from any other place (`_look`); its output adds the token that is i steps further. So
each row guesses the right token only where positions, masks and the order of rows are right.

dflash-draft     the clock draft, block 6: acceptance is known exactly (`tiny.walk`)
dflash-read      block 2; its head looks two back, at what was read of the target: the word before
dflash-last      the same of what leaves the last layer; hybrid-clock gives it
dflash-borrow    block 6 without embedding and output: on the clock, with the target's, always right
dflash-d2t       dflash-draft with a vocabulary of its own, words
dflash-causal    dflash-draft whose rows do not see those after them
dflash-loud      dflash-draft and random heads that hear all its memory holds: often right
dflash-sections  the same, turning by sections (M-RoPE), which comes to the same for text
dspark-draft     the clock draft as a Markov chain, block 5, with a head that knows when it is right
dspark-bonus     the same behind the last token, as DFlash reads its rows
dspark-wide      without that head, block 48: more rows than a pass usually has
dspark-soft      without that head, and softer
dspark-loud      a soft chain over random heads
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
from tiny import AMP, EMBD, FIRST_WORD, SIZE, Dims

MASK = 255
N_WORDS = SIZE - FIRST_WORD
HEAD_DIM, TURNING, STILL = 64, 4, 31  # pairs of a head that turn fast, and one that does not
BASE = 1e10
DEAF = 30  # most of a random head's query is here, where no key is: so it hears many at once
SHARP = 48.0  # of queries and keys: what is looked for outweighs all else by e^20
SAID = 40.0  # how loud a guess is beside the mask's own 1
BLOCK = 6

Matrix = NDArray[np.float64]


def _sought(back: int) -> tuple[Matrix, Matrix]:
    """Query and key of a head that looks `back` positions back, float64 [HEAD_DIM] each.

    Keys are the same for all positions and turn with them; of what is not `back` away, and of all
    that has another key, less is seen than of the masks, whose key (at STILL) never turns.
    """
    half = HEAD_DIM // 2
    angles = back * BASE ** (-2 * np.arange(TURNING) / HEAD_DIM)
    key, query = np.zeros(HEAD_DIM), np.zeros(HEAD_DIM)
    key[:TURNING] = key[half : half + TURNING] = 1 / np.sqrt(2 * TURNING)
    query[:TURNING] = (np.cos(angles) + np.sin(angles)) / np.sqrt(2 * TURNING)
    query[half : half + TURNING] = (np.cos(angles) - np.sin(angles)) / np.sqrt(2 * TURNING)
    beside = np.cos(BASE ** (-2 * np.arange(TURNING) / HEAD_DIM)).mean()  # one position off
    query[STILL] = (1 + beside) / 2
    return query, key


@dataclass(frozen=True)
class Spark:
    """A Markov head of this clock, `gain` sharp; `confident`: 0.98 or 0.02, as it is right."""

    clock: tiny.Clock = field(default_factory=tiny.clock_draft)
    gain: float = 1.0
    confident: bool = False
    second: bool = True  # has it the second of its two tensors?


@dataclass(frozen=True)
class Flash:
    """`steps(h)` is what the guess of place h is made of, token → token; `reads`: by what was read
    of the target, two back. With `out` there are random heads too, that loud. `keys` replace those
    of the header; None leaves one out.
    """

    block: int = BLOCK
    steps: Callable[[int], NDArray[np.int64]] | None = None
    reads: bool = False
    out: float = 0.0
    embedding: bool = True
    output: bool = True
    d2t: NDArray[np.int64] | None = None
    layers: tuple[int, ...] = (0, 1)
    fc: bool = True
    spark: Spark | None = None
    arch_layers: int = 1
    keys: dict[str, Any] = field(default_factory=dict)
    vocab: tiny.Vocab = field(default_factory=tiny.Vocab)
    selector: bool = False

    def write(self, path: Path) -> None:
        """The file."""
        looking = self.block - 1 if self.steps is not None else 0
        heads = max(1, looking) + (2 if self.out else 0)
        dims = Dims(self.arch_layers, heads, heads, HEAD_DIM, n_ff=32)
        writer = tiny._open(path, "dflash", dims, self.vocab)
        writer.add_rope_freq_base(BASE)
        keys: dict[str, Any] = {
            "dflash.target_layers": list(self.layers),
            "dflash.block_size": self.block,
            "tokenizer.ggml.mask_token_id": MASK,
            **self.keys,
        }
        for key, value in keys.items():
            if isinstance(value, bool):
                writer.add_bool(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            elif value is not None:
                writer.add_array(key, value)
        weights = tiny._Weights(writer, 31, 0.0)
        self._tensors(weights, dims, looking)
        tiny._close(writer)

    def _tensors(self, weights: tiny._Weights, dims: Dims, looking: int) -> None:
        if self.fc:
            read = np.zeros((EMBD, len(self.layers) * EMBD))
            words = np.arange(FIRST_WORD, SIZE)
            read[np.arange(N_WORDS), (len(self.layers) - 1) * EMBD + words] = 1
            weights.add("fc.weight", read)
        weights.add("enc.output_norm.weight", np.ones(EMBD))
        weights.add("output_norm.weight", np.ones(EMBD))
        for i in range(dims.n_layer):
            weights.norms(i, "attn_norm", "ffn_norm")
            weights.norms(i, "attn_q_norm", "attn_k_norm", value=SHARP**0.5, width=HEAD_DIM)
            self._attention(weights, i, dims, looking)
            for name, shape in (("gate", (32, EMBD)), ("up", (32, EMBD)), ("down", (EMBD, 32))):
                weights.add(f"blk.{i}.ffn_{name}.weight", np.zeros(shape))
        if self.embedding:
            embedding = np.eye(SIZE, EMBD)
            embedding[MASK, MASK] = 0.3 if self.out else 1.0
            weights.add("token_embd.weight", embedding)
        if self.d2t is not None:
            weights.writer.add_tensor("d2t", self.d2t)
        if self.output:
            said = np.zeros((SIZE, EMBD))
            if self.spark is None or self.out:
                said[FIRST_WORD:, FIRST_WORD:] = np.eye(N_WORDS)
            weights.add("output.weight", said if self.d2t is None else said[self.d2t])
        if self.spark is not None:
            self._chain(weights, self.spark)
        if self.selector:
            weights.add("selector_hidden.weight", np.zeros((8, EMBD)))

    def _attention(self, weights: tiny._Weights, i: int, dims: Dims, looking: int) -> None:
        n, wide = dims.n_head, dims.n_head * HEAD_DIM
        q, k = np.zeros((n, HEAD_DIM, EMBD)), np.zeros((n, HEAD_DIM, EMBD))
        v, o = np.zeros((n, HEAD_DIM, EMBD)), np.zeros((EMBD, n, HEAD_DIM))
        seen = np.arange(N_WORDS) + (0 if self.reads else FIRST_WORD)
        for head in range(looking):
            place = head + 1
            query, key = _sought(place + 1 if self.reads else place)
            q[head, :, MASK] = query
            k[head][:, seen] = key[:, None]
            k[head, STILL, MASK] = 1.0
            v[head, np.arange(N_WORDS), seen] = 1 / AMP
            assert self.steps is not None
            o[self.steps(place)[FIRST_WORD:], head, np.arange(N_WORDS)] = SAID
        for head in range(looking, n if self.out else looking):
            for each in (q, k, v):
                each[head] = weights.random(HEAD_DIM, EMBD)
            q[head, DEAF], k[head, DEAF] = 22.0, 0.0
            o[:, head] = weights.random(EMBD, HEAD_DIM, self.out)
        weights.add(f"blk.{i}.attn_q.weight", q.reshape(wide, EMBD))
        weights.add(f"blk.{i}.attn_k.weight", k.reshape(wide, EMBD))
        weights.add(f"blk.{i}.attn_v.weight", v.reshape(wide, EMBD))
        weights.add(f"blk.{i}.attn_output.weight", o.reshape(EMBD, wide))

    def _chain(self, weights: tiny._Weights, spark: Spark) -> None:
        weights.add("markov_w1.weight", np.eye(SIZE, EMBD))
        law = np.log(spark.clock.laws()).T * spark.gain  # [guess, token before]
        if spark.second:
            weights.add("markov_w2.weight", law if self.d2t is None else law[self.d2t])
        if spark.confident:
            sure = np.full((1, 2 * EMBD), 0.0)
            right = spark.clock.first == tiny.clock_target().first
            sure[0, EMBD:] = np.where(right, 4.0, -4.0)
            weights.add("conf_proj.weight", sure)
            weights.writer.add_tensor("conf_proj.bias", np.zeros(1, np.float32))


def _powers(clock: tiny.Clock, less: int = 0) -> Callable[[int], NDArray[np.int64]]:
    """place → the token that `clock` says `place` - `less` steps after each token."""

    def after(place: int) -> NDArray[np.int64]:
        tokens = np.arange(SIZE)
        for _ in range(place - less):
            tokens = clock.first[tokens]
        return tokens

    return after


def _read(place: int) -> NDArray[np.int64]:
    """From the token before the last one: a step of the target, then the draft's."""
    return _powers(tiny.clock_draft())(place)[tiny.clock_target().first]


_DRAFT, _TARGET = _powers(tiny.clock_draft()), _powers(tiny.clock_target())
_SOFT = Spark(gain=0.8)
_WORDS = np.arange(FIRST_WORD, SIZE, dtype=np.int64)
FLASHES: dict[str, Flash] = {
    "dflash-draft": Flash(steps=_DRAFT),
    "dflash-read": Flash(block=2, steps=_read, reads=True),
    "dflash-last": Flash(block=2, steps=_read, reads=True, layers=(0, 2)),
    "dflash-borrow": Flash(
        steps=_powers(tiny.clock_target(), less=1), embedding=False, output=False
    ),
    "dflash-d2t": Flash(steps=_DRAFT, d2t=_WORDS),
    "dflash-causal": Flash(steps=_DRAFT, keys={"dflash.attention.causal": True}),
    "dflash-loud": Flash(steps=_TARGET, out=3.5),
    "dflash-sections": Flash(
        steps=_TARGET, out=3.5, keys={"dflash.rope.dimension_sections": [1, 16, 15, 0]}
    ),
    "dflash-loud-causal": Flash(steps=_TARGET, out=3.5, keys={"dflash.attention.causal": True}),
    "dspark-draft": Flash(block=5, spark=Spark(confident=True)),
    "dspark-bonus": Flash(
        block=5, spark=Spark(confident=True), keys={"dflash.sample_from_anchor": False}
    ),
    "dspark-soft": Flash(block=4, spark=_SOFT),
    "dspark-wide": Flash(block=48, spark=Spark()),
    "dspark-d2t": Flash(block=5, spark=Spark(), d2t=_WORDS),
    "dspark-loud": Flash(block=5, out=3.5, spark=_SOFT),
    # ------------------------------------------------ that cannot draft
    "dflash-no-mask": Flash(steps=_DRAFT, keys={"tokenizer.ggml.mask_token_id": None}),
    "dflash-mask-range": Flash(steps=_DRAFT, keys={"tokenizer.ggml.mask_token_id": SIZE}),
    "dflash-block-0": Flash(steps=_DRAFT, keys={"dflash.block_size": 0}),
    "dflash-block-1": Flash(steps=_DRAFT, keys={"dflash.block_size": 1}),
    "dflash-block-long": Flash(steps=_DRAFT, keys={"dflash.block_size": 129}),
    "dflash-layer": Flash(steps=_DRAFT, layers=(0, 3)),
    "dflash-no-layers": Flash(steps=_DRAFT, keys={"dflash.target_layers": None}),
    "dflash-no-fc": Flash(steps=_DRAFT, fc=False),
    "dflash-streams": Flash(steps=_DRAFT, keys={"dflash.hyper_connection.count": 4}),
    "dflash-no-blocks": Flash(steps=_DRAFT, arch_layers=0),
    "dflash-token": Flash(
        steps=_DRAFT, vocab=tiny.Vocab(changed={tiny.word("cedar"): "\u0120zebra"})
    ),
    "dflash-d2t-i32": Flash(steps=_DRAFT, d2t=_WORDS.astype(np.int32)),
    "dflash-borrow-padded": Flash(
        steps=_DRAFT, embedding=False, output=False, vocab=tiny.Vocab(padding=8)
    ),
    "dflash-borrow-mask": Flash(
        steps=_DRAFT,
        embedding=False,
        vocab=tiny.Vocab(padding=8),
        keys={"tokenizer.ggml.mask_token_id": SIZE + 4},
    ),
    "dflash2": Flash(steps=_DRAFT, selector=True),
    "dspark-no-block": Flash(spark=Spark(), keys={"dflash.block_size": None}),
    "dspark-block-0": Flash(spark=Spark(), keys={"dflash.block_size": 0}),
    "dspark-long-chain": Flash(spark=Spark(confident=True), keys={"dflash.block_size": 100}),
    "dspark-no-second": Flash(spark=Spark(second=False)),
}
tiny.MODELS.update({name: flash.write for name, flash in FLASHES.items()})
tiny.BROKEN |= set(FLASHES)
