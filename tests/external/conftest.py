"""Launches from the real catalogue, with no file of this machine known; lines to fake engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fake_engine import FakeEngine

from specctl.external import llama_server, sglang, trtllm, vllm, wish
from specctl.external.launch import Launch
from specctl.external.wire import Line, address
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


@pytest.fixture
def line() -> Iterator[Callable[..., Line]]:
    made: list[Line] = []

    def connect(engine: FakeEngine, key: str | None = None, timeout: float = 5.0) -> Line:
        made.append(Line(address(engine.url), key, timeout))
        return made[-1]

    yield connect
    for one in made:
        one.close()
