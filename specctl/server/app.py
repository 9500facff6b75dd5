"""The routes: OpenAI's, health, metrics and the stream of cycles."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from specctl.engine.thinking import ThinkSplitter
from specctl.errors import SpecctlError
from specctl.events import Cycle, Finished, FinishReason, PromptDone, to_dict
from specctl.metrics import Totals, add
from specctl.server.schema import (
    ApiError,
    Json,
    Kind,
    Shape,
    Wanted,
    as_api_error,
    models,
    new_shape,
    read,
    usage,
)
from specctl.server.worker import Begun, Job, Worker

_IDLE = 15.0  # seconds of silence after which a stream says that it lives
_JOIN = 10.0  # seconds that the engine's thread may take to free the model
_SSE = {"cache-control": "no-store", "x-accel-buffering": "no"}


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may ask, and how much. `timeout`: of a whole request, waiting included, seconds.

    `local`: names of this machine alone are taken in the Host header, for a page of a foreign name
    that resolves to it must not reach a server without a key: localhost, loopback addresses, and
    `name`, the one that the server was told to listen on.
    """

    api_key: str | None = None
    max_body: int = 4 << 20
    timeout: float = 600.0
    local: bool = True
    name: str = ""


def make_app(worker: Worker, rules: Rules, default: Wanted) -> Starlette:
    """The application; the worker starts and ends with it."""
    api = _Api(worker, rules, default)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        worker.start()
        yield
        worker.stop()
        await asyncio.to_thread(worker.join, _JOIN)

    return Starlette(
        routes=[
            Route("/v1/chat/completions", api.guarded(api.chat), methods=["POST"]),
            Route("/v1/completions", api.guarded(api.completions), methods=["POST"]),
            Route("/v1/models", api.guarded(api.models)),
            Route("/metrics", api.guarded(api.metrics)),
            Route("/cycles", api.guarded(api.cycles)),
            Route("/health", api.health),
        ],
        exception_handlers={
            ApiError: _as_json,
            HTTPException: _as_json,
            Exception: _as_json,
        },
        lifespan=lifespan,
    )


def _is_local(host: str, named: str) -> bool:
    """A Host header, with or without a port, that names this machine. An address needs no look-up,
    so no foreign name can stand for it.
    """
    name = host if host.endswith("]") else host.rsplit(":", 1)[0]
    name = name.lower().rstrip(".")
    if name in ("localhost", named.lower()):
        return bool(name)
    with suppress(ValueError):
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    return False


async def _as_json(_request: Request, error: Exception) -> Response:
    """Every error in OpenAI's shape."""
    if isinstance(error, HTTPException):
        error = ApiError(error.status_code, str(error.detail))
    if not isinstance(error, ApiError):
        error = ApiError(500, f"{type(error).__name__}: this is a bug in specctl")
    headers = {}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.status in (429, 503):
        headers["retry-after"] = "2"
    return JSONResponse(error.body, error.status, headers)


class _Api:
    """What the routes share."""

    def __init__(self, worker: Worker, rules: Rules, default: Wanted) -> None:
        self._worker, self._rules, self._default = worker, rules, default
        self._created = int(time.time())

    def guarded(
        self, route: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """`route` for those who may."""

        async def run(request: Request) -> Response:
            self._check(request)
            return await route(request)

        return run

    def _check(self, request: Request) -> None:
        rules = self._rules
        if rules.api_key is not None:
            said = request.headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(said.encode(), rules.api_key.encode()):
                raise ApiError(401, "wrong or missing API key", code="invalid_api_key")
        elif rules.local:
            host = request.headers.get("host", "")
            if not _is_local(host, rules.name):
                raise ApiError(403, f"host {host!r} is not this machine", code="wrong_host")

    async def health(self, _request: Request) -> Response:
        """ok, busy, loading or ended; 503 for the last two."""
        worker = self._worker
        if worker.state != "ready":
            return JSONResponse({"status": worker.state}, 503)
        status = "busy" if worker.is_busy else "ok"
        return JSONResponse({"status": status, "waiting": worker.waiting})

    async def models(self, _request: Request) -> Response:
        """The one model."""
        worker = self._ready()
        return JSONResponse(models(worker.model, self._created, worker.n_ctx))

    async def metrics(self, _request: Request) -> Response:
        """Prometheus text."""
        worker = self._worker
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return PlainTextResponse(worker.board.text(worker.waiting), media_type=kind)

    async def cycles(self, _request: Request) -> Response:
        """Records of all answers from now on, as server-sent events."""
        return StreamingResponse(self._records(), media_type="text/event-stream", headers=_SSE)

    async def _records(self) -> AsyncIterator[str]:
        board = self._worker.board
        listener = board.join()
        try:
            yield ": specctl cycles\n\n"
            while True:
                try:
                    record = await asyncio.wait_for(listener.records.get(), _IDLE)
                except TimeoutError:
                    yield ": idle\n\n"
                    continue
                if record is None:
                    return
                yield f"data: {json.dumps(to_dict(record))}\n\n"
        finally:
            board.leave(listener)

    async def chat(self, request: Request) -> Response:
        """OpenAI's chat completions."""
        return await self._complete(request, "chat")

    async def completions(self, request: Request) -> Response:
        """OpenAI's (older) completions."""
        return await self._complete(request, "text")

    def _ready(self) -> Worker:
        worker = self._worker
        if worker.state == "loading":
            raise ApiError(503, "the model is loading", code="loading")
        if worker.state == "ended":
            raise ApiError(503, "the server is shutting down", code="shutting_down")
        return worker

    async def _complete(self, request: Request, kind: Kind) -> Response:
        deadline = asyncio.get_running_loop().time() + self._rules.timeout
        worker = self._ready()
        wanted = read(kind, await self._body(request), self._default)
        job = Job(wanted)
        if not worker.submit(job, request.client.host if request.client else ""):
            raise ApiError(429, "too many requests are waiting", code="queue_full")
        answer = _Answer(job, worker, request, deadline)
        try:
            begun = await answer.begin()
            shape = new_shape(kind, worker.model, begun.notes)
            if wanted.stream:
                body = answer.stream(shape, begun)
                return StreamingResponse(body, media_type="text/event-stream", headers=_SSE)
            return JSONResponse(await answer.whole(shape, begun))
        except _GoneError:
            answer.close()
            return Response(status_code=_CLIENT_CLOSED)  # nobody reads it
        except BaseException:
            answer.close()
            raise

    async def _body(self, request: Request) -> bytes:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise ApiError(415, "the body must be application/json", code="wrong_content_type")
        most, body = self._rules.max_body, bytearray()
        try:
            async with asyncio.timeout(min(30.0, self._rules.timeout)):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise ApiError(413, f"the body is larger than {most} bytes")
        except TimeoutError as error:
            raise ApiError(408, "the body did not come in time") from error
        except ClientDisconnect as error:
            raise ApiError(400, "the client went away") from error
        return bytes(body)


_CLIENT_CLOSED = 499  # nginx's number


class _GoneError(Exception):
    """The client does not listen any more."""


class _Answer:
    """One job's items as text: waits for them, for the client to go, and for the deadline."""

    def __init__(self, job: Job, worker: Worker, request: Request, deadline: float) -> None:
        self._job, self._worker, self._deadline = job, worker, deadline
        self._gone = asyncio.create_task(_gone(request))
        self._totals, self._reused = Totals(), 0

    def close(self) -> None:
        """Nobody waits any more: the engine stops within a cycle."""
        self._gone.cancel()
        self._worker.cancel(self._job)

    async def begin(self) -> Begun:
        """Its turn.

        Raises:
            ApiError: it cannot be answered.
        """
        item = await self._item()
        assert isinstance(item, Begun)
        return item

    async def _item(self) -> Any:
        """The next one. ApiError: it failed, or took too long. _GoneError: the client went."""
        get = asyncio.ensure_future(self._job.items.get())
        left = self._deadline - asyncio.get_running_loop().time()
        await asyncio.wait({get, self._gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if get.done():
            item = get.result()
            if isinstance(item, SpecctlError):
                raise as_api_error(item, self._job.wanted)
            return item
        get.cancel()
        if self._gone.done():
            raise _GoneError
        raise ApiError(504, "the request took longer than this server allows", code="timeout")

    async def _parts(self, begun: Begun) -> AsyncIterator[tuple[str, bool] | Finished]:
        """(text, is it thinking?) and at last how it ended."""
        splitter = ThinkSplitter(begun.thinking)
        thinks = self._job.wanted.kind == "chat"
        while True:
            item = await self._item()
            if isinstance(item, PromptDone):
                self._reused = item.reused_tokens
            if not isinstance(item, Cycle | Finished):
                continue
            if isinstance(item, Cycle):
                self._totals = add(self._totals, item)
            parts = splitter.push(item.text) if thinks else [(item.text, False)]
            if isinstance(item, Finished) and thinks:
                parts += splitter.finish()
            for part in parts:
                if part[0]:
                    yield part
            if isinstance(item, Finished):
                yield item
                return

    def _usage(self, finished: Finished) -> Json:
        return usage(finished.prompt_tokens, self._reused, finished.emitted_tokens, self._totals)

    def _so_far(self, begun: Begun) -> Json:
        """Usage up to this chunk, where it is asked for."""
        if not self._job.wanted.usage_so_far:
            return {}
        totals = self._totals
        return {"usage": usage(begun.prompt_tokens, self._reused, totals.emitted, totals)}

    async def whole(self, shape: Shape, begun: Begun) -> Json:
        """An answer in one piece."""
        texts: dict[bool, list[str]] = {False: [], True: []}
        reason: FinishReason = "error"
        said: Json = {}
        async for part in self._parts(begun):
            if isinstance(part, Finished):
                reason, said = part.reason, self._usage(part)
            else:
                texts[part[1]].append(part[0])
        self._gone.cancel()
        return shape.whole("".join(texts[False]), "".join(texts[True]), reason, said)

    async def stream(self, shape: Shape, begun: Begun) -> AsyncIterator[str]:
        """Server-sent events; an error in the middle is one of them."""
        try:
            if shape.kind == "chat":
                yield _event(shape.chunk(role=True))
            async for part in self._parts(begun):
                if not isinstance(part, Finished):
                    chunk = shape.chunk(part[0], thinking=part[1])
                    yield _event(chunk | self._so_far(begun))
                    continue
                yield _event(shape.last(part.reason))
                if self._job.wanted.include_usage:
                    yield _event(shape.usage_chunk(self._usage(part)))
            yield "data: [DONE]\n\n"
        except ApiError as error:
            yield _event(error.body)
        except _GoneError:
            return
        finally:
            self.close()


async def _gone(request: Request) -> None:
    """Until the client has closed the connection."""
    with suppress(ClientDisconnect):
        while (await request.receive())["type"] != "http.disconnect":
            pass


def _event(value: Json) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
