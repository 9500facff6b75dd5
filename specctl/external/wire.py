"""HTTP to one server: short answers with a bound on size and time, and streams of events."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from specctl.errors import UsageError
from specctl.external.deadline import Deadline
from specctl.external.errors import GoneError, JunkError, KeyRefusedError, SilentError
from specctl.units import MIB, format_bytes, format_seconds, printable

if TYPE_CHECKING:
    import httpx2

LARGEST = 8 * MIB  # of one answer, or of one line of a stream
TIMEOUT = 5.0  # seconds for a whole answer
SILENCE = 60.0  # seconds without a byte after which a stream is dead
_ENDINGS = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/metrics", "/health", "/v1")
_LOCAL = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1|0\.0\.0\.0")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `kind` is the content type without parameters."""

    status: int
    kind: str
    body: bytes

    @property
    def text(self) -> str:
        """The body as text; what is no UTF-8 becomes �."""
        return self.body.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        """Status 200."""
        return self.status == 200

    @property
    def is_page(self) -> bool:
        """It is a web page."""
        return self.kind == "text/html" or self.body.lstrip()[:15].lower().startswith(
            (b"<!doctype html", b"<html")
        )

    def json(self) -> Any:
        """The body's JSON value, or None where it holds none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is: `base` without a trailing slash, `query` kept for every request."""

    base: str
    query: str

    @property
    def shown(self) -> str:
        """Without user, password and query."""
        return re.sub(r"//[^/@]*@", "//", self.base)

    def is_same(self, other: Address) -> bool:
        """The same scheme, host, port and path: the same server, whatever user and query say. All
        names of this machine's loopback are one host.
        """
        return _place(self.base) == _place(other.base)


def _place(base: str) -> tuple[str, str, int, str]:
    parts = urlsplit(base)
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, "localhost" if _LOCAL.fullmatch(host) else host, port, parts.path


def address(text: str) -> Address:
    """What a user types: `host:port`, a web address, or one of a server's own paths.

    Raises:
        UsageError: not an http address.
    """
    typed = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(typed)
        port_ok = parts.port is None or parts.port > 0
        host = parts.hostname
        (host or "").encode("idna")  # what no resolver takes: a label too long, or empty
    except ValueError:
        parts, port_ok, host = urlsplit(""), False, None
    if parts.scheme not in ("http", "https") or not host or not port_ok or re.search(r"\s", typed):
        raise UsageError(f"{text!r} is not a web address", "write it like http://127.0.0.1:8080")
    path = parts.path.rstrip("/")
    for ending in _ENDINGS:
        if path.endswith(ending):
            path = path.removesuffix(ending)
            break
    return Address(f"{parts.scheme}://{parts.netloc}{path}", parts.query)


class Line:
    """A client for one server. The key goes to that server only: redirects are not followed.

    Proxy variables are honoured but for addresses of this machine. `flag` is the command's option
    for more time, where it has one: a late answer's error names it.
    """

    def __init__(
        self, where: Address, key: str | None = None, timeout: float = TIMEOUT, flag: str = ""
    ) -> None:
        import httpx2

        self.where = where
        self._timeout = timeout
        self._flag = f": {flag}" if flag else ""
        headers = {"Accept-Encoding": "identity", "User-Agent": "specctl-watch"}
        if key:
            if not key.isascii() or not key.isprintable():
                raise UsageError("the API key holds characters that no key has")
            headers["Authorization"] = f"Bearer {key}"
        self._keyed = bool(key)
        self._deadline = Deadline()
        host = urlsplit(where.base).hostname or ""
        try:
            self._client = httpx2.Client(
                headers=headers,
                timeout=httpx2.Timeout(timeout),
                trust_env=not _LOCAL.fullmatch(host),
                verify=where.base.startswith("https:"),  # reading certificates takes its time
                follow_redirects=False,
            )
        except (OSError, ValueError, ImportError) as error:  # certificates, proxies
            raise GoneError(f"no connection can be made: {error}") from error

    def close(self) -> None:
        """Close it."""
        self._client.close()

    def get(self, path: str) -> Answer:
        """A whole answer, whatever its status but 401 and 403.

        Raises:
            GoneError: no answer in time.
            KeyRefusedError: 401 or 403.
            JunkError: too large, or compressed.
        """
        return self._whole("GET", path, None, self._timeout)

    def post(self, path: str, body: dict[str, Any], timeout: float) -> Answer:
        """The same for a request that may take `timeout` seconds to answer. Raises as `get`."""
        return self._whole("POST", path, body, timeout)

    def _whole(self, method: str, path: str, sent: dict[str, Any] | None, timeout: float) -> Answer:
        late = self._slow(path, timeout)
        body = bytearray()
        with self._in_time(timeout, late), self._request(method, path, sent, timeout) as response:
            for chunk in self._chunks(response, late):
                body += chunk
                if len(body) > LARGEST:
                    raise JunkError(
                        f"{self.where.shown}{path} answers more than {format_bytes(LARGEST, 0)}"
                    )
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        return Answer(response.status_code, kind, bytes(body))

    def events(
        self, path: str, body: dict[str, Any] | None = None, silence: float = SILENCE
    ) -> Iterator[str]:
        """The `data:` of a stream of server-sent events; POST where there is a body. It is dead
        when nothing has come for `silence` seconds.

        Raises:
            GoneError: cut.
            SilentError: nothing has come for long.
            KeyRefusedError: 401 or 403.
            JunkError: another status than 200, or a line without end.
        """
        method = "GET" if body is None else "POST"
        silent = SilentError(f"{self.where.shown}{path} is silent for {format_seconds(silence)}")
        with self._in_time(silence, self._slow(path, silence)):
            opened = self._request(method, path, body, silence)
        with opened as response:
            chunks = _acknowledged(response, self._chunks(response, silent))
            if response.status_code != 200:
                said = b"".join(_first(chunks, 4096)).decode("utf-8", "replace")
                raise JunkError(
                    f"{self.where.shown}{path} answers {response.status_code}",
                    printable(" ".join(said.split()))[:200] or None,
                    response.status_code,
                )
            yield from events(chunks)

    @contextlib.contextmanager
    def _in_time(self, seconds: float, late: GoneError) -> Iterator[None]:
        """Inside, everything has `seconds`, however slowly it drips; then `late` is raised."""
        with self._deadline.within(seconds) as exchange:
            try:
                yield
            except GoneError as error:
                if exchange.passed:
                    raise late from error
                raise
            if exchange.passed:  # an end that nobody announced reads like a whole answer
                raise late

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None, silence: float
    ) -> _Open:
        import httpx2

        timeout = httpx2.Timeout(self._timeout, read=silence)
        request = self._client.build_request(
            method,
            self.where.base + path + (f"?{self.where.query}" if self.where.query else ""),
            json=body,
            timeout=timeout,
            extensions={"trace": self._deadline.trace},
        )
        try:
            response = self._client.send(request, stream=True)
        except httpx2.TimeoutException as error:
            raise self._slow(path, silence) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise self._gone(error) from error
        if response.status_code in (401, 403):
            response.close()
            raise self._refused(response.status_code)
        if response.is_redirect:
            target = printable(response.headers.get("location", "?"))
            response.close()
            raise JunkError(
                f"{self.where.shown}{path} sends on to {target[:200]}", "name that address"
            )
        return _Open(response)

    def _chunks(self, response: httpx2.Response, late: GoneError) -> Iterator[bytes]:
        import httpx2

        coding = response.headers.get("content-encoding", "identity")
        if coding.lower() != "identity":  # it was asked not to: what unpacks may be endless
            raise JunkError(f"{self.where.shown} compresses its answers ({printable(coding)[:40]})")
        try:
            yield from response.iter_raw()
        except httpx2.TimeoutException as error:
            raise late from error
        except (httpx2.HTTPError, OSError) as error:
            raise self._gone(error) from error

    def _slow(self, path: str, seconds: float) -> GoneError:
        return GoneError(
            f"{self.where.shown}{path} did not answer within {format_seconds(seconds)}",
            f"a busy or loading server may need longer{self._flag}",
        )

    def _gone(self, error: Exception) -> GoneError:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return GoneError(
            f"{self.where.shown} cannot be reached: {reason}",
            "is it running, and on this port? specctl engine run starts one",
        )

    def _refused(self, status: int) -> KeyRefusedError:
        if status == 403:
            return KeyRefusedError(
                f"{self.where.shown} refuses us (403)",
                "another --api-key? or a server that answers its own machine only",
            )
        if self._keyed:
            return KeyRefusedError(f"{self.where.shown} does not accept this API key ({status})")
        return KeyRefusedError(
            f"{self.where.shown} wants an API key ({status})",
            "--api-key KEY, or SPECCTL_API_KEY in the environment",
        )


class _Open:
    """A response that is closed on leaving."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    def __enter__(self) -> httpx2.Response:
        return self._response

    def __exit__(self, *_: object) -> None:
        self._response.close()


def _acknowledged(response: httpx2.Response, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same chunks, each acknowledged at once where the system can.

    A server that gathers small writes (Nagle's algorithm, a usual default) sends the next token
    when the last one is acknowledged, which a client's system puts off by up to 40 ms.
    """
    stream = response.extensions.get("network_stream")
    made = stream.get_extra_info("socket") if stream is not None else None
    option = getattr(socket, "TCP_QUICKACK", None)  # Linux; does not stick
    _acknowledge(made, option)
    for chunk in chunks:
        _acknowledge(made, option)
        yield chunk


def _acknowledge(made: socket.socket | None, option: int | None) -> None:
    if made is None or option is None:
        return
    with contextlib.suppress(OSError):
        made.setsockopt(socket.IPPROTO_TCP, option, 1)


def _first(chunks: Iterable[bytes], most: int) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk[:most]
        most -= len(chunk)
        if most <= 0:
            return


def events(chunks: Iterable[bytes]) -> Iterator[str]:
    """The data of server-sent events, however the bytes are cut; comments are passed over.

    Raises:
        JunkError: a line, or an event, without end.
    """
    rest = bytearray()
    data: list[str] = []
    size = 0
    for chunk in chunks:
        rest += chunk
        while (at := rest.find(b"\n")) >= 0:
            text = rest[:at].decode("utf-8", "replace").rstrip("\r")
            del rest[: at + 1]
            if text.startswith("data:"):
                data.append(text[5:].removeprefix(" "))
                size += len(text)
            elif not text and data:
                yield "\n".join(data)
                data, size = [], 0
        if len(rest) + size > LARGEST:
            raise JunkError(f"an event of more than {format_bytes(LARGEST, 0)}")
