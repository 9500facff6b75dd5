"""What `recommend` must never get wrong, whatever the numbers: fit, context, class, filters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recommend_kit import MACHINES, SIZES, cpu_budget, gpu_budget

from specctl.enginefacts import ASSISTANT_TARGET, MTP_ARCHES
from specctl.errors import UsageError
from specctl.gguf.arches import ROLLBACK
from specctl.plan.acceptance import expected_gain
from specctl.plan.candidates import SLOW, Configuration, Wish
from specctl.plan.catalog import Catalog
from specctl.plan.explain import pull_command, run_command
from specctl.plan.held import held_parts
from specctl.plan.memory import estimate
from specctl.plan.profile import IN_PROCESS
from specctl.plan.recommend import Recommendation, recommend
from specctl.plan.speed import Pace, middle
from specctl.units import GIB


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
            assert one.model.shape.arch in MTP_ARCHES | {ASSISTANT_TARGET}
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
