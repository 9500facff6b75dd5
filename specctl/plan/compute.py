"""Bytes of llama.cpp's compute buffer: the tensors of one forward pass that live at the same time.

llama.cpp reserves the buffer for a full micro-batch of u tokens. What lives at its widest point
depends on the graph of the architecture family and on the allocator (ggml-alloc.c reuses freed
blocks, best fit first), so these are fits, not derivations: read off llama.cpp's own figures on
made-up models whose dimensions were varied one at a time (docs/memory.md has the table). Per token,
in f32 values, with D = n_embd, F = n_ff, q = n_head x head_dim, kv = KV width:

    feed-forward         3 F + 3 D, and min(D, q) more if F > 2 D
    attention            3 D + max(2 q, q + 2 kv)
    gated attention      3 D + 3 q + 2 kv, or 3 D + 4 q + kv if q > D  (query and gate)
    latent attention     3 n_head r + 2 D                 (MLA of rank r; below, q = 128 n_head)
    experts              3 D + q + 3 U E, and U D more if D > 2 E   (U used experts of width E)
                         3 D + q + U D if U E <= D; hybrids have D in place of q
    gated delta net      3 D + 3 C                        (C channels of the convolution)
                         and 1.5 (s + 1) states of one layer with s snapshots
    an MTP layer         its feed-forward less 2 D

plus one f16 mask of n cells per cache kind (full, sliding), and a few index inputs. The output
layer lives apart: 4 V o + 8 D u for o rows of V logits (and two n_head r with MLA). Without flash
attention the scores of all heads live at once: n (n_head + 1) + 5 D + 2 kv (+ 2 n_head r).
"""

from __future__ import annotations

from specctl.gguf.shape import Shape

_GATED = frozenset({"qwen35", "qwen35moe", "qwen3next"})
_LATENT_HEAD = 128  # width of a value head in all published MLA models
_INDEX_VALUES = 6  # positions, cache cells (i64) and output rows, per token


def compute_bytes(
    shape: Shape,
    cells: int,
    swa_cells: int,
    ubatch: int,
    outputs: int,
    flash_attn: bool = True,
    mtp: bool = False,
    snapshots: int = 0,
) -> int:
    """Bytes for micro-batches of `ubatch` tokens, `outputs` rows of logits at most.

    `cells` and `swa_cells` are the sizes of the two KV caches; `mtp` asks for the context of the
    MTP layers instead of the trunk's; `snapshots` recurrent states are kept beside the current one.
    """
    d, u = shape.n_embd, ubatch
    latent = shape.n_head * shape.kv_lora if _is_latent(shape) else 0
    full = cells if mtp or shape.n_attention or not shape.n_layer else 0
    sliding = swa_cells if shape.n_swa and not mtp else 0
    masks = full + sliding
    if flash_attn:
        mixer = 0 if mtp else max(_attention(shape), _recurrent(shape, snapshots, u))
        layer = max(_feed_forward(shape, mtp), mixer) + masks / 2
    else:
        scores = max(full, sliding)
        kv = max(shape.kv_width_k, shape.swa_width_k)
        # masks are f32 here; the one beside the scores is the "+ 1"
        attention = scores * (shape.n_head + 1) + 5 * d + 2 * kv + 2 * latent
        layer = max(attention + masks - scores, _feed_forward(shape, mtp) + masks)
    rows = min(outputs, u)
    logits = 4 * shape.n_vocab * rows + 8 * (d + latent) * u
    return round(max(4 * u * (layer + _INDEX_VALUES), logits))


def _is_latent(shape: Shape) -> bool:
    return shape.kv_lora > 0 and shape.kv_width_k > 0 and shape.kv_width_v == 0


def _queries(shape: Shape) -> int:
    return shape.n_head * (shape.head_dim or shape.n_embd // max(1, shape.n_head))


def _feed_forward(shape: Shape, mtp: bool = False) -> int:
    """Dense or expert feed-forward, the wider of the two where a model has both."""
    d, f, q = shape.n_embd, shape.n_ff, _queries(shape)
    if _is_latent(shape):
        dense = 3 * f + 3 * d + min(d, shape.n_head * _LATENT_HEAD)
    elif f > 2 * d and not shape.is_hybrid:
        dense = 3 * f + 3 * d + min(d, q)
    else:
        dense = 3 * f + 3 * d
    if mtp:
        dense -= 2 * d if f > 2 * d else 3 * d
    if not shape.is_moe or not shape.n_ff_exp:
        return dense
    used, width = max(1, shape.n_expert_used), shape.n_ff_exp
    if _is_latent(shape):
        q = min(d, shape.n_head * _LATENT_HEAD)
    experts = 3 * d + (d if shape.is_hybrid else q) - (3 * d if mtp else 0)
    if used * width <= d:
        experts += used * d
    else:
        experts += 3 * used * width + (used * d if d > 2 * width else 0)
    # n_ff of a model with experts is real only where it has leading dense layers
    return max(experts, dense) if _is_latent(shape) else experts


def _attention(shape: Shape) -> int:
    d, q = shape.n_embd, _queries(shape)
    kv = max(shape.kv_width_k, shape.swa_width_k)
    if _is_latent(shape):
        return 3 * shape.n_head * shape.kv_lora + 2 * d
    if shape.arch in _GATED:
        return 3 * d + (3 * q + 2 * kv if q <= d else 4 * q + kv)
    return 3 * d + max(2 * q, q + 2 * kv)


def _recurrent(shape: Shape, snapshots: int, ubatch: int) -> float:
    """Of one recurrent layer; its states are written out one by one where snapshots are kept."""
    if not shape.n_recurrent:
        return 0
    states = 1.5 * (snapshots + 1) * shape.recurrent_bytes / shape.n_recurrent if snapshots else 0
    return 3 * shape.n_embd + 3 * shape.ssm_conv + states / 4 / ubatch
