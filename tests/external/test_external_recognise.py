"""Which engine answers at an address, and what it is said to be where it is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from specctl.errors import RemoteError, UsageError
from specctl.external.errors import GoneError, KeyRefusedError, MetricsOffError, NotAnEngineError
from specctl.external.poll import open_server
from specctl.external.recognise import recognise, slots
from specctl.external.wire import Answer

ENGINES = ("llama-server", "vllm", "sglang", "trtllm", "specctl")
PAYLOADS = Path(__file__).parent / "payloads"


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("metrics", [True, False], ids=["metrics", "no metrics"])
def test_each_engine_is_recognised(line, kind, metrics):
    with FakeEngine(kind) as engine:
        engine.metrics = metrics
        seen = recognise(line(engine))
    assert seen.engine == kind
    assert seen.model == "tiny-model"
    assert seen.metrics is metrics


def test_trtllm_with_one_of_its_two_switches(line):
    with FakeEngine("trtllm") as engine:
        engine._metrics = lambda: (404, "text/plain", b"")  # type: ignore[method-assign]
        seen, reading = open_server(line(engine), probing=False)
    assert seen.metrics
    assert reading.sums.generated == 0


def test_what_each_says_of_itself(line):
    with FakeEngine("llama-server") as engine:
        seen = recognise(line(engine))
        assert (seen.version, seen.speculates) == ("b1-0c1e570", True)
    with FakeEngine("llama-server", speculative=False) as engine:
        assert recognise(line(engine)).speculates is False
    with FakeEngine("sglang") as engine:
        assert recognise(line(engine)).method == "EAGLE3"
        odd = b'{"internal_states": [], "speculative_algorithm": {"a": 1}}'
        engine._server_info = lambda: (200, "application/json", odd)  # type: ignore[method-assign]
        assert recognise(line(engine)).speculates is None
    with FakeEngine("sglang", speculative=False) as engine:
        assert recognise(line(engine)).speculates is False
    with FakeEngine("vllm") as engine:
        assert recognise(line(engine)).version == "0.33.0"
    with FakeEngine("specctl") as engine:  # an older one: its series are there, or not
        assert recognise(line(engine)).speculates is True
    with FakeEngine("specctl", speculative=False) as engine:
        assert recognise(line(engine)).speculates is False


@pytest.mark.parametrize("name", ["ngram", "simple_np2", "combo", "md_only"])
def test_slots_of_a_real_server(name):
    value = json.loads((PAYLOADS / f"llama-server-{name}.json").read_text())
    on, _ = slots(Answer(200, "application/json", json.dumps(value["slots"]).encode()))
    assert on is (name != "md_only")
    after = [
        {**slot, "params": {"speculative.types": types}}
        for slot, types in zip(value["slots"], value["slot_spec_after"], strict=True)
    ]
    _, method = slots(Answer(200, "application/json", json.dumps(after).encode()))
    expected = {"ngram": "ngram-simple", "simple_np2": "draft-simple", "md_only": ""}
    assert method == expected.get(name, "draft-simple,ngram-simple")


@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        ("llama-server", "--metrics"),
        ("vllm", "--disable-log-stats"),
        ("sglang", "--enable-metrics"),
    ],
)
def test_metrics_that_are_off_name_the_flag(line, kind, flag):
    with FakeEngine(kind) as engine:
        engine.metrics = False
        with pytest.raises(MetricsOffError) as caught:
            open_server(line(engine), probing=False)
    assert flag in caught.value.hint


def test_a_llama_server_without_metrics_can_be_probed(line):
    with FakeEngine("llama-server") as engine:
        engine.metrics = False
        assert open_server(line(engine), probing=True)[0].metrics is False


def test_probing_is_for_llama_server(line):
    with FakeEngine("vllm") as engine, pytest.raises(RemoteError, match="shows no cycles"):
        open_server(line(engine), probing=True)


def test_a_web_page_is_no_engine(line):
    with FakeEngine("vllm") as engine:
        engine.fault = "page"
        with pytest.raises(NotAnEngineError, match="web page"):
            recognise(line(engine))


def test_nobody_there(line):
    with FakeEngine("vllm") as engine:
        pass
    with pytest.raises(GoneError, match="cannot be reached"):
        recognise(line(engine))


def test_keys(line):
    with FakeEngine("vllm", key="sesame") as engine:
        with pytest.raises(KeyRefusedError) as caught:
            recognise(line(engine))
        assert "--api-key" in caught.value.hint
        with pytest.raises(KeyRefusedError, match="does not accept"):
            recognise(line(engine, key="wrong"))
        assert recognise(line(engine, key="sesame")).engine == "vllm"
    with pytest.raises(UsageError, match="characters"):
        line(engine, key="ключ")


def test_a_server_that_still_loads_is_said_to(line):
    with FakeEngine("llama-server") as engine:
        engine.answer = lambda _: (503, "application/json", b"{}")  # type: ignore[method-assign]
        with pytest.raises(GoneError, match="loading"):
            recognise(line(engine))
