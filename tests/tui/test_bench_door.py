"""`specctl bench --tui`, from the command to the terminal given back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")
pytest.importorskip("numpy")
fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")

HERE = Path(__file__).parent
# The command with a scripted engine that also writes to the terminal behind everyone's back.
SCRIPT = """
import os, sys, time
sys.path[:0] = [{here!r}, {bench!r}]
import specctl.engine.session as engine
from fake_bench import GOOD, FakeSession

class Noisy(FakeSession):
    def generate(self, request):
        os.write(1, b"NATIVE NOISE")
        os.write(2, b"NATIVE NOISE")
        time.sleep({pause})
        yield from super().generate(request)

engine.open_session = lambda *_: Noisy({{("ngram-simple",): GOOD}})
sys.argv = ["specctl", "bench", *sys.argv[1:]]
from specctl.cli.app import main
main()
"""
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


class Terminal:
    """The command on a pseudo-terminal of 100×30."""

    def __init__(
        self, tmp_path: Path, *flags: str, pause: float = 0.0, term: str = "xterm"
    ) -> None:
        import struct

        model = tmp_path / "some-model.gguf"
        model.write_bytes(b"GGUF")
        code = SCRIPT.format(here=str(HERE), bench=str(HERE.parent / "bench"), pause=pause)
        self.fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "-m", str(model), "--quick", "--tui", *flags],
            stdin=child,
            stdout=child,
            stderr=child,
            env={**env, "TERM": term, "PYTHONIOENCODING": "utf-8"},
            close_fds=True,
            start_new_session=True,
        )
        os.close(child)
        os.set_blocking(self.fd, False)
        self.seen = b""

    def read(self) -> None:
        try:
            while part := os.read(self.fd, 65536):
                self.seen += part
        except (BlockingIOError, OSError):
            pass

    def until(self, *words: bytes, seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while not all(word in self.seen for word in words):
            assert time.monotonic() < end, self.seen[-3000:]
            self.read()
            time.sleep(0.01)

    def press(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def end(self, seconds: float = 20.0) -> int:
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, self.seen[-3000:]
            self.read()
            time.sleep(0.01)
        self.read()
        os.close(self.fd)
        return self.process.returncode

    def after(self) -> str:
        """What stands on the terminal once the screen has gone."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.seen.rpartition(LEAVE)[2].decode())


def test_measured_on_the_screen_and_printed_on_leaving(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    terminal = Terminal(tmp_path, "--json", str(result))
    terminal.until(ENTER, b"Does it pay?")  # the report, by itself
    assert b"NATIVE NOISE" not in terminal.seen
    terminal.press(b"\x11")  # Ctrl-Q
    assert terminal.end() == 0
    assert terminal.seen.count(LEAVE) >= 1
    printed = terminal.after()
    assert "Does it pay?" in printed
    assert "1.94×" in printed  # 64 tokens in 22 cycles of 15 ms
    assert "with the screen open" in " ".join(printed.split())
    assert "kept as" in printed
    assert "NATIVE NOISE" not in printed
    data = json.loads(result.read_text(encoding="utf-8"))
    assert len(data["runs"]) == 6
    assert not data["interrupted"]


def test_ctrl_c_keeps_and_ctrl_q_leaves(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    terminal = Terminal(tmp_path, "--json", str(result), "--repeats", "50", pause=0.05)
    terminal.until(b"1.94")  # the first cell
    terminal.press(b"\x03")
    terminal.until(b"Does it pay?")
    terminal.press(b"\x11")
    assert terminal.end() == 130
    assert "stopped: this is about" in " ".join(terminal.after().split())
    data = json.loads(result.read_text(encoding="utf-8"))
    assert data["interrupted"]
    assert 2 <= len(data["runs"]) < 300


@pytest.mark.parametrize("key", [b"\x03", b"\x11"])
def test_with_nothing_complete_it_is_130(tmp_path: Path, key: bytes) -> None:
    terminal = Terminal(tmp_path, pause=1.0)
    terminal.until(ENTER, b"warming up")
    terminal.press(key)
    assert terminal.end() == 130
    assert LEAVE in terminal.seen
    assert "Traceback" not in terminal.after()
    assert "Does it pay?" not in terminal.after()


def test_an_error_is_told_on_the_terminal(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "--max-tokens", "5000")
    assert terminal.end() == 2
    assert "--ctx" in terminal.after()


def test_a_dumb_terminal_gets_the_plain_view(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, term="dumb")
    assert terminal.end() == 0
    assert ENTER not in terminal.seen
    shown = " ".join(terminal.seen.decode().split())
    assert "TERM is dumb" in shown
    assert "Does it pay?" in shown


def test_a_pipe_gets_the_plain_view(tmp_path: Path) -> None:
    model = tmp_path / "some-model.gguf"
    model.write_bytes(b"GGUF")
    code = SCRIPT.format(here=str(HERE), bench=str(HERE.parent / "bench"), pause=0.0)
    done = subprocess.run(
        [sys.executable, "-c", code, "-m", str(model), "--quick", "--tui"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the plain view instead" in done.stderr
    assert "1.94×" in done.stdout
