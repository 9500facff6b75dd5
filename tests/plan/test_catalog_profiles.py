"""The profiles that come with specctl: valid, sourced, and honest about what is exact."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from specctl.errors import UsageError
from specctl.plan.catalog import Catalog, load
from specctl.plan.profile import read_profile
from specctl.settings import DraftSettings

NAMED_SOURCE = re.compile(r"^(https://|llama\.cpp b\d+ |[A-Z][\w-]+ .*(issue|PR) \d+|specctl, )")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load()


DOCS = Path(__file__).parents[2] / "docs" / "catalogue.md"


def test_it_holds_what_the_docs_say(catalog: Catalog) -> None:
    files = [file for model in catalog for file in model.files]
    rows = [row for model in catalog for row in model.evidence]
    trusts = [sum(row.trust == trust for row in rows) for trust in "HML"]
    exact, unsized = sum(f.exact for f in files), sum(f.size is None for f in files)
    sentence = (
        f"{len(catalog.models)} models, {len(files)} files ({exact} with exact byte counts,"
        f" {len(files) - exact - unsized} approximate, {unsized} of unknown size;"
        f" {sum(bool(f.sha256) for f in files)} with sha256),"
        f" {sum(len(m.drafts) for m in catalog)} draft links, {len(rows)} evidence rows"
        f" ({trusts[0]} H, {trusts[1]} M, {trusts[2]} L)"
    )
    assert len({model.id for model in catalog}) == len(catalog.models)
    assert sentence in DOCS.read_text(encoding="utf-8")


def test_the_example_of_the_docs_is_a_profile(tmp_path: Path) -> None:
    match = re.search(r"```toml\n(.+?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert match
    path = tmp_path / "own.toml"
    path.write_text(match[1].replace('successor = "other-id"', ""), encoding="utf-8")
    model = load(tmp_path).get("my-coder")
    assert model is not None
    assert len(model.files) == 2
    assert load(tmp_path).select("my-coder:Q4_K_M+draft-simple").draft_file is not None


def test_the_quant_table_of_the_docs_is_the_code() -> None:
    from specctl.plan.quality import penalty

    text = DOCS.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z0-9_, ]+) \| ([\d.]+) \|$", text, re.MULTILINE)
    assert len(rows) == 6
    for quants, off in rows:
        for quant in quants.split(", "):
            assert penalty(quant) == penalty("UD-" + quant) == float(off), quant


def test_loading_is_quick() -> None:
    from specctl.plan import catalog as module

    module._built_in.cache_clear()
    start = time.process_time()
    load()
    assert time.process_time() - start < 0.3


def test_every_evidence_row_has_a_source_and_unnamed_ones_low_trust(catalog: Catalog) -> None:
    for model in catalog:
        for row in model.evidence:
            if row.source == "third-party listing":
                assert row.trust == "L", (model.id, row)
            else:
                assert NAMED_SOURCE.match(row.source), (model.id, row.source)


def test_no_profile_names_things_by_a_private_number() -> None:
    from importlib import resources

    for entry in resources.files("specctl.profiles").iterdir():
        if entry.name.endswith(".toml"):
            text = entry.read_text(encoding="utf-8")
            assert "public text" not in text, entry.name
            assert not re.search(r"\bS\d{1,2}[:/ ]", text), entry.name


def test_files_are_addressable_and_sizes_plausible(catalog: Catalog) -> None:
    for model in catalog:
        for file in model.files:
            assert file.repo is not None
            assert file.repo.count("/") == 1
            assert all(name.endswith(".gguf") for name in file.names)
            assert file.exact <= (file.size is not None)
            if file.size is not None:
                bits = file.size * 8 / (model.params * 1e9)
                assert 1.2 < bits < 18, (model.id, file.quant, bits)


def test_shapes_are_whole(catalog: Catalog) -> None:
    for model in catalog:
        shape = model.shape
        if shape is None:
            continue
        counted = shape.n_attention + shape.n_swa + shape.n_recurrent
        assert 0 < counted <= shape.n_layer, model.id
        assert set(model.approximate) <= set(shape.__dataclass_fields__), model.id
        assert (shape.n_expert > 0) == (shape.n_expert_used > 0), model.id
        assert shape.is_hybrid == (shape.recurrent_bytes > 0), model.id
        assert (shape.n_swa > 0) == (shape.window > 0), model.id


def test_quality_follows_its_stated_rule(catalog: Catalog) -> None:
    """`derived: log2(27.8) + 1 (2026) = 5.8`: the class is that number's, the number is right."""
    from math import log2, sqrt

    for model in catalog:
        match = re.fullmatch(
            r"derived: log2\((?:sqrt\(([\d.]+) x ([\d.]+)\)|([\d.]+))\)"
            r" \+ ([\d.]+) \((\d+)\) = (-?[\d.]+)",
            model.quality_source,
        )
        assert match, model.id
        total, active, dense, bonus, year, score = match.groups()
        size = sqrt(float(total) * float(active)) if total else float(dense)
        expected = log2(size) + float(bonus)
        assert expected == pytest.approx(float(score), abs=0.051)
        assert float(bonus) == {"2024": 0, "2025": 0.5, "2026": 1}[year]
        assert model.released.startswith(year)
        steps = (2.0, 3.3, 4.5, 5.6)
        assert model.quality == 1 + sum(expected >= step for step in steps), model.id


def test_draft_advice_is_something_the_engine_takes(catalog: Catalog) -> None:
    for model in catalog:
        for draft in model.drafts:
            DraftSettings(n_max=draft.k or 3, p_min=draft.p_min)
            if draft.method == "draft-simple" and draft.model:
                assert catalog.drafted(model, model.files[0], draft), (model.id, draft)


def test_same_file_name_in_two_repositories_is_told_apart(catalog: Catalog) -> None:
    model = catalog.get("qwen3.6-27b")
    assert model is not None
    plain, mtp = model.file("Q4_K_M"), model.file("Q4_K_M", mtp=True)
    assert plain
    assert mtp
    assert plain.names == mtp.names
    assert plain.repo != mtp.repo
    assert (plain.size, mtp.size) == (16817244384, 17106773120)
    shapes = model.shape_of(plain), model.shape_of(mtp)
    assert [shape and shape.n_nextn for shape in shapes] == [0, 1]


def test_split_files_are_one_file(catalog: Catalog) -> None:
    file = catalog.select("qwen3-coder-next:Q4_K_M").file
    assert len(file.names) == len(file.sha256) == 4
    assert file.size == 48410992032


def test_a_name_selects_the_whole_pair(catalog: Catalog) -> None:
    one = catalog.select("qwen2.5-coder-7b-instruct:Q4_K_M+draft-simple")
    assert one.draft_model is not None
    assert one.draft_model.id == "qwen2.5-coder-0.5b-instruct"
    assert [file.names[0] for file in one.files] == [
        "qwen2.5-coder-7b-instruct-q4_k_m.gguf",
        "qwen2.5-coder-0.5b-instruct-q8_0.gguf",
    ]
    assert catalog.select(one.name) == one
    embedded = catalog.select("qwen3.6-27b:Q4_K_M+draft-mtp")
    assert embedded.file.mtp
    assert len(embedded.files) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("qwen9", "no profile 'qwen9'"),
        ("qwen3-8b:Q9", "no quant 'Q9'"),
        ("qwen3-8b+magic", "'magic' is not a drafting method"),
        ("phi-4+draft-simple", "phi-4 has no ready file for draft-simple"),
        ("llama-4-scout-17b-16e", "no complete file"),
        ("", "no profile ''"),
    ],
)
def test_a_wrong_name_says_what_there_is(catalog: Catalog, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        catalog.select(name)
    assert caught.value.hint


def test_every_built_in_profile_reads_alone() -> None:
    from importlib import resources

    for entry in resources.files("specctl.profiles").iterdir():
        if entry.name.endswith(".toml"):
            assert read_profile(Path(str(entry)))


@pytest.mark.native
def test_the_installed_engine_knows_every_architecture(catalog: Catalog) -> None:
    from specctl.enginefacts import EngineFacts
    from specctl.hardware.engineprobe import probe_engine

    facts = probe_engine()
    if not isinstance(facts, EngineFacts) or facts.architectures is None:
        pytest.skip("no engine that lists its architectures")
    named = {model.shape.arch for model in catalog if model.shape}
    assert named <= facts.architectures
