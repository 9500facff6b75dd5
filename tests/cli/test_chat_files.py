"""/save, /load and --load as a person types them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from terminal import Terminal

pytestmark = [pytest.mark.native, pytest.mark.skipif(sys.platform == "win32", reason="no pty")]

ARGUMENTS = ("-n", "9", "--temperature", "0", "--threads", "1")


def test_save_load_and_go_on(tiny_models: Mapping[str, Path], tmp_path: Path) -> None:
    model, file, other = str(tiny_models["clock"]), tmp_path / "my chat.json", tmp_path / "x.txt"
    other.write_text("mine")
    with Terminal("chat", "--plain", "-m", model, *ARGUMENTS) as terminal:
        at = terminal.wait("> ")
        for typed, shown in (
            ("/save", "/save takes a file"),
            (f"/save {file}", "no conversation to save"),
            ("amber", "9 tokens"),
            (f"/save {other}", "is no saved conversation"),
            (f"/save {file}", "saved 1 turn to"),
            ("/reset", "a new conversation"),
            (f"/load {tmp_path}/none", "cannot read"),
            (f"/load {file}", "1 turn loaded"),
            ("/help", "/load"),
        ):
            terminal.type(typed)
            at = terminal.wait(shown, after=at + len(typed))
            at = terminal.wait("> ", after=at)
        terminal.type("/quit")
        assert terminal.exit_code() == 0
        assert "Traceback" not in terminal.text
    assert other.read_text() == "mine"
    turns = json.loads(file.read_text(encoding="utf-8"))["turns"]
    assert [turn["user"] for turn in turns] == ["amber"]
    alone, going_on = (one_shot(model, *flags) for flags in ((), ("--load", str(file))))
    assert going_on.returncode == 0, going_on.stderr
    assert "1 turn loaded" in going_on.stderr
    assert held(going_on.stderr) > held(alone.stderr)  # the turns are in the context


def held(said: str) -> int:
    """Tokens in the context after the answer, from its line of numbers."""
    return int(said.rpartition("context ")[2].partition("/")[0])


def one_shot(model: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specctl", "chat", "-m", model, *ARGUMENTS, "-p", "apple", *flags],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_a_file_that_is_no_conversation_exits_2_before_a_model_loads(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"schema": "specctl-chat/1", "turns": 3}')
    done = one_shot("no-such-model.gguf", "--load", str(file))
    assert done.returncode == 2
    assert "no list of turns" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_screen_shows_what_was_loaded(tiny_models: Mapping[str, Path], tmp_path: Path) -> None:
    """Both ways in: `/load` in the chat, and `--load` before it begins."""
    from specctl.cli.desk import EngineDesk
    from specctl.engine.dialogue import Dialogue, Manner
    from specctl.engine.session import open_session
    from specctl.engine.transcript import from_dict, restore
    from specctl.settings import EngineSettings, Sampling, SpecSettings
    from specctl.tui.desk import Command, Open
    from specctl.tui.messages import Ready, Recalled

    data = {"schema": "specctl-chat/1", "model": "m", "turns": [{"user": "a", "assistant": "b"}]}
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(data))

    def opener(loaded: bool) -> Callable[[contextlib.ExitStack], Dialogue]:
        def opened(stack: contextlib.ExitStack) -> Dialogue:
            settings = EngineSettings(n_ctx=256, threads=1)
            session = open_session(tiny_models["clock"], None, (SpecSettings(),), settings)
            dialogue = Dialogue(stack.enter_context(session), Manner(Sampling(), 8))
            if loaded:
                dialogue.notes += restore(dialogue, from_dict(data))
            return dialogue

        return opened

    for loaded in (False, True):
        desk = EngineDesk(opener(loaded))
        try:
            first = list(desk.do(Open()))
            later = list(desk.do(Command(f"/load {file}")))
        finally:
            desk.close()
        assert isinstance(first[0], Ready)
        assert (Recalled((("a", "b"),)) in first) is loaded
        assert (Recalled((("a", "b"),)) in later) is not loaded  # nothing new: no redraw
