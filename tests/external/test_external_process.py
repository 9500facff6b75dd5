"""A server as our process: it starts, fails, hangs, ignores us, and never stays behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specctl.errors import RemoteError, SpecctlError, UsageError
from specctl.external.launch import Launch
from specctl.external.poll import open_server
from specctl.external.process import (
    Server,
    check_port,
    check_speculation,
    find_program,
    wait_ready,
    write_files,
)
from specctl.external.wire import Line, address

FAKE = Path(__file__).parent / "fake_llama_server.py"
pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "llama-server"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def line(port: int) -> Iterator[Line]:
    made = Line(address(f"127.0.0.1:{port}"))
    yield made
    made.close()


@pytest.fixture
def start(program: Path, port: int, tmp_path: Path) -> Callable[..., Server]:
    def run(*flags: str, grace: float = 5.0) -> Server:
        command = (str(program), "--port", str(port), *flags)
        return Server(command, tmp_path / "server.log", grace)

    return run


def gone(pid: int, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        state = Path(f"/proc/{pid}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True  # nobody here reaps what was adopted
        time.sleep(0.05)
    return False


def test_it_starts_speculates_and_is_gone(start, line):
    with start() as server:
        wait_ready(server, line, 20)
        seen, _ = open_server(line, probing=False)
        (said,) = check_speculation(line, seen, server)
        assert said.kind == "note"
        assert "6 of 12 drafted tokens stood, in 3 drafts" in said.text
        assert server.ended is None
    assert gone(server.pid)


@pytest.mark.parametrize(("drafts", "words"), [(1, "in 1 draft"), (2, "in 2 drafts")])
def test_drafts_are_counted_in_words(start, line, monkeypatch, drafts, words):
    monkeypatch.setattr("specctl.external.process._moved", lambda *_: (drafts, 12, 6))
    with start() as server:
        wait_ready(server, line, 20)
        (said,) = check_speculation(line, open_server(line, probing=False)[0], server)
    assert said.text.endswith(words)


def test_it_is_off(start, line):
    with start("--fake", "off") as server:
        wait_ready(server, line, 20)
        (said,) = check_speculation(line, open_server(line, probing=False)[0], server)
    assert said.kind == "warning"
    assert "speculation is off" in said.text
    assert "loading draft model" in said.text  # its log's words on it


def test_it_drafts_nothing(start, line, monkeypatch):
    monkeypatch.setattr("specctl.external.process._SETTLE", 0.3)
    with start("--fake", "idle") as server:
        wait_ready(server, line, 20)
        (said,) = check_speculation(line, open_server(line, probing=False)[0], server)
    assert said.text.startswith("nothing was drafted")


def test_a_first_request_that_takes_too_long_ends_nothing(start, line, monkeypatch):
    monkeypatch.setattr("specctl.external.process.FIRST_SECONDS", 0.3)
    with start("--fake", "slow") as server:
        wait_ready(server, line, 20)
        (said,) = check_speculation(line, open_server(line, probing=False)[0], server)
        assert server.ended is None
    assert said.kind == "warning"
    assert "did not answer within 300 ms; whether it drafts is not known" in said.text


def test_it_dies_at_the_start_and_its_last_words_are_shown(start, line):
    with start("--fake", "dies") as server, pytest.raises(RemoteError) as caught:
        wait_ready(server, line, 20)
    assert "ended with exit code 3" in caught.value.message
    assert "failed to load model" in caught.value.hint


def test_it_is_never_ready(start, line):
    told: list[str] = []
    with start("--fake", "hangs") as server, pytest.raises(RemoteError) as caught:
        wait_ready(server, line, 1.0, told.append)
    assert "does not answer after" in caught.value.message
    assert "build: 1" in caught.value.hint
    assert gone(server.pid)


def test_one_that_ignores_sigterm_is_killed(start, line):
    with start("--fake", "deaf", grace=0.5) as server:
        wait_ready(server, line, 20)
        begin = time.monotonic()
    assert gone(server.pid)
    assert time.monotonic() - begin < 5


def test_its_children_go_with_it(start, line, tmp_path):
    pids = tmp_path / "pids"
    with start("--fake", "child", "--pids", str(pids)) as server:
        wait_ready(server, line, 20)
    assert gone(int(pids.read_text()))


def test_it_ends_with_us_even_where_we_are_killed(program, port, tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from specctl.external.process import Server; "
        f"s = Server(({str(program)!r}, '--port', '{port}'), Path({str(tmp_path / 'l')!r}), 2.0); "
        "print(s.pid, flush=True); time.sleep(600)"
    )
    ours = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert ours.stdout is not None
    pid = int(ours.stdout.readline())
    os.kill(ours.pid, signal.SIGKILL)
    ours.wait()
    ours.stdout.close()
    assert gone(pid)


def test_what_cannot_be_started(tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("\x00")
    broken.chmod(0o755)
    with pytest.raises(SpecctlError, match="cannot be started"):
        Server((str(broken),), tmp_path / "log")
    with pytest.raises(SpecctlError, match="cannot be started"):
        Server((str(tmp_path / "missing"),), tmp_path / "log")


def launch(*command: str, **more) -> Launch:
    return Launch("llama-server", (command,), ("none",), "none", "127.0.0.1", 1, **more)


def test_programs_are_found_or_named(program, monkeypatch):
    monkeypatch.setenv("PATH", str(program.parent))
    assert find_program(launch("llama-server", "-m", "x"), None) == (str(program), "-m", "x")
    assert find_program(launch("llama-server"), program) == (str(program),)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SpecctlError, match="not installed"):
        find_program(launch("llama-server"), None)
    with pytest.raises(UsageError, match="no program"):
        find_program(launch("llama-server"), FAKE.parent)


def test_files_are_written_and_named_in_full(tmp_path):
    one = launch("trtllm-serve", "--config", "spec.yaml", files=(("spec.yaml", "a: 1\n"),))
    command = write_files(one, one.node(0), tmp_path / "new")
    assert command[-1] == str(tmp_path / "new" / "spec.yaml")
    assert Path(command[-1]).read_text() == "a: 1\n"


def test_a_port_that_is_taken(port):
    with socket.create_server(("127.0.0.1", port)):
        taken = Launch("llama-server", (), ("none",), "none", "127.0.0.1", port)
        with pytest.raises(SpecctlError, match="already"):
            check_port(taken)
    check_port(taken)
