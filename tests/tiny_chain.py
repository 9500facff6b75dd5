"""More models for `tiny.MODELS`: targets with several MTP heads in a chain, of the three
architectures of which llama.cpp runs them (hy_v3; step35 and mimo2, with sliding layers).

chain-<arch>          jitter: drafts depend on all that each head's own KV cache holds
chain-<arch>-clock    the clock; heads are right only with the hidden state that the one before left
chain-<arch>-laws     the clock; head i has the law `LAWS[i]`: acceptance is known exactly
chain-only            the heads of chain-hy_v3-laws in a file of their own, for chain-trunk
chain-two-of-three    declares three heads and holds two
chain-mimo2-split     its heads have queries, keys and values apart: llama.cpp would abort
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tiny
from numpy.typing import NDArray
from tiny import EMBD, Dims
from tiny_mtp import Mtp

ARCHES = ("hy_v3", "step35", "mimo2")
HEADS = 3
LOUD = {"hy_v3": 0.035, "step35": 0.035, "mimo2": 0.04}
LAWS = (tiny.clock_draft(), tiny.clock_target(), tiny.clock_draft())
_WINDOW = 32


def write(
    path: Path,
    arch: str,
    head: NDArray[np.float32],
    out: float,
    heads: tuple[Mtp, ...],
    *,
    declared: int | None = None,
    trunk: bool = True,
    fused: bool = True,
) -> None:
    """A model of two dense layers and `heads` after them; `declared` is what the header says."""
    declared = len(heads) if declared is None else declared
    n_trunk = Dims().n_layer
    dims = Dims(n_layer=n_trunk + declared)
    sliding = arch in ("step35", "mimo2")
    writer = tiny._open(path, arch, dims, tiny.Vocab())
    writer.add_expert_feed_forward_length(dims.n_ff)
    if sliding:
        writer.add_sliding_window(_WINDOW)
        writer.add_sliding_window_pattern([i % 2 == 1 for i in range(dims.n_layer)])
    if declared:
        writer.add_nextn_predict_layers(declared)
    weights = tiny._Weights(writer, 5, out)
    tiny._ends(weights, head)
    for i in range(n_trunk if trunk else 0):
        _layer(weights, i, arch, dims)
    for i, mtp in enumerate(heads, n_trunk):
        weights.out = mtp.out
        _layer(weights, i, arch if fused else "", dims)
        mtp.join(weights, i)
    tiny._close(writer)


def _layer(weights: tiny._Weights, i: int, arch: str, dims: Dims) -> None:
    weights.norms(i, "attn_norm", "ffn_norm")
    if arch == "mimo2":
        rows = (dims.n_head + 2 * dims.n_head_kv) * dims.head_dim
        wide = dims.n_head * dims.head_dim
        weights.add(f"blk.{i}.attn_qkv.weight", weights.random(rows, EMBD, 1.5))
        weights.add(f"blk.{i}.attn_output.weight", weights.random(EMBD, wide, weights.out))
    else:
        weights.attention(i, dims, qk_norm=arch != "")
    weights.ffn(i, dims.n_ff)


def _law(clock: tiny.Clock) -> NDArray[np.float32]:
    return tiny._law_head(clock, tiny.Vocab())


_LAW_HEADS = tuple(Mtp(head=_law(clock)) for clock in LAWS)


def _jitter(arch: str) -> Callable[[Path], None]:
    heads = (Mtp(follow=0.6, out=0.4),) * HEADS
    return lambda path: write(path, arch, tiny._jitter_head(), LOUD[arch], heads)


def _clock(arch: str, heads: tuple[Mtp, ...], **how: int | bool) -> Callable[[Path], None]:
    return lambda path: write(path, arch, _law(tiny.clock_target()), 0.0, heads, **how)  # type: ignore[arg-type]


for _arch in ARCHES:
    tiny.MODELS |= {
        f"chain-{_arch}": _jitter(_arch),
        f"chain-{_arch}-clock": _clock(_arch, (Mtp(follow=0.6),) * HEADS),
        f"chain-{_arch}-laws": _clock(_arch, _LAW_HEADS),
    }
tiny.MODELS |= {
    "chain-trunk": _clock("hy_v3", (), declared=0),
    "chain-only": _clock("hy_v3", _LAW_HEADS, trunk=False),
    "chain-two-of-three": _clock("hy_v3", _LAW_HEADS[:2], declared=3),
    "chain-mimo2-split": _clock("mimo2", (Mtp(), Mtp()), fused=False),
}
tiny.BROKEN |= {"chain-only", "chain-two-of-three"}
