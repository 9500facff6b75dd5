"""`specctl serve`: an OpenAI-compatible server over our own engine."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from specctl.cli import options as o
from specctl.cli.interrupt import on_endings
from specctl.cli.opening import as_named, open_named
from specctl.errors import SpecctlError, UsageError
from specctl.settings import Sampling

if TYPE_CHECKING:
    from specctl.engine.session import Session
    from specctl.server.schema import Wanted
    from specctl.server.worker import Worker

KEY_VARIABLE = "SPECCTL_API_KEY"
_GRACE = 5  # seconds that connections get to end on Ctrl-C


def serve(
    model: o.Model = None,
    draft: o.DraftModel = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0 takes a free one.")] = 8080,
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", help=f"Asked of every client; better in ${KEY_VARIABLE}."),
    ] = None,
    allow_anyone: Annotated[
        bool, typer.Option("--allow-anyone", help="Listen beyond this machine without a key.")
    ] = False,
    max_waiting: Annotated[
        int, typer.Option("--max-waiting", help="Requests that may wait for their turn.")
    ] = 64,
    max_body: Annotated[int, typer.Option("--max-body", help="Largest request, MiB.")] = 4,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Of one request, waiting included, seconds.")
    ] = 600.0,
    spec_type: Annotated[
        str | None,
        typer.Option(
            "--spec-type", "-s", help="Drafter, a comma list tried in order, or none; default auto."
        ),
    ] = None,
    k: Annotated[int | None, typer.Option("--k", help="Most tokens drafted per cycle.")] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", help="Longest answer where none is asked for.")
    ] = 1024,
    think: o.Think = None,
    temperature: o.Temperature = 0.7,
    top_k: o.TopK = 40,
    top_p: o.TopP = 0.95,
    min_p: o.MinP = 0.05,
    repeat_penalty: o.RepeatPenalty = 1.0,
    ctx: o.Ctx = 4096,
    threads: o.Threads = None,
    gpu_layers: o.GpuLayers = -1,
    kv_type: o.KvType = "f16",
    draft_gpu_layers: o.DraftGpuLayers = -1,
    draft_kv_type: o.DraftKvType = "f16",
    n_cpu_moe: o.CpuMoe = 0,
    flash_attn: o.FlashAttn = "auto",
    spec_min_accept: o.MinAccept = 0.0,
    spec_draft_n_max: o.DraftMax = 3,
    spec_draft_n_min: o.DraftMin = 0,
    spec_draft_p_min: o.DraftPMin = 0.0,
    spec_draft_sampling: o.DraftSampling = "greedy",
) -> None:
    """Serve one model to OpenAI clients, with speculation: /v1/chat/completions and friends.

    Requests wait their turn, fairly among clients; the model's memory keeps what the next prompt
    shares with the last one. /health, /metrics (Prometheus) and /cycles (every cycle as it
    happens) tell how it goes; `specctl watch URL` shows it. Ctrl-C ends it.
    """
    # fmt: off
    spec = o.spec_settings(
        spec_type or "auto", k, False, None, (None, None, None), (24, 64, 48),
        (spec_draft_n_max, spec_draft_n_min, spec_draft_p_min, spec_draft_sampling),
        spec_min_accept,
    )
    settings = o.engine_settings(
        ctx, threads, gpu_layers, kv_type, draft_gpu_layers, draft_kv_type, n_cpu_moe, flash_attn
    )
    sampling = o.sampling(temperature, top_k, top_p, min_p, (repeat_penalty, 0.0, 0.0), 0)
    # fmt: on
    thinking = o.thinking(think)
    for flag, value in (("--max-tokens", max_tokens), ("--max-waiting", max_waiting),
                        ("--max-body", max_body), ("--timeout", timeout)):  # fmt: skip
        if not value >= 1:
            raise UsageError(f"{flag} {value} is below 1")
    key = api_key or os.environ.get(KEY_VARIABLE) or None
    _need_extra()
    from specctl.cli import aliases, fetching
    from specctl.server.app import Rules, make_app
    from specctl.server.metrics import Board
    from specctl.server.worker import Worker

    aliases.check_types(spec)
    with contextlib.closing(_bind(host, port, key, allow_anyone)) as listening:
        local = _is_loopback(listening)
        files = fetching.resolved(model or fetching.demo_without_asking("serve"), draft)
        flags = [spec] if spec_type is None else []
        if spec_type is None:
            spec = as_named(spec, files)
        (spec,), files = aliases.settle([spec], files, draft)
        fetching.say_tuned(files, [spec], (flags, settings))
        fetching.say_unused_draft(files, [spec])
        server = _Server()

        def opened(stack: contextlib.ExitStack) -> Session:
            return stack.enter_context(open_named(files, spec, settings))

        board = Board(spec.types)
        worker = Worker(opened, board, max_waiting, _say_ready, server.end)
        rules = Rules(key, max_body << 20, timeout, local, host)
        default = _default(sampling, max_tokens, thinking)
        _say(f"listening on {_url(listening)} (OpenAI base URL: {_url(listening)}/v1)")
        server.run(make_app(worker, rules, default), listening, worker)
        if worker.failure is not None:
            raise worker.failure
    _say("stopped")


def _need_extra() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise SpecctlError(
            f"serving needs {error.name}, which is not installed",
            'pip install -e ".[engine,serve]" in a clone of specctl',
        ) from error


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _say_ready(worker: Worker) -> None:
    for note in worker.notes:
        _say(note)
    _say(f"{worker.model} is ready, context {worker.n_ctx}")


def _bind(host: str, port: int, key: str | None, allow_anyone: bool) -> socket.socket:
    """The listening socket; beyond this machine only with a key, or where anyone may.

    Raises:
        UsageError: not allowed, or no such address. SpecctlError: the port is taken.
    """
    if not 0 <= port < 1 << 16:
        raise UsageError(f"--port {port} is not in 0 … 65535")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise UsageError(f"--host {host!r} is no address: {error.strerror}") from error
    family, kind, protocol, _, address = found[0]
    if not ipaddress.ip_address(address[0]).is_loopback and key is None and not allow_anyone:
        raise UsageError(
            f"--host {host} can be reached from other machines, and no key is asked for",
            f"set ${KEY_VARIABLE} (or --api-key), or say --allow-anyone",
        )
    listening = socket.socket(family, kind, protocol)
    try:
        if os.name != "nt":  # on Windows it would let two servers share the port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise SpecctlError(
            f"cannot listen on {host}:{port}: {error.strerror}", "another --port, or 0 for any"
        ) from error
    return listening


def _is_loopback(listening: socket.socket) -> bool:
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _default(sampling: Sampling, max_tokens: int, think: bool | None) -> Wanted:
    from specctl.server.schema import Wanted

    return Wanted("chat", (), "", sampling, max_tokens, (), False, False, think, None, None, "")


class _Server:
    """Runs uvicorn until Ctrl-C, SIGTERM or `end`; the first one ends answers as cancelled."""

    def __init__(self) -> None:
        self._ending = False
        self._server: object | None = None

    def end(self) -> None:
        """From any thread."""
        self._ending = True
        if self._server is not None:
            self._server.should_exit = True  # type: ignore[attr-defined]

    def run(self, app: object, listening: socket.socket, worker: Worker) -> None:
        """Until it ends."""
        import uvicorn

        class Quiet(uvicorn.Server):
            """Its own handlers raise the signal again at the end: a server's end is no failure."""

            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                def handle(number: int, frame: FrameType | None) -> None:
                    worker.stop()
                    self.handle_exit(number, frame)

                with on_endings(handle):
                    yield

        config = uvicorn.Config(
            app,  # type: ignore[arg-type]
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
        )
        self._server = server = Quiet(config)
        if self._ending:
            server.should_exit = True
        server.run([listening])
