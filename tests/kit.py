"""What tests of several rooms need: waiting, free ports, specctl as a process, a fake engine."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_EXTERNAL = Path(__file__).parent / "external"


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Until `condition()` is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def free_port() -> int:
    """One that nobody listens on just now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`specctl ARGUMENTS` as a process, its output in pipes; it does not outlive this."""
    process = subprocess.Popen(
        [sys.executable, "-m", "specctl", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def stand_in(folder: Path) -> tuple[str, str]:
    """A program that takes llama-server's flags (fake_llama_server.py), and a model file for it."""
    program, model = folder / "llama-server", folder / "model.gguf"
    script = _EXTERNAL / "fake_llama_server.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    program.chmod(0o755)
    model.write_bytes(b"GGUF")
    return str(program), str(model)
