"""Bytes of a GGUF header from a file, or from the hub by range requests of its first megabytes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from specctl.errors import GgufError, HubError, UsageError

LOCAL_STEP = 4 * 1024**2
REMOTE_STEP = 2 * 1024**2
TIMEOUT = 20.0  # seconds, per request


class LocalSource:
    """A file on this machine. Use as a context manager, or close it."""

    step = LOCAL_STEP

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        try:
            if path.is_dir():
                raise GgufError(f"{path} is a folder", "name the .gguf file in it")
            if path.exists() and not path.is_file():
                raise GgufError(f"{path} is not a regular file")
            self._file: BinaryIO = path.open("rb")
            self.size: int | None = os.fstat(self._file.fileno()).st_size
        except FileNotFoundError:
            raise GgufError(f"{path} does not exist", "check the path") from None
        except OSError as error:
            raise GgufError(f"{path} cannot be opened: {error.strerror or error}") from None

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file."""
        try:
            self._file.seek(offset)
            return self._file.read(size)
        except OSError as error:
            raise GgufError(f"{self.name} cannot be read: {error.strerror or error}") from None

    def beside(self, filename: str) -> LocalSource:
        """Another file of the same folder."""
        return LocalSource(self.path.with_name(filename))

    @property
    def filename(self) -> str:
        """The last part of the path."""
        return self.path.name

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> LocalSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Traffic:
    """What reading remote headers cost so far."""

    requests: int = 0
    bytes: int = 0


class RemoteSource:
    """A file in a hub repository, by HTTP range requests; `traffic` counts them.

    A server that ignores ranges is read from the start as a stream, only as far as needed.
    """

    step = REMOTE_STEP

    def __init__(
        self, repo: str, path: str, revision: str = "main", traffic: Traffic | None = None
    ) -> None:
        from huggingface_hub import constants, hf_hub_url

        self.repo, self.path, self.revision = repo, path, revision
        self.name = f"hf:{repo}/{path}" + ("" if revision == "main" else f"@{revision}")
        self.size: int | None = None
        self.traffic = traffic or Traffic()
        # hf_hub_url takes its endpoint at import time; the environment of now is what is meant
        endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or constants.ENDPOINT
        try:
            self._url = hf_hub_url(repo, path, revision=revision, endpoint=endpoint)
        except ValueError as error:  # huggingface_hub's own rules for names
            raise GgufError(f"{self.name} is no name of a file on the hub: {error}") from error
        self._stack = contextlib.ExitStack()
        self._stream: Iterator[bytes] | None = None
        self._streamed = bytearray()
        if constants.is_offline_mode() or os.environ.get("HF_HUB_OFFLINE", "0") in ("1", "true"):
            raise HubError(
                f"{self.name} is remote and the hub is switched off (HF_HUB_OFFLINE)",
                "name a local file, or unset HF_HUB_OFFLINE",
            )

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the remote file; may ask the server, and counts what that costs."""
        if self._stream is not None:
            return self._read_on(offset, size)
        with self._request(offset, size) as response:
            if response.status_code == 416:  # asked for what lies past the end
                return b""
            if response.status_code == 206:
                self.size = _total_size(response.headers)
                return self._collect(response, size)
        if offset:
            raise HubError(f"{self.name}: the server stopped answering range requests")
        response = self._stack.enter_context(self._request(0, None))
        length = response.headers.get("content-length", "")
        self.size = int(length) if length.isdigit() else None
        self._stream = response.iter_bytes(1 << 16)
        return self._read_on(offset, size)

    def _collect(self, response: Any, size: int) -> bytes:
        got = bytearray()
        for chunk in response.iter_bytes(1 << 16):
            got += chunk
            self.traffic.bytes += len(chunk)
            if len(got) >= size:
                break
        return bytes(got[:size])

    def _read_on(self, offset: int, size: int) -> bytes:
        while self._stream is not None and len(self._streamed) < offset + size:
            chunk = next(self._stream, b"")
            if not chunk:
                break
            self._streamed += chunk
            self.traffic.bytes += len(chunk)
        return bytes(self._streamed[offset : offset + size])

    @contextlib.contextmanager
    def _request(self, offset: int, size: int | None) -> Iterator[Any]:
        from huggingface_hub import get_session
        from huggingface_hub.errors import OfflineModeIsEnabled
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        # identity: a range of a compressed body would be a range of something else
        headers = {**build_hf_headers(), "accept-encoding": "identity"}
        if size is not None:
            headers["range"] = f"bytes={offset}-{offset + size - 1}"
        try:
            with get_session().stream(
                "GET", self._url, headers=headers, follow_redirects=True, timeout=TIMEOUT
            ) as response:
                self.traffic.requests += 1 + len(response.history)
                self._refuse(response)
                yield response
        except OfflineModeIsEnabled as error:
            raise HubError(f"{self.name}: the hub is switched off (HF_HUB_OFFLINE)") from error
        except HubError:
            raise
        except (GgufError, GeneratorExit):
            raise
        except Exception as error:  # the client library's errors have no common public base
            raise HubError(
                f"{self.name} cannot be reached: {type(error).__name__}: {error}",
                "check the network, HF_ENDPOINT and proxy settings",
            ) from error

    def _refuse(self, response: Any) -> None:
        """Say what a refusal means. The hub names the reason in X-Error-Code."""
        status, code = response.status_code, response.headers.get("x-error-code", "")
        if status < 400 or status == 416:
            return
        page = self._url.split("/resolve/", maxsplit=1)[0]
        if code == "GatedRepo" or status == 403:
            raise HubError(
                f"{self.repo} is gated: its owner wants you to accept terms",
                f"open {page}, accept, then set HF_TOKEN",
            )
        if status == 401:
            raise HubError(
                f"{self.repo} does not exist, or is private to someone else",
                "check the spelling; for a private one set HF_TOKEN",
            )
        if code == "EntryNotFound":
            raise HubError(f"{self.repo} has no file {self.path}", f"see {page}/tree/main")
        if code == "RevisionNotFound":
            raise HubError(f"{self.repo} has no revision {self.revision}")
        if status == 404:
            raise HubError(f"{self.name} does not exist", "check owner, repository and file name")
        if status == 429:
            wait = response.headers.get("retry-after")
            raise HubError(
                "the hub asks to slow down (rate limit)",
                f"wait {wait} s" if wait else "wait a minute, or set HF_TOKEN",
            )
        raise HubError(f"{self.name}: the server answered {status}")

    def beside(self, filename: str) -> RemoteSource:
        """Another file of the same folder and revision, counted together with this one."""
        folder = self.path.rpartition("/")[0]
        path = f"{folder}/{filename}" if folder else filename
        return RemoteSource(self.repo, path, self.revision, self.traffic)

    @property
    def filename(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    def close(self) -> None:
        """Let go of an open answer."""
        self._stream = None
        self._stack.close()

    def __enter__(self) -> RemoteSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _total_size(headers: Any) -> int | None:
    """`Content-Range: bytes 0-9/1234` → 1234."""
    total = str(headers.get("content-range", "")).rpartition("/")[2]
    return int(total) if total.isdigit() else None


def open_source(text: str) -> LocalSource | RemoteSource:
    """A path, or `hf:owner/repo/file.gguf` (`hf:owner/repo@revision/file.gguf`).

    Raises:
        UsageError: `hf:` without owner, repository and file.
        GgufError: the file cannot be opened.
    """
    if not text.startswith("hf:"):
        return LocalSource(Path(text).expanduser())
    parts = text.removeprefix("hf:").strip("/").split("/", maxsplit=2)
    if len(parts) < 3 or not all(parts):
        raise UsageError(f"{text!r} is not complete", "write hf:owner/repository/file.gguf")
    repo, _, revision = parts[1].partition("@")
    return RemoteSource(f"{parts[0]}/{repo}", parts[2], revision or "main")
