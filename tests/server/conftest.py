"""`specctl serve` in a process of its own, and the official client."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest


class Server:
    """One server process; `stop` sends a signal and returns its exit code."""

    def __init__(self, *arguments: str, environ: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "specctl", "serve", "--port", "0", "-t", "1", *arguments],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environ or {})},
        )
        self.lines: list[str] = []
        self.url = ""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"listening on (http://\S+)", line)
            if found:
                self.url = found[1]
            if " is ready" in line:
                break
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines += self.process.stderr

    def stop(self, number: int) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(20)
        self._reader.join(5)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., Server]]:
    """Starts servers; what still runs at the end is killed."""
    started: list[Server] = []

    def start(*arguments: str, environ: Mapping[str, str] | None = None) -> Server:
        started.append(Server(*arguments, environ=environ))
        return started[-1]

    yield start
    for server in started:
        server.stop(9)


@pytest.fixture(scope="module")
def server(serve: Callable[..., Server], tiny_models: Mapping[str, Path]) -> Server:
    """The clock pair with draft-simple, greedy unless a request says otherwise."""
    model, draft = str(tiny_models["clock"]), str(tiny_models["clock-draft"])
    started = serve("-m", model, "-d", draft, "-s", "draft-simple", "--temperature", "0")
    assert started.url, started.lines
    return started
