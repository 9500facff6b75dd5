"""How many bytes a model needs, part by part, in GPU memory and in RAM.

Weights come from the tensor list, KV cache and recurrent state from llama.cpp's own formulas
(exact), compute buffers from fits to its figures (plan/compute.py), the backend's own overhead from
published figures. Every size is in bytes. See docs/memory.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from specctl.enginefacts import most_snapshots
from specctl.errors import SettingsError
from specctl.gguf.arches import ROLLBACK
from specctl.gguf.shape import LayerMemory, Shape
from specctl.gguf.weights import Weights, spread_evenly
from specctl.plan.compute import compute_bytes
from specctl.units import MIB

__all__ = ["OVERHEAD", "Memory", "Part", "Weights", "cells_of", "estimate", "spread_evenly"]

# bytes of one KV value: ggml's block sizes
KV_BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}

OVERHEAD = {
    "cuda": 457 * MIB,
    "rocm": 457 * MIB,
    "hip": 457 * MIB,
    "musa": 457 * MIB,
    "sycl": 457 * MIB,
    "vulkan": 256 * MIB,
    "metal": 128 * MIB,
}
"""What a backend takes on a device beside llama.cpp's buffers (driver context, kernels), estimates.

CUDA and ROCm: Ollama reserves 457 MiB (`cudaMinimumMemory`, `rocmMinimumMemory` in its discover
package); a CUDA context alone was seen to take 107 MiB on an RTX 4060 Ti and 555 MiB on an RTX PRO
6000 (ggml-org/llama.cpp pull request 23604). SYCL is taken as CUDA; Vulkan and Metal are our own
guesses, not backed by a measurement.
"""

COMPUTE_MARGIN = 0.10  # the compute fits were found up to 9 % low on models of usual shape


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the bill: bytes on the device and bytes in RAM. `exact` False prints ≈."""

    name: str
    device: int
    host: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Memory:
    """The bill of one model at one context. `n_ctx` is padded as llama.cpp pads it."""

    parts: tuple[Part, ...]
    n_ctx: int
    gpu_layers: int
    n_cpu_moe: int = 0

    @property
    def device(self) -> int:
        """Bytes of GPU memory."""
        return sum(part.device for part in self.parts)

    @property
    def host(self) -> int:
        """Bytes of RAM."""
        return sum(part.host for part in self.parts)

    @property
    def total(self) -> int:
        """Bytes altogether."""
        return self.device + self.host

    def part(self, name: str) -> Part:
        """The part of that name; an empty one where the model has none."""
        return next((part for part in self.parts if part.name == name), Part(name, 0, 0))


def pad(tokens: int, multiple: int = 256) -> int:
    """llama.cpp's context padding."""
    return -(-tokens // multiple) * multiple


def cells_of(shape: Shape, ctx: int, ubatch: int = 512, swa_full: bool = True) -> tuple[int, int]:
    """Cells of the full and of the sliding-window cache for one sequence (llama-kv-cache-iswa)."""
    full = pad(ctx)
    if not shape.n_swa or swa_full:
        return full, full if shape.n_swa else 0
    return full, pad(min(full, shape.window + ubatch))


def layers_of(shape: Shape) -> tuple[LayerMemory, ...]:
    """What each trunk layer keeps; made up in equal turns where only totals are known."""
    if shape.layers or not shape.n_layer:
        return shape.layers
    state = shape.recurrent_bytes // shape.n_recurrent if shape.n_recurrent else 0
    full = LayerMemory(shape.kv_width_k, shape.kv_width_v)
    kinds = [
        *[full] * shape.n_attention,
        *[LayerMemory(shape.swa_width_k, shape.swa_width_v, sliding=True)] * shape.n_swa,
        *[LayerMemory(recurrent_bytes=state)] * shape.n_recurrent,
    ]
    step = max(1, round(len(kinds) / max(1, shape.n_attention)))
    mixed = [kinds[i] for offset in range(step) for i in range(offset, len(kinds), step)]
    return tuple(mixed)


def estimate(
    shape: Shape,
    weights: Weights | int,
    ctx: int,
    kv_type_k: str = "f16",
    kv_type_v: str = "f16",
    *,
    ubatch: int = 512,
    outputs: int = 1,
    flash_attn: bool = True,
    swa_full: bool = True,
    snapshots: int = 0,
    gpu_layers: int = -1,
    n_cpu_moe: int = 0,
    mtp: bool = False,
    encoder: bool = False,
    backend: str | None = "cuda",
) -> Memory:
    """The bill of one model opened once, for one sequence.

    Args:
        shape: from a header (exact) or from a profile.
        weights: by layer from a header, or a profile's total in bytes (then spread evenly, ≈).
        ctx: tokens of context; padded to 256 as llama.cpp does.
        kv_type_k: type of keys in the cache: f16, q8_0, …
        kv_type_v: type of values.
        ubatch: micro-batch, tokens.
        outputs: rows of logits a pass may want: K + 1 when verifying K drafted tokens.
        flash_attn: on, as `auto` resolves to on nearly every backend.
        swa_full: sliding-window layers keep the whole context (the engine opens them so, because
            rejected tokens must be taken back); False: only the window.
        snapshots: recurrent states kept for taking tokens back (llama.cpp's n_rs_seq), where the
            architecture can.
        gpu_layers: blocks on the GPU, counted from the last, the output layer first; -1 all, 0
            none: everything is RAM then.
        n_cpu_moe: routed experts of the first N layers stay in RAM.
        mtp: load the MTP layers of this file and open a second context for them; without it
            llama.cpp leaves them on disk.
        encoder: EAGLE-3 and DFlash drafts: logits are reserved for the whole micro-batch.
        backend: whose overhead to count on the device; None for a second model on the same one.

    Raises:
        SettingsError: an unknown KV type, or values that are quantised without flash attention.
    """
    for kv_type in (kv_type_k, kv_type_v):
        if kv_type not in KV_BYTES:
            raise SettingsError(f"unknown KV type {kv_type!r}", "one of " + ", ".join(KV_BYTES))
    if kv_type_v not in ("f32", "f16", "bf16") and not flash_attn:
        raise SettingsError(f"KV type {kv_type_v} for values needs flash attention")
    split = weights if isinstance(weights, Weights) else _spread(weights, shape)
    n_blocks = max(len(split.layers), shape.n_layer)
    start = _first_on_gpu(n_blocks, gpu_layers)
    cells, swa_cells = cells_of(shape, ctx, ubatch, swa_full)
    u = min(ubatch, cells)
    rows = u if encoder else outputs
    some, any_host = start <= n_blocks, start > 0
    kept = snapshots if shape.arch in ROLLBACK else 0
    compute = compute_bytes(shape, cells, swa_cells, u, rows, flash_attn, snapshots=kept)
    inputs = 4 * u * shape.n_embd + 2 * u * (cells + swa_cells)
    parts = [
        _weights(split, start, n_cpu_moe, shape, mtp),
        *_memory(shape, start, cells, swa_cells, kv_type_k, kv_type_v, kept),
    ]
    if shape.n_layer or not mtp:  # a separate MTP head has no trunk to run
        on_host = compute if not some or any_host else inputs
        parts.append(Part("compute", compute if some else 0, on_host, exact=False))
    if mtp and shape.n_nextn:
        parts.append(_mtp(shape, split, start, cells, u, outputs, (kv_type_k, kv_type_v)))
    parts.append(Part("output", 0, 4 * shape.n_vocab * max(1, rows)))
    if some and backend is not None:
        overhead = OVERHEAD.get(backend, OVERHEAD["cuda"])
        fitted = sum(p.device for p in parts if p.name in ("compute", "mtp"))
        margin = round(COMPUTE_MARGIN * fitted)  # not on weights spread evenly: their sum is known
        parts.append(Part("backend", overhead + margin, 0, exact=False))
    used = tuple(part for part in parts if part.device or part.host)
    return Memory(used, cells, n_blocks + 1 - start, n_cpu_moe)


def most_kept(shape: Shape, weights: Weights | int, mtp: bool = False) -> int | None:
    """Snapshots of its recurrent state that the engine would keep at most
    (`enginefacts.most_snapshots`), 0 where llama.cpp keeps none; None for a KV cache alone.

    `weights` as in `estimate`. `mtp`: its MTP layers are loaded, and count as weights.
    """
    if not shape.is_hybrid:
        return None
    if shape.arch not in ROLLBACK:
        return 0
    split = weights if isinstance(weights, Weights) else _spread(weights, shape)
    unread = sum(split.layers[shape.n_layer :]) if shape.n_layer and not mtp else 0
    return max(0, most_snapshots(split.total - unread, shape.recurrent_bytes))


def _spread(total: int, shape: Shape) -> Weights:
    share = 0.0
    if shape.is_moe:  # routed experts against everything else of a layer, by their matrices
        routed = 3 * shape.n_expert * shape.n_ff_exp
        other = 3 * shape.n_ff_shared + 2 * (shape.kv_width_k + shape.n_embd)
        share = routed / (routed + other) if routed else 0.9
    n_layer = max(1, shape.n_layer + shape.n_nextn)
    return spread_evenly(total, n_layer, shape.n_embd, shape.n_vocab, share)


def _first_on_gpu(n_blocks: int, gpu_layers: int) -> int:
    """The first block on the GPU; n_blocks is the output layer, n_blocks + 1 nothing at all."""
    return 0 if gpu_layers < 0 else max(0, n_blocks + 1 - gpu_layers)


def _weights(split: Weights, start: int, n_cpu_moe: int, shape: Shape, mtp: bool) -> Part:
    skips_mtp = shape.n_nextn > 0 and shape.n_layer > 0 and not mtp
    end = shape.n_layer if skips_mtp else len(split.layers)
    device = sum(split.layers[start:end])
    host = sum(split.layers[: min(start, end)]) + split.embedding
    moved = sum(split.experts[start : min(n_cpu_moe, end)])
    device, host = device - moved, host + moved
    if start <= len(split.layers):  # the output layer, and with tied weights a copy for it
        device += split.output + (split.embedding if split.tied else 0)
    else:
        host += split.output
    return Part("weights", device, host, split.exact)


def _memory(
    shape: Shape, start: int, cells: int, swa_cells: int, type_k: str, type_v: str, snapshots: int
) -> list[Part]:
    bytes_k, bytes_v = KV_BYTES[type_k], KV_BYTES[type_v]
    names = ("kv", "swa kv", "recurrent", "snapshots")
    totals = {name: [0.0, 0.0] for name in names}
    for index, layer in enumerate(layers_of(shape)):
        side = 0 if index >= start else 1
        per_token = layer.kv_k * bytes_k + layer.kv_v * bytes_v
        if layer.sliding:
            totals["swa kv"][side] += per_token * swa_cells
        else:
            totals["kv"][side] += per_token * cells
        totals["recurrent"][side] += layer.recurrent_bytes
        totals["snapshots"][side] += layer.recurrent_bytes * snapshots
    return [Part(name, round(device), round(host)) for name, (device, host) in totals.items()]


def _mtp(
    shape: Shape,
    split: Weights,
    start: int,
    cells: int,
    u: int,
    outputs: int,
    kv_types: tuple[str, str],
) -> Part:
    """The second context of the MTP layers: their KV cache and a compute buffer of its own."""
    per_token = shape.kv_width_k * KV_BYTES[kv_types[0]] + shape.kv_width_v * KV_BYTES[kv_types[1]]
    compute = compute_bytes(shape, cells, 0, u, outputs, mtp=True)
    both = round(per_token * cells * shape.n_nextn) + compute
    on_gpu = start < len(split.layers)
    return Part("mtp", both if on_gpu else 0, 0 if on_gpu else both, exact=False)
