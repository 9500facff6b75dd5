"""llama.cpp stops the process: what is said, the exit code, and what the terminal is then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gguf
import pytest
import tiny
from terminal import Terminal

pytestmark = [pytest.mark.native, pytest.mark.skipif(sys.platform == "win32", reason="no pty")]

SAID = "llama.cpp stopped the process: "


@pytest.fixture
def unforeseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that llama.cpp aborts on and that nothing refuses: it may know newer names."""
    close = tiny._close

    def with_a_strange_scaling(writer: gguf.GGUFWriter) -> None:
        writer.add_string("llama.rope.scaling.type", "bogus")
        close(writer)

    monkeypatch.setattr(tiny, "_close", with_a_strange_scaling)
    return tiny.build("clock", tmp_path)


def test_an_abort_is_a_sentence_and_exit_code_1(unforeseen: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "specctl", "chat", "-m", str(unforeseen), "--plain", "-p", "hi"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"error: {SAID}llama-model.cpp:" in done.stderr
    assert done.stderr.endswith("failed; the model file may be damaged\n")


def test_the_full_screen_is_left_before_the_process_ends(unforeseen: Path) -> None:
    with Terminal("chat", "-m", str(unforeseen), LINES="24") as terminal:
        code = terminal.exit_code(60)
        assert code == 1
        assert terminal.settings_restored()
        left = terminal.raw.rindex("\x1b[?1049l")
        assert "\x1b[?1049h" in terminal.raw[:left]
        assert terminal.raw.rindex("\x1b[?25h") > left
        assert SAID in terminal.raw[left:]
        assert terminal.raw.endswith("may be damaged\r\n")


def test_several_threads_that_abort_speak_once() -> None:
    code = """
import ctypes, threading
from specctl.llama import abort, api
api.library()
stop = api.symbol("ggml_abort", None, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p)
with abort.restored_by(lambda: print("restored", flush=True)):
    for _ in range(4):
        threading.Thread(target=stop, args=(b"/a/b/x.cpp", 7, b"no device")).start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "restored\n")
    assert done.stderr == f"error: {SAID}x.cpp:7: no device; the model file may be damaged\n"
