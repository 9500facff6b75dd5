"""A loopback server that speaks as the engines do, with counters that reset, drain, lag and lie.

`FakeEngine(kind)` answers the endpoints of one engine; `state` is what it counts. A test moves it
with `serve_tokens(...)`, `restart()`, or sets a `fault`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "tiny-model"


@dataclass
class Counts:
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    generated: int = 0
    seconds: float = 0.0
    requests: int = 0
    at: list[int] = field(default_factory=list)
    running: int = 0


class FakeEngine:
    """`with FakeEngine("vllm") as engine: engine.url`."""

    def __init__(self, kind: str, *, key: str = "", speculative: bool = True, port: int = 0):
        self.kind, self.key, self.speculative = kind, key, speculative
        self.counts = Counts()
        self.pending: list[Counts] = []  # what is flushed when its request ends
        self.iterations: list[dict[str, Any]] = []
        self.iteration = 0
        self.metrics = True
        self.fault = ""  # page, junk, huge, slow, cut, error, nan
        self.k = 4
        self.stream: list[str] = []  # what /cycles or a chat sends
        self.asked: list[dict[str, Any]] = []
        self.queries: list[str] = []  # of the posts
        self.port = port
        self.server: ThreadingHTTPServer | None = None
        self.connections: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> FakeEngine:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        engine = self

        class Handler(_Handler):
            fake = engine

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
        for one in self.connections:  # a client may keep its line open
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.connections.clear()

    def reply(self, asked: dict[str, Any]) -> Iterable[str] | tuple[int, str, bytes]:
        """To a POST: events of a stream, or a whole answer."""
        return self.stream

    # what it counts

    def cycle(self, drafted: int, accepted: int, seconds: float = 0.02) -> None:
        """One pass of the target."""
        c = self.counts
        c.generated += accepted + 1
        c.seconds += seconds
        if drafted:
            c.drafts += 1
            c.drafted += drafted
            c.accepted += accepted
            c.at += [0] * (drafted - len(c.at))
            for i in range(accepted):
                c.at[i] += 1
        self.iteration += 1
        self.iterations.append(
            {
                "iter": self.iteration,
                "iterLatencyMS": seconds * 1000,
                "numActiveRequests": 1,
                "specDecodingStats": {
                    "numDraftTokens": drafted,
                    "numAcceptedTokens": accepted,
                    "numRequestsWithDraftTokens": int(bool(drafted)),
                    "acceptanceLength": 1.0 + accepted,
                    "iterLatencyMS": seconds * 1000 / 4,
                    "draftOverhead": 0.25,
                },
            }
        )
        del self.iterations[:-1000]

    def restart(self) -> None:
        self.counts, self.iterations, self.iteration = Counts(), [], 0

    # what it answers

    def answer(self, path: str) -> tuple[int, str, bytes]:
        handler = getattr(self, "_" + path.strip("/").replace("/", "_"), None)
        if handler is None:
            return 404, "application/json", b'{"detail":"Not Found"}'
        return handler()

    def _json(self, value: object, status: int = 200) -> tuple[int, str, bytes]:
        return status, "application/json; charset=utf-8", json.dumps(value).encode()

    def _v1_models(self) -> tuple[int, str, bytes]:
        owner = {
            "llama-server": "llamacpp",
            "vllm": "vllm",
            "sglang": "sglang",
            "trtllm": "tensorrt_llm",
            "specctl": "specctl",
        }[self.kind]
        return self._json({"object": "list", "data": [{"id": MODEL, "owned_by": owner}]})

    def _props(self) -> tuple[int, str, bytes]:
        if self.kind != "llama-server":
            return self._json({}, 404)
        return self._json({"build_info": "b1-0c1e570", "total_slots": 1, "model_path": "/m.gguf"})

    def _slots(self) -> tuple[int, str, bytes]:
        if self.kind != "llama-server":
            return self._json({}, 404)
        return self._json([{"id": 0, "speculative": self.speculative}])

    def _health(self) -> tuple[int, str, bytes]:
        return self._json({"status": "ok"})

    def _version(self) -> tuple[int, str, bytes]:
        if self.kind not in ("vllm", "trtllm"):
            return self._json({}, 404)
        return self._json({"version": "0.33.0"})

    def _server_info(self) -> tuple[int, str, bytes]:
        if self.kind != "sglang":
            return self._json({}, 404)
        method = "EAGLE3" if self.speculative else None
        return self._json({"internal_states": [], "speculative_algorithm": method})

    def _metrics(self) -> tuple[int, str, bytes]:
        if self.fault == "junk":
            return 200, "text/plain", b"\x00\xff{{{ not metrics"
        if self.fault == "huge":
            return 200, "text/plain", b"# x\n" * (3 << 20)
        if self.fault == "error":
            return 503, "application/json", b'{"error":"loading"}'
        if self.kind == "trtllm":
            drained, self.iterations = self.iterations, []
            return self._json(drained) if self.metrics else self._json({"detail": "no"}, 404)
        if not self.metrics:
            return self._json({"error": {"code": 501, "message": "Start it with `--metrics`"}}, 501)
        return 200, "text/plain; version=0.0.4; charset=utf-8", self.text().encode()

    def _prometheus_metrics(self) -> tuple[int, str, bytes]:
        if self.kind != "trtllm" or not self.metrics:
            return self._json({}, 404)
        return 200, "text/plain", self.text().encode()

    def text(self) -> str:
        c = self.counts
        if self.kind == "sglang":
            return self._sglang_text(c)
        if self.kind == "trtllm":
            return f'trtllm_generation_tokens_total{{model_name="m"}} {c.generated}\n'
        prefix = {"llama-server": "llamacpp:", "vllm": "vllm:", "specctl": "specctl:"}[self.kind]
        labels = "" if self.kind != "vllm" else '{engine="0",model_name="m"}'
        lines = []
        if self.kind == "vllm":
            lines += [
                f"vllm:generation_tokens_total{labels} {c.generated}.0",
                f"vllm:inter_token_latency_seconds_sum{labels} {c.seconds}",
                f"vllm:num_requests_running{labels} {c.running}.0",
            ]
        else:
            lines += [
                f"{prefix}tokens_predicted_total {c.generated}",
                f"{prefix}tokens_predicted_seconds_total {c.seconds}",
                f"{prefix}requests_processing {c.running}",
            ]
        if self.kind == "specctl":
            lines.append(f"specctl:cycles_total {self.iteration}")
        if self.speculative or self.kind == "llama-server":
            spec = f"{prefix}spec_decode_num_"
            drafted = "NaN" if self.fault == "nan" else c.drafted
            lines += [
                f"# HELP {spec}drafts_total drafts",
                f"# TYPE {spec}drafts_total counter",
                f"{spec}drafts_total{labels} {c.drafts}",
                f"{spec}draft_tokens_total{labels} {drafted}",
                f"{spec}accepted_tokens_total{labels} {c.accepted}",
            ]
            for i, count in enumerate(c.at):
                pos = f'{{engine="0",position="{i}"}}' if labels else f'{{position="{i}"}}'
                lines.append(f"{spec}accepted_tokens_per_pos_total{pos} {count}")
        return "\n".join(lines) + "\n"

    def _sglang_text(self, c: Counts) -> str:
        half = c.generated // 2
        lines = [
            f'sglang:generation_tokens_total{{is_streaming="true"}} {c.generated - half}',
            f'sglang:generation_tokens_total{{is_streaming="false"}} {half}',
            f"sglang:num_requests_total {c.requests}",
            f'sglang:num_running_reqs{{tp_rank="0"}} {c.running}',
        ]
        if self.speculative:
            for rank in (0, 1):  # every rank repeats a gauge
                lines.append(f'sglang:spec_num_steps{{tp_rank="{rank}"}} {self.k}.0')
                lines.append(f'sglang:spec_num_draft_tokens{{tp_rank="{rank}"}} {self.k + 1}.0')
            lines.append(f"sglang:spec_verify_calls_total {c.drafts}")
        return "\n".join(lines) + "\n"


class _Handler(BaseHTTPRequestHandler):
    fake: FakeEngine
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.fake.connections.append(self.connection)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        fake = self.fake
        if fake.fault == "slow":
            time.sleep(1.0)
        if fake.fault == "cut":
            self.close_connection = True
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            return
        if fake.key and self.headers.get("Authorization") != f"Bearer {fake.key}":
            self._send(401, "application/json", b'{"error":"unauthorized"}')
            return
        path = self.path.partition("?")[0]
        if fake.fault == "page":
            self._send(200, "text/html", b"<!DOCTYPE html><html><body>router</body></html>")
        elif path == "/cycles" and fake.kind == "specctl" and fake.stream:
            self._stream(iter(fake.stream))
        else:
            self._send(*fake.answer(path))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = json.loads(body)
        self.fake.asked.append(asked)
        self.fake.queries.append(self.path.partition("?")[2])
        reply = self.fake.reply(asked)
        if isinstance(reply, tuple):
            self._send(*reply)
        else:
            self._stream(iter(reply))

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def _stream(self, data: Iterator[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for one in data:
            try:
                self.wfile.write(f"data: {one}\n\n".encode())
                self.wfile.flush()
            except OSError:
                return


def chat_events(chunks: list[list[int | None]], ms: float = 20.0) -> list[str]:
    """Captured (tokens, drafted, accepted) as a chat stream; a pass takes `ms`."""
    out = [json.dumps({"choices": [{"delta": {"role": "assistant", "content": None}}]})]
    passes, before, room = 0, (0, 0, 0), 0
    for number, (tokens, drafted, accepted) in enumerate(chunks):
        now = (tokens or 0, drafted or 0, accepted or 0)
        if now[1] > before[1]:
            passes, room = passes + 1, now[2] - before[2]
        elif now[0] > before[0]:
            passes, room = (passes, room - 1) if room else (passes + 1, 0)
        before = now
        timings: dict[str, Any] = {
            "prompt_n": 33,
            "cache_n": 0,
            "prompt_ms": 500.0,
            "predicted_n": now[0],
            "predicted_ms": (passes - 1) * ms,
        }
        if drafted is not None:
            timings |= {"draft_n": drafted, "draft_n_accepted": accepted}
        last = number == len(chunks) - 1
        choice = {"delta": {"content": f"w{now[0]} "}, "finish_reason": "length" if last else None}
        if last:
            choice["delta"] = {}
        out.append(json.dumps({"choices": [choice], "timings": timings}))
    return [*out, "[DONE]"]
