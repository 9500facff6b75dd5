"""A real connection to a server that speaks as the engines do, and misbehaves as servers do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_engine import FakeEngine, chat_events

from specctl.errors import RemoteError, UsageError
from specctl.events import Cycle, Finished, Interval, to_dict
from specctl.external.errors import (
    GoneError,
    JunkError,
    KeyRefusedError,
    MetricsOffError,
    NotAnEngineError,
)
from specctl.external.poll import Counters, Plan, open_server, watch
from specctl.external.probe import started
from specctl.external.recognise import recognise, slots
from specctl.external.remark import Remark
from specctl.external.wire import Answer, Line, address, events
from specctl.metrics import fold

ENGINES = ("llama-server", "vllm", "sglang", "trtllm", "specctl")
PAYLOADS = Path(__file__).parent / "payloads"


@pytest.fixture
def line() -> Iterator[Callable[..., Line]]:
    made: list[Line] = []

    def connect(engine: FakeEngine, key: str | None = None, timeout: float = 5.0) -> Line:
        made.append(Line(address(engine.url), key, timeout))
        return made[-1]

    yield connect
    for one in made:
        one.close()


def looks(engine: FakeEngine, *steps: Callable[[], object]) -> Callable[[float], bool]:
    """A wait that does one step before each look, and ends after the last."""
    left = list(steps)

    def wait(seconds: float) -> bool:
        if not left:
            return True
        left.pop(0)()
        return False

    return wait


# ---------------------------------------------------------------- recognising


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
    with FakeEngine("vllm") as engine:
        assert recognise(line(engine)).version == "0.33.0"


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


# ---------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("junk", JunkError, "not Prometheus text"),
        ("huge", JunkError, "more than 8 MiB"),
        ("page", MetricsOffError, "switched off"),
        ("error", JunkError, "503"),
        ("nan", JunkError, "no count"),
        ("cut", GoneError, "cannot be reached"),
        ("slow", GoneError, "did not answer"),
    ],
)
def test_bodies_and_lines_that_fail(line, fault, error, words):
    with FakeEngine("llama-server") as engine:
        connection = line(engine, timeout=0.4)
        seen = recognise(connection)
        engine.fault = fault
        with pytest.raises(error, match=words):
            Counters(connection, seen).look()


def test_a_server_that_drips_is_given_up_in_time(line):
    with FakeEngine("vllm") as engine:
        connection = line(engine, timeout=0.5)
        big = b"# nothing\n" * 1000

        def drip(path: str) -> tuple[int, str, bytes]:
            time.sleep(0.3)
            return 200, "text/plain", big

        engine.answer = drip  # type: ignore[method-assign]
        begin = time.monotonic()
        with pytest.raises(RemoteError):
            recognise(connection)
        assert time.monotonic() - begin < 5


@pytest.mark.parametrize(
    ("typed", "base"),
    [
        ("localhost:8080", "http://localhost:8080"),
        ("http://h:1/", "http://h:1"),
        ("https://h/prefix/v1/", "https://h/prefix"),
        ("http://h:1/metrics", "http://h:1"),
        ("http://[::1]:8000/v1/chat/completions", "http://[::1]:8000"),
    ],
)
def test_addresses(typed, base):
    assert address(typed).base == base


@pytest.mark.parametrize("typed", ["", "ftp://h", "http://", "http://h:99999", "a b", "http://h:x"])
def test_addresses_that_are_none(typed):
    with pytest.raises(UsageError):
        address(typed)


def test_a_password_in_an_address_is_not_shown():
    assert address("http://me:secret@h:1").shown == "http://h:1"
    assert address("http://h:1/metrics?model=a").query == "model=a"


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_events_however_they_are_cut(size):
    text = b": hello\r\ndata: one\r\n\r\nevent: x\ndata:two\ndata: three\n\ndata: cut off"
    chunks = [text[i : i + size] for i in range(0, len(text), size)]
    assert list(events(chunks)) == ["one", "two\nthree"]


def test_an_event_without_end_is_refused():
    with pytest.raises(JunkError, match="8 MiB"):
        list(events(b"data: " + b"x" * (1 << 20) for _ in range(20)))


# ---------------------------------------------------------------- watching


@pytest.mark.parametrize("kind", ["llama-server", "vllm", "trtllm"])
def test_records_add_up_to_the_counters(line, kind):
    with FakeEngine(kind) as engine:
        for _ in range(5):
            engine.cycle(4, 2)  # before anybody watches
        first = engine.counts.accepted, engine.counts.drafted
        connection = line(engine)
        seen, _ = open_server(connection, probing=False)
        engine.iterations.clear()

        def work() -> None:
            for accepted in (4, 0, 3):
                engine.cycle(4, accepted)
            engine.cycle(0, 0)

        wait = looks(engine, *[work] * 4, lambda: None)
        out = list(watch(connection, seen, Plan(), wait))
    t = fold(one for one in out if isinstance(one, Interval))
    assert (t.accepted, t.drafted) == (
        engine.counts.accepted - first[0],
        engine.counts.drafted - first[1],
    )
    assert t.drafted_cycles == 12
    if kind == "trtllm":
        assert t.draft_share == pytest.approx(0.25)
    else:
        assert t.cycles == 16
        assert t.tokens_per_second == pytest.approx(t.emitted / (16 * 0.02))


def test_sglang_watched(line):
    with FakeEngine("sglang") as engine:
        connection = line(engine)
        seen, _ = open_server(connection, probing=False)

        def request() -> None:
            engine.cycle(0, 0)
            for accepted in (4, 1, 0):
                engine.cycle(4, accepted)
            engine.counts.requests += 1

        out = list(watch(connection, seen, Plan(), looks(engine, request, request)))
    t = fold(one for one in out if isinstance(one, Interval))
    assert (t.drafted_cycles, t.drafted, t.accepted, t.emitted) == (6, 24, 10, 18)
    assert not t.exact
    assert any("derived" in one.text for one in out if isinstance(one, Remark))


def test_a_server_that_goes_away_and_comes_back(line):
    with FakeEngine("llama-server") as engine:
        connection = line(engine)
        seen, _ = open_server(connection, probing=False)

        def back() -> None:
            engine.restart()
            engine.open()
            engine.cycle(4, 4)

        wait = looks(
            engine, lambda: [engine.cycle(4, 2) for _ in range(3)], engine.close, lambda: None, back
        )
        out = list(watch(connection, seen, Plan(), wait))
    t = fold(one for one in out if isinstance(one, Interval))
    assert (t.drafted, t.accepted) == (16, 10)
    words = [one.text for one in out if isinstance(one, Remark)]
    assert sum("waiting for it" in text for text in words) == 1  # said once, not at each look
    assert any("answers again" in text for text in words)


def test_trouble_in_between_is_waited_out(line):
    with FakeEngine("vllm") as engine:
        connection = line(engine)
        seen, _ = open_server(connection, probing=False)

        def fault(name: str) -> Callable[[], None]:
            return lambda: setattr(engine, "fault", name)

        def mended() -> None:
            engine.fault = ""
            engine.cycle(4, 3)

        wait = looks(engine, fault("junk"), fault("error"), mended)
        out = list(watch(connection, seen, Plan(), wait))
    assert fold(one for one in out if isinstance(one, Interval)).accepted == 3


def test_what_recognising_takes_from_trtllm_is_not_lost(line):
    with FakeEngine("trtllm") as engine:
        for accepted in (4, 1):
            engine.cycle(4, accepted)
        _, reading = open_server(line(engine), probing=False)
    assert (reading.sums.drafts, reading.sums.accepted) == (2, 5)


def test_the_first_look_must_succeed(line):
    with FakeEngine("vllm") as engine:
        connection = line(engine)
        seen, _ = open_server(connection, probing=False)
        engine.fault = "junk"
        with pytest.raises(JunkError):
            next(watch(connection, seen, Plan(), lambda _: True))


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
    from specctl.external.probe import records

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


def test_a_specctl_server_without_cycles_is_counted(line):
    with FakeEngine("specctl") as engine:
        connection = line(engine)
        seen, _ = open_server(connection, probing=False)

        def work() -> None:
            engine.cycle(4, 3)
            engine.cycle(4, 4)
            engine.counts.generated -= 2  # it ended inside the draft

        out = list(watch(connection, seen, Plan(), looks(engine, work)))
    (one,) = (one for one in out if isinstance(one, Interval))
    assert (one.accepted, one.emitted) == (7, 7)
    assert one.passes == 2  # it counts them: nothing is derived


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
