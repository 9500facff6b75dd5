"""The bill of one model by hand arithmetic, and where partial offload puts each byte."""

from __future__ import annotations

import dataclasses

import pytest

from specctl.errors import SettingsError
from specctl.gguf.shape import LayerMemory, Shape
from specctl.gguf.weights import Weights, spread_evenly
from specctl.plan.memory import OVERHEAD, Memory, cells_of, estimate, layers_of
from specctl.units import MIB

QWEN_1_5B = Shape("qwen2", 28, 1536, 12, 151936, 32768, 256, 256, 28, n_ff=8960, head_dim=128)
GEMMA = Shape(
    "gemma3", 12, 640, 4, 1000, 32768, 256, 256, 2, n_swa=10, window=512,
    swa_width_k=256, swa_width_v=256, n_ff=2048, head_dim=256,
)  # fmt: skip
LATENT = Shape("deepseek2", 27, 2048, 16, 1000, 32768, 576, 0, 27, n_ff=10944, kv_lora=512)
HYBRID = Shape(
    "qwen35", 32, 2560, 16, 1000, 32768, 1024, 1024, 8, n_recurrent=24, recurrent_bytes=24_000_000,
    n_ff=9216, n_nextn=1, head_dim=256, ssm_inner=4096, ssm_conv=8192,
)  # fmt: skip


def host(memory: Memory, name: str) -> int:
    return memory.part(name).host


@pytest.mark.parametrize(
    ("kv_type", "per_value"), [("f16", 2.0), ("q8_0", 34 / 32), ("q4_0", 18 / 32), ("f32", 4.0)]
)
@pytest.mark.parametrize(("ctx", "cells"), [(1000, 1024), (8192, 8192), (300, 512), (256, 256)])
def test_kv_by_type_and_padding(kv_type: str, per_value: float, ctx: int, cells: int) -> None:
    memory = estimate(QWEN_1_5B, 10**9, ctx, kv_type, kv_type, gpu_layers=0)
    assert memory.n_ctx == cells
    assert host(memory, "kv") == round(28 * cells * (256 + 256) * per_value)


def test_keys_and_values_may_differ() -> None:
    memory = estimate(QWEN_1_5B, 10**9, 1024, "q8_0", "f16", gpu_layers=0)
    assert host(memory, "kv") == round(28 * 1024 * (256 * 34 / 32 + 256 * 2))


def test_latent_attention_is_an_order_smaller() -> None:
    memory = estimate(LATENT, 10**9, 8192, gpu_layers=0)
    assert host(memory, "kv") == 27 * 8192 * 576 * 2


def test_sliding_window_in_both_modes() -> None:
    whole = estimate(GEMMA, 10**9, 8192, gpu_layers=0)
    window = estimate(GEMMA, 10**9, 8192, gpu_layers=0, swa_full=False)
    assert host(whole, "kv") == host(window, "kv") == 2 * 8192 * 512 * 2
    assert host(whole, "swa kv") == 10 * 8192 * 512 * 2
    assert host(window, "swa kv") == 10 * 1024 * 512 * 2  # 512 + 512, padded to 256
    assert cells_of(GEMMA, 8192, 128, swa_full=False) == (8192, 768)
    assert cells_of(GEMMA, 512, 512, swa_full=False) == (512, 512)


def test_hybrid_state_does_not_grow_with_the_context() -> None:
    short = estimate(HYBRID, 10**9, 1024, gpu_layers=0)
    long = estimate(HYBRID, 10**9, 32768, gpu_layers=0)
    assert host(short, "recurrent") == host(long, "recurrent") == 24_000_000
    assert host(long, "kv") == 8 * 32768 * 2048 * 2
    snapshots = estimate(HYBRID, 10**9, 1024, gpu_layers=0, snapshots=4)
    assert host(snapshots, "recurrent") == 24_000_000
    assert host(snapshots, "snapshots") == 4 * 24_000_000
    no_rollback = dataclasses.replace(HYBRID, arch="qwen3next")
    assert host(estimate(no_rollback, 10**9, 1024, gpu_layers=0, snapshots=4), "recurrent") == (
        24_000_000
    )


def test_mtp_layers_are_loaded_only_when_asked_for() -> None:
    weights = Weights((100,) * 33, (0,) * 33, 1000, 2000)
    without = estimate(HYBRID, weights, 8192, gpu_layers=0)
    with_mtp = estimate(HYBRID, weights, 8192, gpu_layers=0, mtp=True)
    assert host(without, "weights") == 32 * 100 + 3000
    assert host(with_mtp, "weights") == 33 * 100 + 3000
    assert host(without, "mtp") == 0
    kv = 8192 * 2048 * 2
    assert kv < host(with_mtp, "mtp") < kv + 512 * 4 * 40_000


def test_rows_of_logits_decide_the_output_layer() -> None:
    """Why K + 1 rows are reserved and not a whole micro-batch: 297 MiB of logits."""
    few = estimate(QWEN_1_5B, 10**9, 8192, gpu_layers=0, outputs=9)
    all_rows = estimate(QWEN_1_5B, 10**9, 8192, gpu_layers=0, outputs=512)
    assert host(all_rows, "compute") == 4 * 151936 * 512 + 8 * 1536 * 512
    assert host(few, "compute") < 80 * MIB
    assert host(few, "output") == 9 * 151936 * 4
    encoder = estimate(QWEN_1_5B, 10**9, 8192, gpu_layers=0, outputs=9, encoder=True)
    assert host(encoder, "compute") == host(all_rows, "compute")


WEIGHTS = Weights((10, 20, 30, 40), (6, 12, 18, 24), embedding=1000, output=500)
FOUR = Shape("llama", 4, 64, 2, 32, 4096, 32, 32, 4, n_ff=64)


@pytest.mark.parametrize(
    ("gpu_layers", "device", "ram"),
    [
        (-1, 10 + 20 + 30 + 40 + 500, 1000),
        (5, 10 + 20 + 30 + 40 + 500, 1000),
        (4, 20 + 30 + 40 + 500, 10 + 1000),
        (2, 40 + 500, 10 + 20 + 30 + 1000),
        (1, 500, 100 + 1000),
        (0, 0, 100 + 1000 + 500),
        (99, 10 + 20 + 30 + 40 + 500, 1000),
    ],
)
def test_layers_go_to_the_gpu_from_the_last(gpu_layers: int, device: int, ram: int) -> None:
    """llama.cpp: block i is on the GPU when i >= n_layer + 1 - n_gpu_layers; the head is the +1."""
    part = estimate(FOUR, WEIGHTS, 256, gpu_layers=gpu_layers).part("weights")
    assert (part.device, part.host) == (device, ram)


def test_kv_follows_its_layer() -> None:
    half = estimate(FOUR, WEIGHTS, 256, gpu_layers=3).part("kv")
    assert (half.device, half.host) == (2 * 256 * 64 * 2, 2 * 256 * 64 * 2)


@pytest.mark.parametrize(("n_cpu_moe", "moved"), [(1, 6), (3, 6 + 12 + 18), (4, 60), (9, 60)])
def test_experts_move_to_ram_from_the_first(n_cpu_moe: int, moved: int) -> None:
    part = estimate(FOUR, WEIGHTS, 256, n_cpu_moe=n_cpu_moe).part("weights")
    assert (part.device, part.host) == (600 - moved, 1000 + moved)
    below = estimate(FOUR, WEIGHTS, 256, n_cpu_moe=1, gpu_layers=2).part("weights")
    assert below.host == 10 + 20 + 30 + 1000  # already there: not counted twice


def test_tied_weights_are_kept_twice_with_a_gpu() -> None:
    tied = dataclasses.replace(WEIGHTS, tied=True)
    assert estimate(FOUR, tied, 256).part("weights").device == 600 + 1000
    assert estimate(FOUR, tied, 256, gpu_layers=0).part("weights").host == 100 + 1500


def test_the_backend_s_own_share_is_counted_once_and_said_to_be_an_estimate() -> None:
    part = estimate(FOUR, WEIGHTS, 256, backend="cuda").part("backend")
    assert part.device >= OVERHEAD["cuda"]
    assert not part.exact
    assert estimate(FOUR, WEIGHTS, 256, backend=None).part("backend").device == 0
    assert estimate(FOUR, WEIGHTS, 256, gpu_layers=0).device == 0


@pytest.mark.parametrize("total", [10**6, 123_456_789, 5 * 10**9])
def test_a_total_is_spread_and_nothing_is_lost(total: int) -> None:
    split = spread_evenly(total, 28, 1536, 151936)
    assert split.total == total
    assert len(split.layers) == 28
    assert not split.exact
    part = estimate(QWEN_1_5B, total, 1024, gpu_layers=0).part("weights")
    assert (part.host, part.exact) == (total, False)


def test_a_spread_model_has_most_of_its_bytes_in_the_experts() -> None:
    experts = dataclasses.replace(QWEN_1_5B, n_expert=128, n_expert_used=8, n_ff_exp=768)
    full = estimate(experts, 10**10, 1024)
    moved = estimate(experts, 10**10, 1024, n_cpu_moe=28)
    assert moved.part("weights").device < 0.3 * full.part("weights").device
    assert moved.part("weights").device + moved.part("weights").host == 10**10


def test_totals_become_layers_in_turns() -> None:
    layers = layers_of(dataclasses.replace(GEMMA, layers=()))
    assert len(layers) == 12
    assert sum(layer.sliding for layer in layers) == 10
    mixed = layers_of(HYBRID)
    assert len(mixed) == 32
    assert sum(layer.recurrent_bytes for layer in mixed) == 24_000_000
    assert [bool(layer.kv_k) for layer in mixed].index(True) < 4
    own = (LayerMemory(1, 2),)
    assert layers_of(dataclasses.replace(FOUR, layers=own)) == own


def test_what_llama_cpp_refuses() -> None:
    with pytest.raises(SettingsError, match="q9_0"):
        estimate(FOUR, WEIGHTS, 256, "q9_0")
    with pytest.raises(SettingsError, match="flash attention"):
        estimate(FOUR, WEIGHTS, 256, "f16", "q8_0", flash_attn=False)
    estimate(FOUR, WEIGHTS, 256, "q8_0", "f16", flash_attn=False)


def test_the_sum_is_the_sum() -> None:
    memory = estimate(HYBRID, 10**9, 4096, gpu_layers=10, mtp=True)
    assert memory.total == sum(part.device + part.host for part in memory.parts)
    assert memory.device
    assert memory.host
