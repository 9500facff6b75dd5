"""docs/catalogue.md compares estimates with measured rows: the estimates are what the code says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from specctl.plan.budget import Budget, fit, usable_context
from specctl.plan.catalog import Catalog, Selection, load
from specctl.plan.held import held_parts
from specctl.plan.outlook import outlook
from specctl.plan.speed import Pace
from specctl.units import GIB

DOCS = Path(__file__).parents[2] / "docs" / "catalogue.md"
RTX_4080, RTX_5060_TI = 717e9, 448e9

# row in the docs, model, quant, method, k, card, context, GiB, has a plain range in the cell
ROWS = (
    ("27B UD-IQ3_XXS, plain, 19 K", "qwen3.5-27b", "UD-IQ3_XXS", "none", 0, RTX_4080, 19456, 14.8),
    ("the same at 64 K", "qwen3.5-27b", "UD-IQ3_XXS", "none", 0, RTX_4080, 65536, 20),
    ("MTP n-max 1", "qwen3.6-27b", "UD-IQ3_XXS", "draft-mtp", 1, RTX_4080, 8192, 14.8),
    ("the same, n-max 2", "qwen3.6-27b", "UD-IQ3_XXS", "draft-mtp", 2, RTX_4080, 8192, 14.8),
    ("A3B UD-IQ3_S, plain", "qwen3.5-35b-a3b", "UD-IQ3_S", "none", 0, RTX_4080, 19456, 14.8),
    ("UD-IQ3_S, lowest MTP", "qwen3.6-35b-a3b", "UD-IQ3_S", "draft-mtp", 1, RTX_4080, 8192, 14.8),
    ("122B UD-IQ3_XXS", "qwen3.5-122b-a10b", "UD-IQ3_XXS", "none", 0, RTX_4080, 19456, 15.5),
    ("gpt-oss-20b", "gpt-oss-20b", "Q4_K_M", "none", 0, RTX_4080, 8192, 15.5),
    ("LFM2.5-1.2B", "lfm2.5-1.2b-instruct", "Q4_K_M", "none", 0, RTX_4080, 8192, 15.5),
    ("27B UD-IQ4_XS, MTP", "qwen3.8-27b", "UD-IQ4_XS", "draft-mtp", 2, RTX_5060_TI, 8192, 15.5),
    ("IQ3, ngram-mod", "qwen3.6-27b", "UD-IQ3_XXS", "ngram-mod", 8, RTX_5060_TI, 8192, 15.5),
)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load(Path("/nonexistent"))


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_estimates_are_what_the_code_says(catalog: Catalog, row: tuple[object, ...]) -> None:
    said, model_id, quant, method, k, bandwidth, ctx, gib = row
    line = next(
        line
        for line in DOCS.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and str(said) in line.split("|")[1]
    )
    cell = line.split("|")[3]
    selection = _selection(catalog, str(model_id), str(quant), str(method), int(str(k)))
    pace = Pace("gpu", float(str(bandwidth)), "data sheet")
    ram = Pace("cpu", 89.6e9, "two channels of DDR5-5600")
    budget = Budget(round(float(str(gib)) * GIB), 64 * GIB, pace, ram, "", "", "")
    target, draft = held_parts(selection)
    found = fit(budget, target, draft, int(str(ctx)), "f16")
    assert found.fits
    expected = outlook(catalog, selection, budget, "chat", found)
    assert expected is not None
    shown = expected.prediction.plain if method == "none" else expected.prediction.spec
    low, high = re.findall(r"(\d+)–(\d+)", cell)[-1]
    assert (int(low), int(high)) == (round(shown[0]), round(shown[1]))
    promised = re.search(r"(\d+) K", cell)
    if promised:
        longest = usable_context(budget, target, draft, 1024, "f16", found)
        assert int(promised[1]) == pytest.approx(longest / 1000, abs=3)


def _selection(catalog: Catalog, model_id: str, quant: str, method: str, k: int) -> Selection:
    model = catalog.get(model_id)
    assert model is not None
    drafts = [draft for draft in model.drafts if draft.method == method]
    ready = [one for one in drafts if one.embedded or (one.file and one.file.size)]
    draft = replace(ready[0], k=k) if ready else None
    file = model.file(quant, mtp=draft is not None and draft.embedded)
    assert file is not None
    return Selection(model, file, method, draft, None, draft.file if draft else None)
