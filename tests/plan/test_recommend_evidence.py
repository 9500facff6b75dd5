"""What the evidence says against drafting shapes the answer; made-up models and machines."""

from __future__ import annotations

import re
from dataclasses import replace

from recommend_kit import cpu_budget, gpu_budget

from specctl.gguf.shape import Shape
from specctl.hardware.bandwidth import median_bandwidth
from specctl.plan.acceptance import expected_acceptance, expected_gain
from specctl.plan.budget import SPLIT
from specctl.plan.candidates import Wish
from specctl.plan.catalog import Catalog, load
from specctl.plan.explain import evidence_lines, run_command
from specctl.plan.memory import estimate
from specctl.plan.profile import Draft, Model, ModelFile
from specctl.plan.recommend import Recommendation, recommend
from specctl.plan.speed import middle
from specctl.units import GIB

# ---------------------------------------------------------------- honest negatives of the evidence


def test_negatives_shape_the_answer(catalog: Catalog) -> None:
    """EAGLE-3 is not proposed; DFlash on 35B-A3B is not; MTP of hybrids on a CPU is not."""
    for budget in (gpu_budget(24), gpu_budget(80), cpu_budget(64)):
        result = recommend(catalog, budget, Wish(), top=200)
        for one in (*result.ranked, *result.elsewhere):
            assert one.method != "draft-eagle3"
            assert (one.model.id, one.method) != ("qwen3.6-35b-a3b", "draft-dflash")
            hybrid = one.model.shape is not None and one.model.shape.is_hybrid
            assert not (budget.gpu is None and hybrid and one.method == "draft-mtp")
    reasons = {r.name: r.reason for r in recommend(catalog, gpu_budget(24), Wish()).all_refused}
    moe = next(reason for name, reason in reasons.items() if name.startswith("Gemma 4 26B-A4B"))
    assert moe.startswith("too little gain to expect: ≈")


def test_a_measured_loss_predicts_a_loss(catalog: Catalog) -> None:
    model = catalog.get("qwen3.6-35b-a3b")
    dense = catalog.get("qwen3.8-27b")
    assert model
    assert dense
    dflash = expected_gain(catalog, model, "draft-dflash", "gpu", "chat")
    mtp = expected_gain(catalog, dense, "draft-mtp", "gpu", "chat")
    on_cpu = expected_gain(catalog, dense, "draft-mtp", "cpu", "chat")
    assert dflash
    assert mtp
    assert on_cpu
    assert middle(dflash.span) < 1 < mtp.span[0]
    assert on_cpu.span == (0.43, 0.56)


def test_moe_rows_of_another_device_beat_the_formula(catalog: Catalog) -> None:
    """No Apple row for it: the GPU's "1.0" counts, not an acceptance rate that looks promising."""
    model = catalog.get("gemma-4-26b-a4b-it")
    assert model
    gain = expected_gain(catalog, model, "draft-mtp", "apple", "chat")
    assert gain
    assert middle(gain.span) < 1.1


def test_acceptance_says_where_it_is_from(catalog: Catalog) -> None:
    coder, other = catalog.get("qwen2.5-coder-1.5b-instruct"), catalog.get("qwen3-8b")
    assert coder
    assert other
    own = expected_acceptance(catalog, coder, "draft-simple", "chat")
    guide = expected_acceptance(catalog, other, "draft-simple", "chat")
    assert own
    assert guide
    assert "1 measured row of Qwen2.5-Coder" in own.source
    assert "stated without setup" in guide.source
    assert 0 < guide.span[0] < guide.span[1] < 1


def test_context_left_is_a_reason_in_12_gib(catalog: Catalog) -> None:
    refused = recommend(catalog, gpu_budget(12), Wish(), top=5).all_refused
    reasons = [r.reason for r in refused if r.name.endswith("draft-dflash")]
    assert any(
        re.fullmatch(
            r"at most \d+ K of context fit with it, \d+ K without; .* from 16 K up", reason
        )
        for reason in reasons
    )


# ---------------------------------------------------------------- made-up models


DENSE = Shape("llama", 32, 4096, 32, 32000, 32768, 1024, 1024, 32, n_ff=14336)


def made_up(size: float, shape: Shape = DENSE, **changes: object) -> Model:
    file = ModelFile("Q4_K_M", ("m.gguf",), "me/m", size=round(size * GIB), exact=True)
    model = Model(
        id="target", name="Target", family="made", licence="mit", params=8.0, params_active=8.0,
        role="target", released="2026", quality=3, quality_source="test", origin="test",
        shape=shape, files=(file,),
    )  # fmt: skip
    return replace(model, **changes)  # type: ignore[arg-type]


def small(size: float) -> Model:
    shape = Shape("llama", 16, 2048, 16, 32000, 32768, 512, 512, 16, n_ff=5632)
    return replace(made_up(size, shape), id="small", name="Small", role="draft", params=1.0)


DRAFT = Draft("draft-simple", "measured", "test", model="small", quant="Q4_K_M", k=4)


def test_the_draft_is_given_up_before_the_context_with_the_sum() -> None:
    """A target that just fits, a draft that does not fit beside it: n-grams at full context."""
    use = "code"  # where n-grams gain enough
    catalog = Catalog((made_up(5.5, drafts=(DRAFT,)), small(0.9)))
    result = recommend(catalog, gpu_budget(8), Wish(ctx=8192, use=use))
    assert [one.method for one in result.ranked] == ["ngram-mod", "none"]
    assert all(one.usable_ctx >= 8192 for one in result.ranked)
    (refusal,) = [r for r in result.all_refused if "draft-simple" in r.name]
    needed = estimate(DENSE, round(5.5 * GIB), 8192, outputs=9).device
    assert f"of {7.5:.1f} GiB" in refusal.reason
    assert needed < 7.5 * GIB < needed + 0.9 * GIB
    roomy = recommend(catalog, gpu_budget(12), Wish(ctx=8192))
    assert "draft-simple" in {one.method for one in roomy.ranked}


def test_a_dense_draft_for_a_wide_moe_ranks_below_none() -> None:
    """512 experts, 10 used, and a 9B draft: verifying reads many more experts, drafting much."""
    shape = replace(DENSE, n_expert=512, n_expert_used=10, n_ff_exp=512)
    target = made_up(8, shape, params=30.0, params_active=3.0, drafts=(DRAFT,))
    result = recommend(Catalog((target, small(5))), gpu_budget(24), Wish(), top=10)
    assert "draft-simple" not in {one.method for one in result.ranked}
    (refusal,) = [r for r in result.all_refused if "draft-simple" in r.name]
    assert "more experts" in refusal.reason


def test_experts_go_to_ram_before_a_class_is_lost() -> None:
    shape = replace(DENSE, n_expert=128, n_expert_used=8, n_ff_exp=768)
    target = made_up(18, shape, params=30.0, params_active=3.0)
    result = recommend(Catalog((target,)), gpu_budget(8), Wish())
    best = result.ranked[0]
    assert best.fit.place == SPLIT
    assert 0 < best.fit.cpu_moe <= shape.n_layer
    assert f"--n-cpu-moe {best.fit.cpu_moe}" in run_command(best, 8192)
    assert best.fit.gpu <= (result.budget.gpu or 0)
    alone = recommend(Catalog((target,)), gpu_budget(8, ram=GIB), Wish())
    assert alone.ranked == ()


def test_draft_kv_stays_f16_when_the_targets_is_quantised() -> None:
    catalog = Catalog((made_up(5.5, drafts=(DRAFT,)), small(0.3)))
    result = recommend(catalog, gpu_budget(8.45), Wish(ctx=16384), top=10)
    pairs = [one for one in result.ranked if one.method == "draft-simple"]
    assert [one.kv_type for one in pairs] == ["q8_0"]
    draft_kv = {name: gpu for name, gpu, _ in pairs[0].fit.parts}["draft kv"]
    assert draft_kv == 16 * 16384 * (512 + 512) * 2


def test_a_pair_that_nobody_tested_is_not_recommended() -> None:
    untested = replace(DRAFT, status="same family unmeasured")
    result = recommend(
        Catalog((made_up(4, drafts=(untested,)), small(0.5))), gpu_budget(12), Wish()
    )
    assert {one.method for one in result.ranked} == {"none"}
    (refusal,) = [r for r in result.all_refused if "draft-simple" in r.name]
    assert "specctl check" in refusal.reason
    same_vocab = replace(DRAFT, status="same vocab unmeasured")
    result = recommend(
        Catalog((made_up(4, drafts=(same_vocab,)), small(0.5))), gpu_budget(12), Wish()
    )
    (pair,) = [one for one in result.ranked if one.method == "draft-simple"]
    assert any("nobody measured it" in note for note in pair.notes)


def test_a_gpu_of_unknown_size_is_asked_for() -> None:
    from specctl.hardware.device import Device
    from specctl.hardware.machine import take_snapshot
    from specctl.plan.budget import plan_budget

    budget = plan_budget(take_snapshot(), Device("intel", 0, "Arc of unknown size"))
    assert budget.gpu is None
    assert "--vram" in budget.gpu_words


def test_memory_of_two_gpus_is_not_added() -> None:
    from specctl.hardware.budget import primary_device
    from specctl.hardware.device import Device
    from specctl.hardware.machine import take_snapshot
    from specctl.plan.budget import plan_budget

    cards = tuple(
        Device("nvidia", index, name, memory_total=size * GIB, memory_free=size * GIB)
        for index, (name, size) in enumerate((("NVIDIA GeForce RTX 4090", 24), ("Small", 8)))
    )
    machine = replace(take_snapshot(), devices=cards)
    budget = plan_budget(machine, primary_device(machine))
    assert budget.name == "NVIDIA GeForce RTX 4090"
    assert budget.gpu is not None
    assert budget.gpu < 24 * GIB


def test_a_card_of_unknown_speed_names_the_median_it_was_given() -> None:
    from specctl.hardware.device import Device
    from specctl.hardware.machine import take_snapshot
    from specctl.plan.budget import plan_budget

    card = Device("gpu", 0, "a card", memory_total=16 * GIB, memory_free=16 * GIB)
    budget = plan_budget(take_snapshot(), card)
    assert budget.gpu_pace is not None
    assert "the median of" in budget.gpu_pace.source
    assert budget.gpu_pace.bandwidth == median_bandwidth(16 * GIB)[0]


def test_evidence_is_shown_beside_the_estimate(answers: dict[object, Recommendation]) -> None:
    rows = recommend(load(), gpu_budget(24), Wish(method="draft-mtp")).ranked
    mtp = rows[0]
    lines = evidence_lines(mtp, answers[24])
    assert lines
    assert all("[H]" in line or "[M]" in line or "[L]" in line for line in lines)
