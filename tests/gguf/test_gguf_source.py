"""Headers by range requests from a server that behaves, and from ones that do not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gguf_families as families
import gguf_headers as headers
import pytest

from specctl.errors import GgufError, HubError, UsageError
from specctl.gguf.facts import facts_of_source, read_facts
from specctl.gguf.header import read_header
from specctl.gguf.source import REMOTE_STEP, LocalSource, RemoteSource, open_source

Answer = Callable[["Handler"], bool]


class Handler(BaseHTTPRequestHandler):
    files: dict[str, bytes]
    special: Answer | None
    ranges = True
    log: list[tuple[str, str | None, str | None]]
    sent: int

    def log_message(self, *_: object) -> None:
        pass

    def refuse(self, status: int, **headers: str) -> bool:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", "0")
        self.end_headers()
        return True

    def do_GET(self) -> None:
        cls = type(self)
        wanted = self.headers.get("range")
        cls.log.append((self.path, wanted, self.headers.get("authorization")))
        if cls.special is not None and cls.special(self):
            return
        name = self.path.rpartition("/resolve/main/")[2]
        body = cls.files.get(name)
        if body is None:
            self.refuse(404, X_Error_Code="EntryNotFound")
            return
        if wanted and cls.ranges:
            first, last = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
            if first >= len(body):
                self.refuse(416)
                return
            part = body[first : last + 1]
            self.send_response(206)
            self.send_header("content-range", f"bytes {first}-{first + len(part) - 1}/{len(body)}")
        else:
            part = body
            self.send_response(200)
        self.send_header("content-length", str(len(part)))
        self.end_headers()
        try:
            for start in range(0, len(part), 1 << 16):
                self.wfile.write(part[start : start + (1 << 16)])
                cls.sent += len(part[start : start + (1 << 16)])
        except OSError:
            pass  # the reader has seen enough


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Handler]]:
    """A hub on this machine; `files` by their path in the repository a/b."""
    import huggingface_hub.constants as constants
    from huggingface_hub import close_session

    handler = type("H", (Handler,), {"files": {}, "special": None, "log": [], "sent": 0})
    listening = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{listening.server_port}")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    yield handler
    close_session()
    listening.shutdown()
    listening.server_close()
    thread.join()


def big_header(n: int) -> bytes:
    keys = headers.base("llama", 2, 64, 2, 1, 32, 64, n) | headers.vocabulary(n)
    raw, rest = headers.header_bytes(keys, headers.ends(64, n, "f32"))
    return raw + bytes(min(rest, 4 * REMOTE_STEP))


def test_only_the_first_bytes_are_asked_for(server: type[Handler]) -> None:
    body = big_header(1000) + bytes(20 * 1024**2)
    server.files["x/m.gguf"] = body
    with open_source("hf:a/b/x/m.gguf") as source:
        assert isinstance(source, RemoteSource)
        facts = facts_of_source(source)
        assert (source.traffic.requests, source.traffic.bytes) == (1, REMOTE_STEP)
        assert source.size == len(body)
    assert facts.tokenizer is not None
    assert facts.sources == ("hf:a/b/x/m.gguf",)
    assert server.log == [
        ("/a/b/resolve/main/x/m.gguf", f"bytes=0-{REMOTE_STEP - 1}", "Bearer hf_test")
    ]


def test_it_asks_for_more_only_when_the_header_goes_on(server: type[Handler]) -> None:
    body = big_header(220_000)  # more than one step of token texts
    server.files["m.gguf"] = body
    with open_source("hf:a/b/m.gguf") as source:
        assert isinstance(source, RemoteSource)
        header = read_header(source)
        steps = -(-header.data_offset // REMOTE_STEP)
        assert steps > 1
        assert source.traffic.requests == steps
        assert source.traffic.bytes <= steps * REMOTE_STEP
    assert len(header.strings("tokenizer.ggml.tokens") or []) == 220_000


def test_a_server_without_ranges_is_read_as_far_as_needed(server: type[Handler]) -> None:
    server.ranges = False
    body = big_header(220_000) + bytes(48 * 1024**2)
    server.files["m.gguf"] = body
    with open_source("hf:a/b/m.gguf") as source:
        assert isinstance(source, RemoteSource)
        header = read_header(source)
        assert source.size == len(body)
        assert header.data_offset < source.traffic.bytes < header.data_offset + 2 * REMOTE_STEP
    assert len(header.tensors) == 3


def test_a_small_file_ends_quietly(server: type[Handler]) -> None:
    server.files["m.gguf"] = b"version https://git-lfs.github.com/spec/v1\n"
    with pytest.raises(GgufError, match="LFS pointer"):
        read_facts("hf:a/b/m.gguf")
    server.files["m.gguf"] = big_header(1000)[:3000]
    with pytest.raises(GgufError, match="cut off or damaged"):
        read_facts("hf:a/b/m.gguf")


def test_redirects_are_followed_and_counted(server: type[Handler]) -> None:
    server.files["m.gguf"] = big_header(100)

    def move(handler: Handler) -> bool:
        if "/resolve/" in handler.path and "old" in handler.path:
            return handler.refuse(302, location="/a/b/resolve/main/m.gguf")
        return False

    server.special = staticmethod(move)  # type: ignore[assignment]
    with open_source("hf:a/b/old.gguf") as source:
        assert isinstance(source, RemoteSource)
        read_header(source)
        assert source.traffic.requests == 2


@pytest.mark.parametrize(
    ("status", "headers", "message", "hint"),
    [
        (403, {"X_Error_Code": "GatedRepo"}, "a/b is gated", "accept, then set HF_TOKEN"),
        (401, {"X_Error_Code": "GatedRepo"}, "a/b is gated", "accept, then set HF_TOKEN"),
        (401, {"X_Error_Code": "RepoNotFound"}, "does not exist, or is private", "HF_TOKEN"),
        (404, {"X_Error_Code": "EntryNotFound"}, "a/b has no file m.gguf", "/a/b/tree/main"),
        (404, {"X_Error_Code": "RevisionNotFound"}, "no revision main", ""),
        (404, {}, "does not exist", "check owner"),
        (429, {"Retry_After": "17"}, "rate limit", "wait 17 s"),
        (503, {}, "the server answered 503", ""),
    ],
)
def test_refusals_are_told_apart(
    server: type[Handler], status: int, headers: dict[str, str], message: str, hint: str
) -> None:
    server.special = staticmethod(lambda handler: handler.refuse(status, **headers))  # type: ignore[assignment]
    with pytest.raises(HubError) as caught:
        read_facts("hf:a/b/m.gguf")
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_nobody_listens(server: type[Handler], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubError, match="cannot be reached"):
        read_facts("hf:a/b/m.gguf")


def test_offline_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        open_source("hf:a/b/m.gguf")


def test_remote_parts_are_one_model(server: type[Handler], tmp_path: Path) -> None:
    whole = families.llama(tmp_path / "m.gguf", families.Size(n_layer=2))
    with LocalSource(whole) as file:
        header = read_header(file)
    tensors = [(t.name, t.shape, t.type) for t in header.tensors]
    keys = headers.base("llama", 2, 256, 4, 2, 64, 512, 1024)
    for index, part in enumerate((tensors[:4], tensors[4:])):
        own = {"split.no": index, "split.count": 2, "split.tensors.count": len(tensors)}
        raw, rest = headers.header_bytes({**(keys if not index else {}), **own}, part)
        server.files[f"q/m-{index + 1:05d}-of-00002.gguf"] = raw + bytes(rest)
    with open_source("hf:a/b/q/m-00002-of-00002.gguf") as source:
        assert isinstance(source, RemoteSource)
        facts = facts_of_source(source)
        assert source.traffic.requests == 2  # both parts on one bill
    assert facts.weights.total == sum(tensor.n_bytes for tensor in header.tensors)


def test_local_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match="does not exist"):
        read_facts(str(tmp_path / "no.gguf"))
    with pytest.raises(GgufError, match="is a folder"):
        read_facts(str(tmp_path))
    for text in ("hf:", "hf:a/b", "hf:a//m.gguf"):
        with pytest.raises(UsageError, match="not complete"):
            open_source(text)
