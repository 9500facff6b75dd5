"""The built-in catalogue, and what it recommends to machines of every size."""

from __future__ import annotations

from pathlib import Path

import pytest
from recommend_kit import SIZES, cpu_budget, gpu_budget

from specctl.plan.candidates import Wish
from specctl.plan.catalog import Catalog, load
from specctl.plan.recommend import Recommendation, recommend


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """Without the user's own profiles."""
    return load(Path("/nonexistent"))


@pytest.fixture(scope="session")
def answers(catalog: Catalog) -> dict[object, Recommendation]:
    """By GiB of GPU memory, and for the CPU."""
    found: dict[object, Recommendation] = {
        size: recommend(catalog, gpu_budget(size), Wish()) for size in SIZES
    }
    found["cpu"] = recommend(catalog, cpu_budget(), Wish())
    return found


MACHINES = (*SIZES, "cpu")
