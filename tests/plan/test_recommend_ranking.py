"""What `recommend` must never get wrong, whatever the numbers: fit, context, class, honesty."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "gguf")]

import gguf_families as families  # noqa: E402

from specctl.enginefacts import EAGLE3_BATCH, MTP_ARCHES  # noqa: E402
from specctl.errors import UsageError  # noqa: E402
from specctl.gguf.arches import ROLLBACK  # noqa: E402
from specctl.gguf.facts import read_facts  # noqa: E402
from specctl.gguf.shape import Shape  # noqa: E402
from specctl.hardware.bandwidth import median_bandwidth  # noqa: E402
from specctl.llama.eagle3 import BATCH  # noqa: E402
from specctl.plan.acceptance import expected_acceptance, expected_gain  # noqa: E402
from specctl.plan.budget import SPLIT, Budget  # noqa: E402
from specctl.plan.candidates import SLOW, Configuration, Wish, configurations  # noqa: E402
from specctl.plan.catalog import Catalog, load  # noqa: E402
from specctl.plan.explain import as_json, evidence_lines, pull_command, run_command  # noqa: E402
from specctl.plan.held import held_parts  # noqa: E402
from specctl.plan.memory import estimate  # noqa: E402
from specctl.plan.outlook import draft_length, snapshot_limit  # noqa: E402
from specctl.plan.profile import IN_PROCESS, Draft, Model, ModelFile  # noqa: E402
from specctl.plan.recommend import Recommendation, recommend  # noqa: E402
from specctl.plan.speed import Pace, middle  # noqa: E402
from specctl.units import GIB, MIB  # noqa: E402

SIZES = (4, 6, 8, 12, 16, 24, 32, 48, 80)
RAM = 20 * GIB


def gpu_budget(gib: float, ram: int = RAM) -> Budget:
    """A card of that size, 1/32 or 512 MiB of headroom, at the median bandwidth of its size."""
    size = round(gib * GIB)
    room = size - max(512 * MIB, size // 32)
    pace = Pace("gpu", *median_bandwidth(size))
    cpu = Pace("cpu", 51.2e9, "assumed")
    return Budget(room, ram, pace, cpu, "free", "available", f"a {gib} GiB card", True)


def cpu_budget(gib: float = 20) -> Budget:
    cpu = Pace("cpu", 51.2e9, "assumed")
    return Budget(None, round(gib * GIB), None, cpu, "no GPU", "available", "a CPU")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load(Path("/nonexistent"))


@pytest.fixture(scope="module")
def answers(catalog: Catalog) -> dict[object, Recommendation]:
    found: dict[object, Recommendation] = {
        size: recommend(catalog, gpu_budget(size), Wish()) for size in SIZES
    }
    found["cpu"] = recommend(catalog, cpu_budget(), Wish())
    return found


MACHINES = (*SIZES, "cpu")


@pytest.mark.parametrize("machine", MACHINES)
def test_at_least_five_and_in_order(answers: dict[object, Recommendation], machine: object) -> None:
    ranked = answers[machine].ranked
    assert len(ranked) >= 5
    assert len({one.model.id for one in ranked[:5]}) == 5
    assert [one.sort_key for one in ranked] == sorted(one.sort_key for one in ranked)
    slow = [one.prediction.typical < SLOW for one in ranked]
    assert slow == sorted(slow)


@pytest.mark.parametrize("machine", MACHINES)
def test_everything_fits_by_the_memory_model(
    answers: dict[object, Recommendation], machine: object
) -> None:
    """Asked anew of plan/memory.py, at the context asked and at the usable one."""
    result = answers[machine]
    for one in (*result.ranked, *result.elsewhere):
        for ctx in (result.wish.ctx, one.usable_ctx):
            gpu, ram = _bill(one, ctx)
            assert gpu <= (result.budget.gpu or 0)
            assert ram <= result.budget.ram
        assert one.usable_ctx >= result.wish.ctx


def _bill(one: Configuration, ctx: int) -> tuple[int, int]:
    target, draft = held_parts(one.selection)
    gpu = ram = 0
    for held, kv_type in ((target, one.kv_type), (draft, "f16")):
        if held is None:
            continue
        bill = estimate(
            held.shape,
            held.weights,
            ctx,
            kv_type,
            kv_type,
            outputs=held.rows,
            snapshots=held.snapshots,
            gpu_layers=0 if one.fit.place == "CPU" else -1,
            n_cpu_moe=one.fit.cpu_moe if held is target else 0,
            mtp=held.mtp,
            encoder=held.encoder,
            ubatch=held.ubatch,
            backend="cuda" if held is target else None,
        )
        gpu, ram = gpu + bill.device, ram + bill.host
    return gpu, ram


def test_more_memory_never_loses_the_top_class(answers: dict[object, Recommendation]) -> None:
    best = [answers[size].ranked[0].quality for size in SIZES]
    assert best == sorted(best)
    assert best[0] < best[-1]


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_is_claimed_for_chat_that_chat_cannot_run(
    answers: dict[object, Recommendation], machine: object
) -> None:
    result = answers[machine]
    for one in result.ranked:
        assert one.method in IN_PROCESS
        assert one.model.shape is not None
        command = run_command(one, 8192)
        assert command.startswith("specctl chat ")
        assert ("--spec-type draft-mtp" in command) == (one.method == "draft-mtp")
        if one.method == "draft-mtp":
            assert one.model.shape.arch in MTP_ARCHES
            assert one.selection.file.mtp or one.selection.draft_file is not None
            assert f"--model {one.selection.name} " in command
        if one.method == "draft-mtp" or (one.model.shape.is_hybrid and one.method != "none"):
            assert f"--k {one.prediction.k}" in command
            assert one.model.shape.arch in ROLLBACK or not one.model.shape.is_hybrid
    for one in result.elsewhere:
        assert not one.in_process
        assert run_command(one, 8192).startswith("llama-server ")


def test_what_chat_does_instead_of_ngram_mod_is_said(catalog: Catalog) -> None:
    rows = recommend(catalog, gpu_budget(16), Wish(method="ngram-mod", use="code")).ranked
    assert rows
    for one in rows:
        assert any("no evidence exists" in note for note in one.notes)
        assert "+" not in run_command(one, 8192)
        assert "ngram" not in pull_command(one)
        assert len(one.selection.files) == 1
    with pytest.raises(UsageError, match="nothing was measured that predicts auto"):
        recommend(catalog, gpu_budget(16), Wish(method="auto"))


def test_mtp_heads_run_in_chat_in_the_targets_file_or_their_own(catalog: Catalog) -> None:
    """Gemma 4's assistants share the target's cache: they are for llama-server."""
    result = recommend(catalog, gpu_budget(24), Wish(method="draft-mtp"), top=50)
    ids = {one.model.id for one in result.ranked}
    assert {"qwen3.5-4b", "qwen3.6-35b-a3b", "qwen3.8-27b"} <= ids
    for one in result.ranked:
        own = one.selection.draft_file is not None
        assert own == (one.model.id == "qwen3.8-27b")
        parts = {"draft mtp", "draft weights"} if own else {"mtp"}
        assert parts | {"recurrent", "snapshots"} <= {name for name, *_ in one.fit.parts}
    assert {one.model.family for one in result.elsewhere} == {"gemma4"}
    rows = as_json(result)
    assert {row["runs_in"] for row in rows["ranked"]} == {"specctl chat"}
    assert {row["runs_in"] for row in rows["llama_server"]} <= {"llama-server"}


def test_a_head_file_is_priced_as_its_header_would_be(catalog: Catalog, tmp_path: Path) -> None:
    """No trunk, one head, its own cache and compute buffer, for K + 1 rows."""
    selection = catalog.select("qwen3.8-27b:Q4_K_M+draft-mtp")
    assert selection.draft_file is not None
    target, head = held_parts(selection)
    assert head is not None
    assert (target.mtp, head.mtp, head.rows) == (False, True, draft_length(selection) + 1)
    read = read_facts(str(families.qwen35(tmp_path / "h.gguf", mtp=1, trunk=False))).shape
    trunk = ("n_layer", "n_nextn", "n_attention", "n_swa", "n_recurrent", "recurrent_bytes")
    for field in trunk:
        assert getattr(head.shape, field) == getattr(read, field), field
    assert head.weights == selection.draft_file.size


def test_an_eagle3_head_is_for_chat_where_the_target_gives_its_layers(catalog: Catalog) -> None:
    model = catalog.get("qwen3.6-27b")
    assert model is not None
    found = [
        one
        for one in configurations(catalog, model, gpu_budget(48), Wish())
        if isinstance(one, Configuration) and one.method == "draft-eagle3"
    ]
    assert found
    for one in found:
        assert one.in_process
        command = run_command(one, 8192)
        assert command.startswith(f"specctl chat --model {one.selection.name} ")
        assert "--spec-type draft-eagle3 --k 3" in command
        head = held_parts(one.selection)[1]
        assert head is not None
        assert (head.encoder, head.ubatch) == (True, EAGLE3_BATCH)
        assert {"draft weights", "draft kv", "draft compute"} <= {n for n, *_ in one.fit.parts}
        assert model.shape is not None
        other = replace(model, shape=replace(model.shape, arch="gemma2"))
        assert not replace(one.selection, model=other).in_process
    assert EAGLE3_BATCH == BATCH


def test_snapshots_of_a_state_are_counted_for_every_drafted_token(catalog: Catalog) -> None:
    selection = catalog.select("qwen3.6-27b:Q4_K_M+draft-mtp")
    target, draft = held_parts(selection)
    assert draft is None
    assert target.mtp
    assert target.snapshots == draft_length(selection) == target.rows - 1
    with_mtp, plain = (
        estimate(held.shape, held.weights, 8192, snapshots=held.snapshots, mtp=held.mtp)
        for held in (target, held_parts(catalog.select("qwen3.6-27b:Q4_K_M"))[0])
    )
    state = plain.part("recurrent").device
    assert with_mtp.part("recurrent").device == state
    assert with_mtp.part("snapshots").device == target.snapshots * state
    assert not plain.part("mtp").device
    assert with_mtp.part("mtp").device > 0
    assert with_mtp.part("weights").device > plain.part("weights").device


def test_drafts_are_no_longer_than_the_snapshots_the_engine_keeps(catalog: Catalog) -> None:
    selection = catalog.select("qwen3.6-27b:Q4_K_M")
    shape = selection.model.shape
    assert shape
    tiny = replace(selection.file, size=3 * 8 * shape.recurrent_bytes)  # an eighth: three states
    short = replace(selection, file=tiny, method="ngram-mod")
    assert snapshot_limit(short) == 2 == draft_length(short)
    assert draft_length(replace(selection, method="ngram-mod")) == 8


def test_a_state_without_snapshots_is_not_priced_for_drafting(catalog: Catalog) -> None:
    result = recommend(catalog, gpu_budget(80), Wish(method="ngram-mod", use="edit"), top=200)
    assert not any(o.model.shape and o.model.shape.arch == "qwen3next" for o in result.ranked)
    reasons = [r.reason for r in result.all_refused if r.name.startswith("Qwen3-Next")]
    assert any("second pass" in reason for reason in reasons)
    assert any(o.model.shape and o.model.shape.is_hybrid for o in result.ranked)


def test_plain_rows_of_hybrids_say_what_auto_would_keep(catalog: Catalog) -> None:
    rows = recommend(catalog, gpu_budget(24), Wish(method="none"), top=200).ranked
    hybrids = [one for one in rows if one.model.shape and one.model.shape.arch in ROLLBACK]
    assert hybrids
    for one in rows:
        said = any("snapshots of its recurrent state" in note for note in one.notes)
        assert said == (one in hybrids)


@pytest.mark.parametrize("ctx", [8192, 32768, 131072])
def test_the_context_asked_for_is_honoured(catalog: Catalog, ctx: int) -> None:
    result = recommend(catalog, gpu_budget(16), Wish(ctx=ctx), top=50)
    assert result.ranked
    for one in (*result.ranked, *result.elsewhere):
        assert one.usable_ctx >= ctx
        assert one.model.shape is not None
        assert one.model.shape.context_length >= ctx
        assert f"{ctx}" in run_command(one, result.wish.ctx)
    short = [r for r in result.all_refused if "tokens of context" in r.reason]
    assert bool(short) == (ctx > 8192)


def test_more_context_costs_memory_or_models(catalog: Catalog) -> None:
    """The same model at a longer context never takes a better quant."""
    short = recommend(catalog, gpu_budget(16), Wish(ctx=8192), top=200).ranked
    best = {one.model.id: max(o.quality for o in short if o.model is one.model) for one in short}
    for one in recommend(catalog, gpu_budget(16), Wish(ctx=65536), top=200).ranked:
        if one.model.id in best:
            assert one.quality <= best[one.model.id]


def test_filters(catalog: Catalog) -> None:
    budget = gpu_budget(24)
    mit = recommend(catalog, budget, Wish(licence="MIT"), top=50)
    assert {one.model.licence for one in (*mit.ranked, *mit.elsewhere)} == {"mit"}
    small = recommend(catalog, budget, Wish(max_download=3 * GIB), top=50)
    assert small.ranked
    assert all(one.download <= 3 * GIB for one in (*small.ranked, *small.elsewhere))
    drafts = recommend(catalog, budget, Wish(method="draft-simple"), top=50)
    assert drafts.ranked
    assert {one.method for one in drafts.ranked} == {"draft-simple"}
    assert not drafts.elsewhere or all(o.method == "draft-simple" for o in drafts.elsewhere)
    none = recommend(catalog, budget, Wish(method="none"), top=3)
    assert [one.method for one in none.ranked] == ["none"] * 3


def test_use_changes_the_answer(catalog: Catalog) -> None:
    """Creative text repeats nothing: no n-grams; code prefers coders; edits gain most."""
    creative = recommend(catalog, gpu_budget(24), Wish(use="creative"), top=20)
    assert "ngram-mod" not in {one.method for one in creative.ranked[:5]}
    code = recommend(catalog, gpu_budget(24), Wish(use="code"), top=20)
    chat = recommend(catalog, gpu_budget(24), Wish(use="chat"), top=20)
    rank = {
        name: [one.model.id for one in result.ranked].index("devstral-small-2-24b")
        for name, result in (("code", code), ("chat", chat))
    }
    assert rank["code"] < rank["chat"]
    edit = expected_gain(catalog, catalog.models[0], "ngram-mod", "gpu", "edit")
    talk = expected_gain(catalog, catalog.models[0], "ngram-mod", "gpu", "chat")
    assert edit
    assert talk
    assert middle(edit.span) > 1.3 > middle(talk.span)


@pytest.mark.parametrize(
    ("wish", "top", "message"),
    [
        (Wish(use="poetry"), 5, "'poetry' is not a use"),
        (Wish(method="magic"), 5, "'magic' is not a drafting method"),
        (Wish(licence="freeware"), 5, "no model has licence 'freeware'"),
        (Wish(ctx=10), 5, "a context of 10 tokens is too small"),
        (Wish(), 0, "--top 0 shows nothing"),
    ],
)
def test_wrong_wishes(catalog: Catalog, wish: Wish, top: int, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        recommend(catalog, gpu_budget(16), wish, top)
    assert caught.value.hint


def test_a_machine_too_slow_for_anything_ranks_by_speed(catalog: Catalog) -> None:
    crawl = replace(cpu_budget(), cpu_pace=Pace("cpu", 2e9, "a very slow machine"))
    ranked = recommend(catalog, crawl, Wish()).ranked
    assert all(one.slow for one in ranked[1:])
    speeds = [one.prediction.typical for one in ranked if one.slow]
    assert speeds == sorted(speeds, reverse=True)


def test_a_tiny_budget_gives_an_empty_answer_with_reasons(catalog: Catalog) -> None:
    result = recommend(catalog, cpu_budget(0.05), Wish())
    assert result.ranked == ()
    assert result.refused


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


def test_context_left_is_a_reason_in_16_gib(answers: dict[object, Recommendation]) -> None:
    reasons = [r.reason for r in answers[16].all_refused if r.name.endswith("draft-mtp")]
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
