"""What a drafter's row holds and runs: heads, files of their own, snapshots of a state, K."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from recommend_kit import gpu_budget

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "gguf")]

import gguf_families as families  # noqa: E402

from specctl.enginefacts import BLOCK_BATCH, EAGLE3_BATCH  # noqa: E402
from specctl.external.wish import Options, make_wish  # noqa: E402
from specctl.gguf.arches import ROLLBACK  # noqa: E402
from specctl.gguf.facts import read_facts  # noqa: E402
from specctl.gguf.weights import spread_evenly  # noqa: E402
from specctl.llama.eagle3 import BATCH  # noqa: E402
from specctl.plan.budget import fit  # noqa: E402
from specctl.plan.candidates import Configuration, Wish, configurations  # noqa: E402
from specctl.plan.catalog import Catalog  # noqa: E402
from specctl.plan.explain import as_json, k_words, run_command  # noqa: E402
from specctl.plan.held import held_parts  # noqa: E402
from specctl.plan.memory import estimate, most_kept  # noqa: E402
from specctl.plan.outlook import (  # noqa: E402
    block_rows,
    default_k,
    draft_length,
    draft_loads,
    outlook,
    snapshot_limit,
    target_loads,
)
from specctl.plan.recommend import recommend  # noqa: E402
from specctl.plan.speed import pass_seconds  # noqa: E402
from specctl.units import MIB  # noqa: E402


def test_mtp_heads_run_in_chat_in_the_targets_file_or_their_own(catalog: Catalog) -> None:
    """Gemma 4's assistants read the target's cache: they cost their weights and little else."""
    result = recommend(catalog, gpu_budget(24), Wish(method="draft-mtp"), top=50)
    ids = {one.model.id for one in result.ranked}
    assert {"qwen3.5-4b", "qwen3.6-35b-a3b", "qwen3.8-27b", "gemma-4-31b-it"} <= ids
    for one in result.ranked:
        own, assistant = one.selection.draft_file is not None, one.model.family == "gemma4"
        assert own == (assistant or one.model.id == "qwen3.8-27b")
        parts = {name: on_gpu + on_host for name, on_gpu, on_host in one.fit.parts}
        named = {"draft mtp", "draft weights"} if own else {"mtp"}
        assert named | (set() if assistant else {"recurrent", "snapshots"}) <= set(parts)
        assert not assistant or parts["draft mtp"] < 100 * MIB
    assert not result.elsewhere
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


def test_a_block_draft_is_for_chat_where_the_target_gives_its_layers(catalog: Catalog) -> None:
    """As the engine opens it: micro-batches of a block at most, layers by the size of its file."""
    selection = catalog.select("muse-glimmer-30b:Q4_K_M+draft-dflash")
    assert selection.in_process
    target, draft = held_parts(selection)
    assert draft is not None
    assert (draft.encoder, draft.ubatch) == (True, BLOCK_BATCH)
    assert target.rows == selection.draft.k + 1
    per_layer = selection.file.size / selection.model.shape.n_layer
    assert draft.shape.n_layer == round(selection.draft_file.size / per_layer) > 1
    long = held_parts(replace(selection, k=40))[1]
    assert long is not None
    assert long.ubatch == 41
    deaf = replace(selection.model, shape=replace(selection.model.shape, arch="gemma2"))
    assert not replace(selection, model=deaf).in_process
    second = catalog.select("qwen3.8-27b:Q4_K_M+draft-dflash")  # DFlash2, by its file's name
    assert not second.in_process
    rows = recommend(catalog, gpu_budget(24), Wish(method="draft-dflash"), top=50)
    assert {one.model.id for one in rows.ranked} >= {"muse-glimmer-30b"}
    assert "qwen3.8-27b" not in {one.model.id for one in rows.ranked}
    for one in rows.ranked:
        assert f"--spec-type draft-dflash --k {one.prediction.k}" in run_command(one, 8192)
        assert any("tiny models only" in note for note in one.notes)


def test_a_block_draft_is_priced_as_the_block_that_runs(catalog: Catalog) -> None:
    """Its file and the target's output tensor, all its layers, and the same rows for any length."""
    selection = catalog.select("muse-glimmer-30b:Q4_K_M+draft-dflash")
    shape, file = selection.model.shape, selection.draft_file
    assert shape is not None
    assert file is not None
    assert file.size is not None
    budget = gpu_budget(48)
    found = fit(budget, *held_parts(selection), 8192, "f16")
    ((load, _),) = draft_loads(selection, budget, found)
    assert load.dense == file.size + shape.n_vocab * shape.n_embd * 210 / 256
    draft = held_parts(selection)[1]
    assert draft is not None
    assert load.n_layer == draft.shape.n_layer > 1
    rows = block_rows(selection, 7)
    assert rows is not None
    assert [rows(n) for n in (1, 7)] == [16, 16]
    longer = block_rows(selection, 40)
    assert longer is not None
    assert longer(3) == 41
    server = block_rows(catalog.select("qwen3.8-27b:Q4_K_M+draft-dflash"), 7)
    assert server is not None
    assert [server(n) for n in (1, 7)] == [2, 8]
    assert block_rows(catalog.select("qwen3.6-27b:Q4_K_M+draft-mtp"), 3) is None
    row = next(
        one
        for one in configurations(catalog, selection.model, budget, Wish())
        if isinstance(one, Configuration) and one.method == "draft-dflash"
    )
    assert any("output tensor" in one and "block of 16" in one for one in row.notes)


def test_a_longer_draft_of_a_block_costs_no_more_drafting(catalog: Catalog) -> None:
    """What differs between K 1 and 7 is the target's rows: break-even grows by those alone."""
    selection = catalog.select("muse-glimmer-30b:Q4_K_M+draft-dflash")
    budget = gpu_budget(48)
    found = fit(budget, *held_parts(selection), 8192, "f16")
    short, long = (outlook(catalog, replace(selection, k=k), budget, "chat", found) for k in (1, 7))
    assert short is not None
    assert long is not None
    apart = long.prediction.break_even[0] - short.prediction.break_even[0]
    target = target_loads(selection.model, selection.file, budget, found)
    one, two, eight = (pass_seconds(target, n)[0] for n in (1, 2, 8))
    assert apart == pytest.approx((eight - two) / one)


def test_heads_that_are_not_loaded_hold_no_snapshots(catalog: Catalog) -> None:
    """As `place` counts a header's weights: MTP layers of a file count where they are loaded."""
    heads = catalog.select("qwen3.6-35b-a3b+draft-mtp")
    assert heads.file.mtp
    loaded, alone = (
        snapshot_limit(heads),
        snapshot_limit(replace(heads, method="draft-simple", draft=None)),
    )
    shape = heads.model.shape_of(heads.file)
    assert shape is not None
    assert heads.file.size is not None
    assert loaded == most_kept(shape, heads.file.size, mtp=True)
    n_layer = shape.n_layer + shape.n_nextn
    split = spread_evenly(heads.file.size, n_layer, shape.n_embd, shape.n_vocab)
    assert alone == most_kept(shape, split)
    assert loaded is not None
    assert alone is not None
    assert loaded > alone
    assert snapshot_limit(replace(heads, method="ngram-mod", draft=None)) == loaded


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


@pytest.mark.parametrize(
    "name",
    [
        "qwen3-8b:Q4_K_M+draft-simple",
        "qwen3.6-27b:Q4_K_M+draft-mtp",
        "qwen3.8-27b:UD-IQ3_S+draft-dflash",
        "gemma-4-e4b-it:Q4_K_M+draft-mtp",
    ],
)
def test_k_is_the_same_wherever_a_configuration_is_named(catalog: Catalog, name: str) -> None:
    selection = catalog.select(name)
    k, why = default_k(selection)
    assert k == make_wish("llama-server", name, Options(), catalog).k == draft_length(selection)
    assert "the profile's advice" in why
    rows = [
        one
        for one in configurations(catalog, selection.model, gpu_budget(48), Wish())
        if isinstance(one, Configuration) and one.method == selection.method
    ]
    assert {one.prediction.k for one in rows} == {k}
    for one in rows:
        assert k_words(one).startswith(f"K {k}: {why}; ")


def test_the_best_k_of_the_estimate_is_named_beside_the_advice(catalog: Catalog) -> None:
    model = catalog.get("qwen3-8b")
    assert model is not None
    (one,) = (
        row
        for row in configurations(catalog, model, gpu_budget(16), Wish())
        if isinstance(row, Configuration) and row.method == "draft-simple"
    )
    assert one.best_k not in (None, 0, one.prediction.k)
    assert k_words(one).endswith(f"; best by this estimate: K {one.best_k}")
    assert k_words(replace(one, best_k=one.prediction.k)).endswith("tells a K")


def test_measured_rows_that_used_a_k_are_named(catalog: Catalog) -> None:
    model = catalog.get("qwen3.8-27b")
    assert model is not None
    ks = sorted({row.k for row in model.evidence if row.method == "draft-mtp" and row.k})
    one = next(
        row
        for row in configurations(catalog, model, gpu_budget(24), Wish())
        if isinstance(row, Configuration) and row.method == "draft-mtp"
    )
    assert f"its measured rows used {', '.join(map(str, ks))}" in k_words(one)
