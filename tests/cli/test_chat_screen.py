"""`specctl chat` on the full screen, in a pseudo-terminal: the real command and a tiny model."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from terminal import Terminal

pytestmark = [pytest.mark.native, pytest.mark.skipif(sys.platform == "win32", reason="no pty")]

GREEDY = ("--temperature", "0")
READY, RUNNING = "Enter send", "^C stop"
CTRL_Q, F2 = b"\x11", b"\x1bOQ"


def records(path: Path) -> list[dict[str, Any]]:
    """What was recorded so far; the last line may be half written."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def kinds(path: Path) -> list[str]:
    return [record["type"] for record in records(path)]


def until(terminal: Terminal, true: Callable[[], bool], seconds: float = 30) -> None:
    """Wait, taking in what the screen writes (a full pty would hold it up)."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, terminal.text[-2000:]
        terminal.read()


def resize(terminal: Terminal, columns: int, lines: int) -> None:
    fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    os.killpg(terminal.process.pid, signal.SIGWINCH)


def test_a_chat_from_the_first_picture_to_the_terminal_given_back(
    tiny_models: Mapping[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "records.jsonl"
    arguments = ("-m", str(tiny_models["clock"]), "-n", "20", "--record", str(path))
    with Terminal("chat", *arguments, *GREEDY) as terminal:
        start = time.monotonic()
        terminal.wait("accepted per cycle")
        assert time.monotonic() - start < 5  # under a second on an idle machine
        terminal.wait(READY)
        terminal.type("amber")
        until(terminal, lambda: "finished" in kinds(path))
        at = len(terminal.text)
        os.write(terminal.master, F2)
        at = terminal.wait("F2 speculation on", after=at)
        terminal.type("bread")
        until(terminal, lambda: kinds(path).count("finished") == 2)
        os.write(terminal.master, CTRL_Q)
        assert terminal.exit_code() == 0
        assert terminal.settings_restored()
        assert "\x1b[?1049l" in terminal.raw  # the other screen is back
        assert "Traceback" not in terminal.text
    first, second = (record for record in records(path) if record["type"] == "started")
    assert (first["message"], first["spec_types"]) == ("amber", ["auto"])
    assert (second["message"], second["spec_types"]) == ("bread", ["none"])


def test_ctrl_c_stops_within_a_cycle_and_the_chat_goes_on(
    tiny_models: Mapping[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "records.jsonl"
    arguments = ("-m", str(tiny_models["slow"]), "-n", "4000", "--record", str(path), "-t", "1")
    with Terminal("chat", *arguments, *GREEDY) as terminal:
        terminal.wait(READY)
        terminal.type("amber")
        until(terminal, lambda: kinds(path).count("cycle") > 3)
        start = time.monotonic()
        terminal.press_ctrl_c()
        until(terminal, lambda: "finished" in kinds(path), 10)
        assert time.monotonic() - start < 2
        assert records(path)[-1]["reason"] == "cancelled"
        terminal.type("bread")
        until(terminal, lambda: kinds(path).count("started") == 2)
        os.write(terminal.master, CTRL_Q)  # in the middle of an answer
        assert terminal.exit_code() == 0
        assert terminal.settings_restored()


def test_resizes_while_it_writes(tiny_models: Mapping[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    arguments = ("-m", str(tiny_models["slow"]), "-n", "4000", "--record", str(path), "-t", "1")
    with Terminal("chat", *arguments, *GREEDY, COLUMNS="", LINES="") as terminal:
        terminal.wait(READY)
        terminal.type("amber")
        until(terminal, lambda: "cycle" in kinds(path))
        for size in ((120, 40), (40, 10), (20, 5)):
            resize(terminal, *size)
            seen = len(records(path))
            until(terminal, lambda seen=seen: len(records(path)) > seen + 3)
        at = len(terminal.text)
        resize(terminal, 100, 30)
        terminal.wait("accepted per cycle", after=at)
        os.write(terminal.master, CTRL_Q)
        assert terminal.exit_code() == 0
        assert "Traceback" not in terminal.text


def test_sigterm_gives_the_terminal_back(tiny_models: Mapping[str, Path]) -> None:
    with Terminal("chat", "-m", str(tiny_models["clock"])) as terminal:
        terminal.wait(READY)
        terminal.process.send_signal(signal.SIGTERM)
        terminal.exit_code()
        assert terminal.settings_restored()
        assert "\x1b[?1049l" in terminal.raw


def test_interrupts_in_a_row_stop_and_continue_and_bytes_that_are_no_text(
    tiny_models: Mapping[str, Path],
) -> None:
    with Terminal("chat", "-m", str(tiny_models["clock"])) as terminal:
        terminal.wait(READY)
        os.write(terminal.master, b"\x1b[200~caf\xe9\x1b[201~\xff")
        terminal.wait("caf�")
        for name in (signal.SIGSTOP, signal.SIGCONT):
            terminal.process.send_signal(name)
            time.sleep(0.2)
        for _ in range(2):
            terminal.process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        terminal.exit_code()
        assert terminal.settings_restored()
        assert "\x1b[?1049l" in terminal.raw


def test_a_model_that_does_not_open_is_an_error_on_the_terminal(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    with Terminal("chat", "-m", str(broken)) as terminal:
        assert terminal.exit_code() == 1
        assert terminal.settings_restored()
        end = terminal.raw.rpartition("\x1b[?1049l")[2]
        assert "error: " in end
        assert "broken.gguf" in end


@pytest.mark.parametrize(
    ("environ", "note"),
    [
        ({"TERM": "dumb"}, "line by line: TERM is dumb"),
        ({"COLUMNS": "30"}, "line by line: the terminal is 30×"),
        ({"COLUMNS": "80", "LINES": "6"}, "smaller than 40×10"),
    ],
)
def test_where_no_screen_can_be_it_is_line_by_line(
    tiny_models: Mapping[str, Path], environ: dict[str, str], note: str
) -> None:
    with Terminal("chat", "-m", str(tiny_models["clock"]), "-n", "5", **environ) as terminal:
        at = terminal.wait(note)
        terminal.wait("> ", after=at)
        terminal.type("/quit")
        assert terminal.exit_code() == 0
        assert "\x1b[?1049h" not in terminal.raw


def test_native_output_never_touches_the_screen(tmp_path: Path) -> None:
    """Lines written to descriptors 1 and 2 land in the log, not on the terminal."""
    code = f"""
import os, sys
from pathlib import Path
from specctl.cli import screen
with screen.own_terminal(Path({str(tmp_path / "native.log")!r})):
    os.write(1, b"native one\\n"); os.write(2, b"native two\\n"); print("printed", flush=True)
    sys.__stderr__.write("the screen\\n"); sys.__stderr__.flush()
print("after", file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("", "the screen\nafter\n")
    log = (tmp_path / "native.log").read_text()
    assert log.splitlines() == ["native one", "native two", "printed"]


def test_a_save_asked_for_in_the_middle_is_done_on_leaving(
    tiny_models: Mapping[str, Path], tmp_path: Path
) -> None:
    path, saved = tmp_path / "records.jsonl", tmp_path / "chat.json"
    arguments = ("-m", str(tiny_models["slow"]), "-n", "4000", "--record", str(path), "-t", "1")
    with Terminal("chat", *arguments, *GREEDY) as terminal:
        terminal.wait(READY)
        terminal.type("amber")
        until(terminal, lambda: "cycle" in kinds(path))
        terminal.type(f"/save {saved}")
        terminal.wait("will be saved")
        os.write(terminal.master, CTRL_Q)
        assert terminal.exit_code() == 0
        assert "saved 1 turn to" in terminal.text[-400:]
        assert terminal.settings_restored()
    assert "amber" in saved.read_text()
