"""What is given up when memory is short, in which order, and that it is said."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.gguf.shape import Shape
from specctl.gguf.weights import spread_evenly
from specctl.plan.memory import estimate
from specctl.plan.placement import Budget, Need, Placement, largest_ctx, place, to_settings
from specctl.settings import EngineSettings
from specctl.units import GIB

BIG = Shape("qwen3", 36, 4096, 32, 151936, 40960, 1024, 1024, 36, n_ff=12288, head_dim=128)
SMALL = Shape("qwen3", 28, 1024, 16, 151936, 40960, 1024, 1024, 28, n_ff=3072, head_dim=128)
MOE = Shape(
    "qwen3moe", 48, 2048, 32, 151936, 40960, 512, 512, 48,
    n_expert=128, n_expert_used=8, n_ff_exp=768, head_dim=128,
)  # fmt: skip

TARGET = Need(BIG, spread_evenly(5 * GIB, 36, 4096, 151936))
DRAFT = Need(SMALL, spread_evenly(GIB * 6 // 10, 28, 1024, 151936))
EXPERTS = Need(MOE, spread_evenly(17 * GIB, 48, 2048, 151936, expert_share=0.9))


def put(vram: float, ctx: int | None = None, ram: float = 32, **more: object) -> Placement:
    budget = Budget(int(vram * GIB), int(ram * GIB))
    return place(TARGET, DRAFT, budget, ctx, **more)  # type: ignore[arg-type]


def test_plenty() -> None:
    found = put(24, 32768)
    assert (found.kind, found.fits, found.ctx, found.decisions) == ("full offload", True, 32768, ())
    assert found.draft is not None
    assert found.device <= 24 * GIB


def test_the_draft_goes_before_the_context() -> None:
    """A draft of a gigabyte does not cost an 8192-token default its length."""
    found = put(7)
    assert (found.kind, found.ctx) == ("full offload", 8192)
    assert found.draft is None
    (said,) = found.decisions
    assert "draft left out" in said
    assert "n-gram drafting" in said


def test_the_default_context_goes_before_the_layers() -> None:
    found = put(6)
    assert found.kind == "full offload"
    assert 2048 <= found.ctx < 8192
    assert any(f"context {found.ctx} instead of the default 8192" in d for d in found.decisions)
    longer = estimate(BIG, TARGET.weights, found.ctx + 256, outputs=9)
    assert longer.device > 6 * GIB  # it was not cut further than needed


def test_a_context_asked_for_is_never_shrunk() -> None:
    for vram in (24, 8, 7, 6, 4, 2, 1, 0.5, 0):
        assert put(vram, 8192).ctx == 8192, vram
        assert put(vram, 30000, ram=64).ctx == 30000, vram


def test_layers_move_to_ram_one_by_one() -> None:
    found = put(4, 8192)
    assert found.kind == "partial offload"
    layers = found.target.gpu_layers
    assert 0 < layers < 37
    assert f"{layers} of 37 layers on the GPU" in found.decisions[-1]
    more = estimate(BIG, TARGET.weights, 8192, outputs=9, gpu_layers=layers + 1)
    assert found.device <= 4 * GIB < more.device  # as many as fit
    assert to_settings(found).target.gpu_layers == layers


def test_experts_move_before_whole_layers() -> None:
    found = place(EXPERTS, None, Budget(8 * GIB, 32 * GIB), 8192)
    assert found.kind == "experts in RAM"
    n = found.target.n_cpu_moe
    fewer = estimate(MOE, EXPERTS.weights, 8192, outputs=9, n_cpu_moe=n - 1)
    assert found.device <= 8 * GIB < fewer.device  # as few as needed
    settings = to_settings(found)
    assert (settings.target.n_cpu_moe, settings.target.gpu_layers) == (n, -1)


def test_cpu_only() -> None:
    found = put(0, ram=16)
    assert (found.kind, found.device, found.decisions) == ("CPU only", 0, ())
    assert found.draft is not None
    assert to_settings(found).target.gpu_layers == to_settings(found).draft.gpu_layers == 0
    tight = put(0, ram=6.8)
    assert tight.draft is None
    assert "draft left out" in tight.decisions[0]


def test_a_gpu_too_small_for_anything() -> None:
    found = put(0.3, 8192)
    assert (found.kind, found.fits) == ("CPU only", True)
    assert "no layer fits on the GPU" in found.decisions[-1]


def test_nothing_fits_and_says_how_much_is_needed() -> None:
    found = put(1, 8192, ram=2)
    assert (found.kind, found.fits) == ("does not fit", False)
    assert "1.00 GiB on the GPU and 2.00 GiB of RAM" in found.decisions[-1]
    assert "smaller quant" in found.decisions[-1]


def test_memory_that_is_both_is_counted_once() -> None:
    shared = Budget(8 * GIB, 8 * GIB, backend="metal", shared=True)
    assert place(TARGET, None, shared, 8192).fits
    apart = dataclasses.replace(shared, shared=False)
    assert place(TARGET, None, apart, 40960).fits
    assert not place(TARGET, None, dataclasses.replace(shared, host=5 * GIB), 8192).fits


def test_beyond_what_it_was_trained_for() -> None:
    found = put(80, 65536)
    assert found.ctx == 65536
    assert "more than the 40960" in found.decisions[0]


def test_the_largest_context_is_the_largest() -> None:
    budget = Budget(8 * GIB, 32 * GIB)
    most = largest_ctx(TARGET, None, budget)
    assert 0 < most < 40960
    assert estimate(BIG, TARGET.weights, most, outputs=9).device <= 8 * GIB
    assert estimate(BIG, TARGET.weights, most + 256, outputs=9).device > 8 * GIB
    assert largest_ctx(TARGET, None, Budget(80 * GIB, 32 * GIB)) == 40960
    assert largest_ctx(TARGET, None, Budget(2 * GIB, 32 * GIB)) == 0


def test_quantised_kv_makes_room() -> None:
    lean = dataclasses.replace(TARGET, kv_type_k="q8_0", kv_type_v="q8_0")
    budget = Budget(8 * GIB, 32 * GIB)
    assert largest_ctx(lean, None, budget) > 1.8 * largest_ctx(TARGET, None, budget)
    settings = to_settings(place(lean, DRAFT, Budget(24 * GIB, 32 * GIB)))
    assert (settings.target.kv_type_k, settings.draft.kv_type_k) == ("q8_0", "f16")


def test_settings_keep_what_they_were_given() -> None:
    base = EngineSettings(n_batch=1024, threads=3)
    settings = to_settings(put(24, 4096), base)
    assert (settings.n_ctx, settings.n_batch, settings.threads) == (4096, 1024, 3)
    assert (settings.target.gpu_layers, settings.draft.gpu_layers) == (-1, -1)


@pytest.mark.parametrize("draft", [None, DRAFT])
@given(
    vram=st.floats(0, 30),
    ram=st.floats(0.1, 40),
    ctx=st.none() | st.integers(32, 60_000),
    moe=st.booleans(),
)
def test_whatever_fits_stays_in_its_budget(
    draft: Need | None, vram: float, ram: float, ctx: int | None, moe: bool
) -> None:
    budget = Budget(int(vram * GIB), int(ram * GIB))
    found = place(EXPERTS if moe else TARGET, draft, budget, ctx)
    assert ctx is None or found.ctx == ctx
    if found.fits:
        assert found.device <= budget.device
        assert found.host <= budget.host
        assert to_settings(found).n_ctx == found.ctx
    else:
        assert "smaller quant" in found.decisions[-1]
    if draft is not None and found.draft is None:
        assert not found.fits or any("draft left out" in text for text in found.decisions)
