"""Fixtures of the engine's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lossless_kit import start
from mtp_kit import PAIRS, Trio, begin


@pytest.fixture(params=PAIRS)
def trio(request, tiny_models) -> Iterator[Trio]:
    """One session that only decodes plainly, one in which things are tried, one kept fresh."""
    pair = request.param
    with (
        start(tiny_models[PAIRS[pair][0]]) as plain,
        begin(tiny_models, pair) as tried,
        begin(tiny_models, pair) as fresh,
    ):
        yield plain, tried, fresh
