"""`specctl dashboard`: as text, as a picture, and in a pseudo-terminal from start to end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from terminal import Terminal

from specctl.cli.app import main

RESULT = Path(__file__).parents[2] / "docs" / "results" / "demo-f16.json"
RECORDING = Path(__file__).parents[2] / "docs" / "recordings" / "docstrings.jsonl"
CTRL_Q, TAB = b"\x11", b"\t"
CARD = ("--vram", "8", "--ram", "32")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """specctl's folder with a result, a broken one, and a recording; no other program's models."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith(("HF_HOME", "XDG_", "OLLAMA_"))]:
        monkeypatch.delenv(name)
    data = tmp_path / "specctl-home" / "data"
    for folder in ("bench", "recordings", "models/imported"):
        (data / folder).mkdir(parents=True)
    shutil.copy(RESULT, data / "bench" / "2026-11-30-010203-kept.json")
    (data / "bench" / "broken.json").write_text(json.dumps({"schema": "specctl-bench/1"}))
    shutil.copy(RECORDING, data / "recordings" / "r.jsonl")
    return data


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specctl", "dashboard", *arguments],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


# ---------------------------------------------------------------- as text, as a picture


def test_a_config_path_that_cannot_exist_is_no_config(home: Path) -> None:
    done = run("--once", *CARD, COLUMNS="100", SPECCTL_CONFIG="/dev/null/x/config.toml")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_picture_says_where_it_is_or_why_not(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "x.svg"
    done = run("--svg", str(file), *CARD)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"cannot write {file}: no folder" in done.stderr
    assert not file.parent.exists()
    file.parent.mkdir()
    done = run("--svg", str(file), *CARD)
    assert done.returncode == 0
    assert done.stderr == f"saved as {file}\n"
    assert file.read_text().startswith("<svg")


@pytest.mark.parametrize("flags", [(), ("--once",)])
def test_where_there_is_no_terminal_it_is_text(home: Path, flags: tuple[str, ...]) -> None:
    done = run(*flags, *CARD, COLUMNS="100")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    sections = ("this machine · simulated", "recommended for it", "downloaded", "recent results")
    places = [done.stdout.find(f"\n{title}" if at else title) for at, title in enumerate(sections)]
    assert places == sorted(places)
    assert places[0] == 0
    assert "A model can use 7.5 GiB" in done.stdout
    assert "$ specctl pull " in done.stdout
    assert "▲ auto 1.43× faster" in done.stdout
    assert "broken.json is damaged" in done.stdout
    assert "recording, qwen15-f16.gguf" in done.stdout
    words = [line for line in done.stdout.splitlines() if "$ specctl" not in line]  # never cut
    assert max(map(len, words)) <= 100


def test_a_new_machine_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    done = run("--once", *CARD, SPECCTL_ASCII="1")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "nothing measured yet" in done.stdout


def test_the_picture_holds_the_screen_and_no_folder_of_this_machine(home: Path) -> None:
    path = home / "home.svg"
    done = run("--svg", str(path), "--size", "160x45", *CARD)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"saved as {path}\n")
    svg = path.read_text(encoding="utf-8").replace("&#160;", " ")
    assert "recommended for it" in svg
    assert "1.43×" in svg
    assert "looking" not in svg
    assert str(home) not in svg
    assert "http" not in svg.replace("http://www.w3.org", "").replace("https://www.textualize", "")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--svg", "x.png"), "is no .svg file"),
        (("--svg", "x.svg", "--size", "7"), "is not a size"),
        (("--vram", "much"), "'much' is not a size"),
        (("--gpu", "no such card at all"), "not in the data-sheet table"),
        (("--svg", "x.svg", "--theme", "pink"), "there is no theme"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_else(
    flags: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["specctl", "dashboard", *flags])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert end.value.code == 2
    assert (out, said in err) == ("", True)


# ---------------------------------------------------------------- on a terminal

pty_only = pytest.mark.skipif(sys.platform == "win32", reason="no pty")


@pty_only
@pytest.mark.native
def test_from_home_to_a_chat_and_back_and_out(home: Path, tiny_models: Mapping[str, Path]) -> None:
    shutil.copy(tiny_models["clock"], home / "models" / "imported" / "aaa-clock.gguf")
    with Terminal("dashboard", LINES="24") as terminal:
        begun = time.monotonic()
        terminal.wait("recent results")
        assert time.monotonic() - begun < 5  # under a second on an idle machine
        terminal.wait("broken.json is damaged")
        os.write(terminal.master, b"\x1b[F")  # End: the last model
        at = terminal.wait("specctl chat --model aaa-clock.gguf")
        os.write(terminal.master, b"c")
        terminal.wait("$ specctl chat --model aaa-clock.gguf", after=at)
        at = terminal.wait("Enter send", after=at)
        terminal.type("amber")
        os.write(terminal.master, CTRL_Q)
        at = terminal.wait("recommended for it", after=at)
        at = terminal.wait("aaa-clock.gguf", after=at)  # still selected
        os.write(terminal.master, CTRL_Q)
        assert terminal.exit_code() == 0
        assert terminal.settings_restored()
        assert terminal.raw.count("\x1b[?1049h") == 3
        assert terminal.raw.rstrip().endswith("\x1b[?25h")
        assert "Traceback" not in terminal.text


@pty_only
@pytest.mark.native
def test_a_command_that_fails_is_read_before_home_comes_back(home: Path) -> None:
    (home / "models" / "imported" / "aaa-bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with Terminal("dashboard", LINES="24") as terminal:
        terminal.wait("aaa-bad.gguf")
        terminal.wait("broken.json is damaged")
        os.write(terminal.master, b"\x1b[F")
        at = terminal.wait("specctl chat --model aaa-bad.gguf")
        os.write(terminal.master, b"c")
        at = terminal.wait("error: ", after=at)
        at = terminal.wait("exit code 1. Enter: back to the home screen", after=at)
        terminal.type("")
        at = terminal.wait("recommended for it", after=at)
        os.write(terminal.master, b"c")
        terminal.wait("exit code 1. Enter", after=at)
        terminal.press_ctrl_c()
        assert terminal.exit_code() == 0
        assert terminal.settings_restored()


@pty_only
def test_a_result_is_read_and_a_recording_replayed(home: Path) -> None:
    with Terminal("dashboard", LINES="30") as terminal:
        terminal.wait("broken.json is damaged")
        os.write(terminal.master, TAB)
        at = terminal.wait("specctl replay")
        os.write(terminal.master, b"\r")
        at = terminal.wait("Space pause", after=at)
        os.write(terminal.master, b"q")
        at = terminal.wait("recommended for it", after=at)
        os.write(terminal.master, b"\x1b[F")
        at = terminal.wait("specctl bench page 2026-11-30-010203-kept", after=at)
        os.write(terminal.master, b"\r")
        at = terminal.wait("Does it pay?", after=at)
        os.write(terminal.master, b"\x1b")
        time.sleep(0.5)
        os.write(terminal.master, CTRL_Q)
        assert terminal.exit_code() == 0
        assert terminal.settings_restored()
        assert "Traceback" not in terminal.text


@pty_only
@pytest.mark.parametrize(
    ("environ", "note"),
    [({"TERM": "dumb"}, "as text: TERM is dumb"), ({"LINES": "6"}, "smaller than 40×10")],
)
def test_where_no_screen_can_be_it_is_text(home: Path, environ: dict[str, str], note: str) -> None:
    with Terminal("dashboard", *CARD, **environ) as terminal:
        assert terminal.exit_code(60) == 0
        assert note in terminal.text
        assert "recommended for it" in terminal.text
        assert "\x1b[?1049h" not in terminal.raw


@pty_only
def test_sigterm_gives_the_terminal_back(home: Path) -> None:
    with Terminal("dashboard", LINES="24") as terminal:
        terminal.wait("recent results")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.exit_code()
        assert terminal.settings_restored()
        assert "\x1b[?1049l" in terminal.raw
