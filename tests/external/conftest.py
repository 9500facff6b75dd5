"""Launches from the real catalogue, with no file of this machine known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from specctl.external import llama_server, sglang, trtllm, vllm, wish
from specctl.external.launch import Launch
from specctl.external.wish import Options, make_wish
from specctl.plan import catalog

BUILD = {
    "llama-server": llama_server.build,
    "vllm": vllm.build,
    "sglang": sglang.build,
    "trtllm": trtllm.build,
}


@pytest.fixture(autouse=True)
def _nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wish, "find", lambda *_: None)


@pytest.fixture
def show() -> Callable[..., Launch]:
    """`show(engine, name, k=4, …)` → launch."""

    def build(engine: str, name: str, **options) -> Launch:
        return BUILD[engine](make_wish(engine, name, Options(**options), catalog.load()))

    return build
