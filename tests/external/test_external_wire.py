"""A real connection: addresses, bodies, events, and servers that answer badly, slowly or never."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from fake_engine import FakeEngine

from specctl.errors import UsageError
from specctl.external.errors import GoneError, JunkError, MetricsOffError
from specctl.external.poll import Counters
from specctl.external.recognise import recognise
from specctl.external.wire import Line, address, events


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


@contextlib.contextmanager
def dripping(start: bytes, drop: bytes) -> Iterator[str]:
    """A server that answers `start`, then `drop` ten times a second: no single read is slow."""
    ended = threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listening.accept()[0]
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(start)
            while not ended.wait(0.1):
                connection.sendall(drop)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ended.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(5)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-Again: 1\r\n"),
        (b"H", b"T"),
        (HEAD + b"Content-Length: 1000000\r\n\r\n", b"# nothing\n"),
        (HEAD + b"Connection: close\r\n\r\n", b"# nothing\n"),  # ends with the connection
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\n#\n\r\n"),
    ],
    ids=["headers", "status line", "body", "body without a length", "chunks"],
)
def test_a_server_that_drips_is_given_up_in_time(start: bytes, drop: bytes) -> None:
    with dripping(start, drop) as url, contextlib.closing(Line(address(url), None, 0.5)) as line:
        begin = time.monotonic()
        with pytest.raises(GoneError, match="did not answer within 500 ms") as caught:
            line.get("/metrics")
        assert 0.4 < time.monotonic() - begin < 2
        assert "--" not in str(caught.value.hint)  # whether the command has a flag, it must say
        with pytest.raises(GoneError, match="did not answer within 300 ms"):  # a new connection
            line.post("/v1/chat/completions", {}, 0.3)


def test_a_late_answer_names_the_flag_of_its_command() -> None:
    with dripping(HEAD, b"X-Again: 1\r\n") as url:
        line = Line(address(url), None, 0.2, "--timeout SECONDS")
        with contextlib.closing(line), pytest.raises(GoneError) as caught:
            line.get("/metrics")
    assert str(caught.value.hint).endswith("may need longer: --timeout SECONDS")


def test_a_stream_whose_headers_drip_is_given_up() -> None:
    with (
        dripping(b"HTTP/1.1 200 OK\r\n", b"X-Again: 1\r\n") as url,
        contextlib.closing(Line(address(url))) as line,
        pytest.raises(GoneError, match="did not answer within 500 ms"),
    ):
        list(line.events("/cycles", silence=0.5))


def test_a_stream_lives_longer_than_an_answer_may_take() -> None:
    with (
        dripping(HEAD + b"\r\n", b"data: x\n\n") as url,
        contextlib.closing(Line(address(url), None, 0.2)) as line,
    ):
        assert len(list(itertools.islice(line.events("/cycles", silence=0.5), 8))) == 8


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


@pytest.mark.parametrize(
    "typed",
    ["", "ftp://h", "http://", "http://h:99999", "a b", "http://h:x", "http://a..b", "a" * 300],
)
def test_addresses_that_are_none(typed):
    with pytest.raises(UsageError):
        address(typed)


def test_a_password_in_an_address_is_not_shown():
    assert address("http://me:secret@h:1").shown == "http://h:1"
    assert address("http://h:1/metrics?model=a").query == "model=a"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://h:1/?t=1", "http://me:x@h:1/v1", True),
        ("localhost:8080", "http://127.0.0.1:8080", True),
        ("http://[::1]:8080", "http://127.0.0.2:8080/v1/", True),
        ("http://h", "http://H:80", True),
        ("https://h", "https://h:443", True),
        ("http://h", "https://h", False),
        ("http://h:1", "http://h:2", False),
        ("http://h:1/plain", "http://h:1/spec", False),  # behind one gateway
        ("http://h1", "http://h2", False),
    ],
)
def test_the_same_server_by_two_addresses(one, other, same):
    assert address(one).is_same(address(other)) is same


def test_the_query_goes_with_every_request():
    with FakeEngine("vllm") as engine:
        engine.stream = ["x"]
        with contextlib.closing(Line(address(engine.url + "/?token=1"))) as line:
            line.post("/v1/chat/completions", {}, 1.0)
            list(line.events("/v1/chat/completions", {}))
    assert engine.queries == ["token=1", "token=1"]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_events_however_they_are_cut(size):
    text = b": hello\r\ndata: one\r\n\r\nevent: x\ndata:two\ndata: three\n\ndata: cut off"
    chunks = [text[i : i + size] for i in range(0, len(text), size)]
    assert list(events(chunks)) == ["one", "two\nthree"]


def test_an_event_without_end_is_refused():
    with pytest.raises(JunkError, match="8 MiB"):
        list(events(b"data: " + b"x" * (1 << 20) for _ in range(20)))
