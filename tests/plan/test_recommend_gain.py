"""When a drafter is part of a row: one rule for every method, said where it is not met."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specctl.plan.budget import Budget
from specctl.plan.candidates import Wish, least_context
from specctl.plan.catalog import Catalog, Selection, load
from specctl.plan.explain import run_command
from specctl.plan.profile import USES
from specctl.plan.recommend import LEAST_GAIN, LEAST_GAIN_ELSEWHERE, recommend
from specctl.plan.speed import Pace, middle
from specctl.units import GIB


def gpu_budget(gib: float) -> Budget:
    cpu, card = Pace("cpu", 51.2e9, "assumed"), Pace("gpu", 400e9, "assumed")
    return Budget(round(gib * GIB), 20 * GIB, card, cpu, "free", "available", "a card", True)


def cpu_budget(gib: float = 20) -> Budget:
    cpu = Pace("cpu", 51.2e9, "assumed")
    return Budget(None, round(gib * GIB), None, cpu, "no GPU", "available", "a CPU")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load(Path("/nonexistent"))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("machine", [4, 24, "cpu"])
def test_one_range_is_never_both_proposed_and_refused(
    catalog: Catalog, machine: float | str, use: str
) -> None:
    """The rule of the least gain holds for every method; nothing is refused that passes it."""
    budget = cpu_budget(64) if machine == "cpu" else gpu_budget(float(machine))
    result = recommend(catalog, budget, Wish(use=use), top=200)
    for rows, least in ((result.ranked, LEAST_GAIN), (result.elsewhere, LEAST_GAIN_ELSEWHERE)):
        drafted = [one for one in rows if one.method != "none"]
        assert all(middle(one.prediction.speedup) >= least for one in drafted)
    said = [re.search(r"≈([\d.]+) to ([\d.]+)-fold", r.reason) for r in result.all_refused]
    for low, high in (map(float, found.groups()) for found in said if found):
        assert middle((low, high)) < LEAST_GAIN_ELSEWHERE + 0.01
    if use == "chat":
        assert not any(one.method == "ngram-mod" for one in result.ranked)
        assert any("+ ngram-mod" in r.name and "1.05" in r.reason for r in result.all_refused)


def test_plain_rows_say_what_auto_does(catalog: Catalog) -> None:
    rows = recommend(catalog, gpu_budget(8), Wish(), top=20).ranked
    plain = [one for one in rows if one.method == "none"]
    plain = [one for one in plain if one.model.shape and not one.model.shape.is_hybrid]
    assert plain
    for one in plain:
        assert "--spec-type none" in run_command(one, 8192)
        assert any("runs `auto`" in note for note in one.notes)


def test_a_method_that_gains_too_little_says_so(catalog: Catalog) -> None:
    result = recommend(catalog, gpu_budget(16), Wish(method="ngram-mod"))
    assert result.ranked == ()
    assert result.refused
    assert all("+ ngram-mod" in one.name for one in result.refused)
    assert "too little gain" in result.refused[0].reason


def test_ten_names_with_one_reason_are_a_count(catalog: Catalog) -> None:
    result = recommend(catalog, cpu_budget(64), Wish(), top=30)
    (many,) = [r.name for r in result.refused if "1.05" in r.reason and "ngram" in r.name]
    assert re.fullmatch(r"\d\d models \+ ngram-mod", many)
    least = sum("1.05" in r.reason and "ngram-mod" in r.name for r in result.all_refused)
    assert 10 <= int(many.split()[0]) <= least


def test_sources_name_trust_in_words(catalog: Catalog) -> None:
    for use in USES:
        for machine in (cpu_budget(64), gpu_budget(24)):
            result = recommend(catalog, machine, Wish(use=use), top=50)
            for one in (*result.ranked, *result.elsewhere):
                assert not re.search(r"\([HML](/[HML])*\)", one.acceptance_source)
                if one.method != "none" and one.method != "ngram-mod":
                    assert "trust " in one.acceptance_source


@pytest.mark.parametrize("gib", [4, 6, 8, 12, 16, 24, 48])
def test_llama_server_is_proposed_only_with_the_context_that_is_said(
    catalog: Catalog, gib: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever specctl runs itself: here nothing, so that every drafter needs another engine."""
    monkeypatch.setattr(Selection, "in_process", property(lambda one: one.method == "none"))
    result = recommend(catalog, gpu_budget(gib), Wish(), top=50)
    for one in result.elsewhere:
        assert one.usable_ctx >= least_context(one.model)
    said = [one for one in result.all_refused if "llama-server is proposed from" in one.reason]
    for refusal in said:
        found = re.search(r"most (\d+) K.* from (\d+) K up", refusal.reason)
        assert found is not None
        most, least = map(int, found.groups())
        assert most < least
    assert said
