"""Cycles instead of counters: a probed llama-server, and specctl's own stream."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from fake_engine import FakeEngine, chat_events

from specctl.events import Cycle, Finished, to_dict
from specctl.external.poll import Plan, open_server, watch
from specctl.external.probe import records, started
from specctl.metrics import fold

PAYLOADS = Path(__file__).parent / "payloads"


def test_probing_compares_with_the_servers_counters(line):
    value = json.loads((PAYLOADS / "llama-server-combo.json").read_text())
    with FakeEngine("llama-server") as engine:
        engine.stream = chat_events(value["chunks"])
        ask = type(engine).answer

        def answer(path: str) -> tuple[int, str, bytes]:
            if path == "/metrics" and engine.asked:  # its counters follow the request
                engine.counts.drafts, engine.counts.drafted = 12, 46
                engine.counts.accepted = 35
            return ask(engine, path)

        engine.answer = answer  # type: ignore[method-assign]
        connection = line(engine)
        seen, _ = open_server(connection, probing=True)
        out = list(watch(connection, seen, Plan(probe=True), lambda _: True))
        assert engine.asked[0]["timings_per_token"] is True
    t = fold(one for one in out if isinstance(one, Cycle))
    assert (t.drafted_cycles, t.drafted, t.accepted, t.emitted) == (12, 46, 35, 48)
    assert isinstance(out[-2], Finished)
    assert out[-1].text == (
        "its own counters moved by the same: 12 drafts, 46 drafted, 35 accepted"
    )


def test_probing_says_where_counters_differ(line):
    value = json.loads((PAYLOADS / "llama-server-combo.json").read_text())
    with FakeEngine("llama-server") as engine:
        engine.stream = chat_events(value["chunks"])
        connection = line(engine)
        seen, _ = open_server(connection, probing=True)
        out = list(watch(connection, seen, Plan(probe=True), lambda _: True))
    assert out[-1].kind == "warning"
    assert "moved by 0 drafts" in out[-1].text


def test_specctls_own_cycles_are_passed_on(line):
    value = json.loads((PAYLOADS / "llama-server-simple_np2.json").read_text())
    sent = list(records(chat_events(value["chunks"]), 0.0))
    with FakeEngine("specctl") as engine:
        connection = line(engine)
        seen, _ = open_server(connection, probing=False)
        lines = [json.dumps(to_dict(one)) for one in [started(seen), *sent]]
        engine.stream = [*lines, '{"type":"news"}', "[1]"]
        seen_records = []
        for one in watch(connection, seen, Plan(interval=0.01), lambda _: False):
            seen_records.append(one)
            if isinstance(one, Finished):
                break
    assert seen_records[1:] == sent


def test_a_stream_that_ends_is_asked_for_again(line):
    with FakeEngine("specctl") as engine:
        engine.stream = ['{"type":"news"}']
        connection = line(engine)
        seen, _ = open_server(connection, probing=False)
        stop = threading.Event()
        waits: list[float] = []

        def wait(seconds: float) -> bool:
            waits.append(seconds)
            return len([w for w in waits if w]) > 2 or stop.is_set()

        out = list(watch(connection, seen, Plan(interval=0.01), wait))
    assert [one.text for one in out][:2] == [
        "specctl has closed its stream: waiting for it",
        "specctl answers again",
    ]
