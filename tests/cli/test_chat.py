"""`specctl chat` as a person meets it: terminal, pipes, Ctrl-C, a full context."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from terminal import Terminal

from specctl.cli.stream import summary
from specctl.engine.session import Session
from specctl.events import Finished
from specctl.metrics import Totals

pytestmark = [pytest.mark.native, pytest.mark.skipif(sys.platform == "win32", reason="no pty")]

GREEDY = ("--temperature", "0")


def run(*arguments: str, text: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specctl", *arguments],
        input=text,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, **environ},
        timeout=120,
        check=False,
    )


def test_a_full_context_is_not_more_than_full() -> None:
    finished = Finished("context", prompt_tokens=4000, emitted_tokens=97, seconds=1.0)
    assert "context 4096/4096 · context full" in summary(Totals(), finished, 4096)


@pytest.mark.parametrize(("trained", "said"), [(-1, []), (0, []), (256, ["256"])])
def test_a_training_length_that_is_not_known_is_no_note(trained: int, said: list[str]) -> None:
    notes: list[str] = []
    model = SimpleNamespace(n_ctx_train=trained)
    session = SimpleNamespace(n_ctx=512, model=model, _note=notes.append)
    Session._note_context(session, 512)  # type: ignore[arg-type]
    assert [re.findall(r"trained for (\S+) tokens", note)[0] for note in notes] == said


def test_one_question_one_answer(tiny_models: Mapping[str, Path]) -> None:
    done = run("chat", "-m", str(tiny_models["clock"]), "-n", "12", *GREEDY, text="amber\n")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 12
    assert "tok/s" in done.stderr
    assert "max-tokens" in done.stderr


def test_a_pipe_gets_the_answer_and_nothing_else(tiny_models: Mapping[str, Path]) -> None:
    model = str(tiny_models["clock"])
    plain = run("chat", "-m", model, "-n", "30", *GREEDY, text="amber")
    drafted = run(
        *("chat", "-m", model, "-n", "30", *GREEDY, "--spec-type", "draft-simple"),
        *("--draft", str(tiny_models["clock-draft"])),
        text="amber",
        LC_ALL="C",
        PYTHONIOENCODING="cp1252",
    )
    assert drafted.returncode == 0, drafted.stderr
    assert drafted.stdout == plain.stdout
    assert "\x1b" not in drafted.stdout + drafted.stderr
    assert re.search(r"accepted/cycle .* coverage \d+ % .* break-even", drafted.stderr)


EVIL = "\x1b[2J\x1b]0;gone\x07 \x9b31m a\tb\nc\r\nd\re \u202edrowssap\u2066 ü😀"


@pytest.fixture
def evil(tmp_path: Path) -> str:
    """A grammar that makes any model say EVIL."""
    file = tmp_path / "evil.gbnf"
    text = "".join(sign if sign.isprintable() else f"\\U{ord(sign):08X}" for sign in EVIL)
    file.write_text(f'root ::= "{text}"', encoding="utf-8")
    return str(file)


def test_a_pipe_gets_control_characters_as_they_are(
    tiny_models: Mapping[str, Path], evil: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "specctl", "chat", "-m", str(tiny_models["clock"]), "--grammar",
         evil, "-p", "amber"],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{EVIL}\n".encode()


@pytest.mark.parametrize(
    ("environ", "shown"),
    [
        ({}, "␛[2J␛]0;gone␇ �31m a\tb\nc\nd␍e �drowssap� ü😀"),
        ({"SPECCTL_ASCII": "1"}, "^[[2J^[]0;gone^G ?31m a\tb\nc\nd^Me ?drowssap? ü😀"),
    ],
)
def test_a_terminal_is_not_steered_by_what_a_model_says(
    tiny_models: Mapping[str, Path], evil: str, environ: dict[str, str], shown: str
) -> None:
    model = str(tiny_models["clock"])
    with Terminal("chat", "-m", model, "--plain", "--grammar", evil, **environ) as terminal:
        terminal.wait("> ")
        terminal.type("amber")
        terminal.wait("tok/s")
        assert shown in terminal.raw.replace("\r\n", "\n")
        assert "\x9b" not in terminal.raw
        assert "\x1b[2J" not in terminal.raw
        assert "\x07" not in terminal.raw
        terminal.type("/quit")
        assert terminal.exit_code() == 0


def test_json_is_records_line_by_line(tiny_models: Mapping[str, Path]) -> None:
    model = str(tiny_models["clock"])
    done = run("chat", "-m", model, "-n", "5", *GREEDY, "--json", text="amber")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["type"] for record in records] == [
        "started",
        "prompt",
        *["cycle"] * 5,
        "finished",
    ]
    assert "".join(r["text"] for r in records if r["type"] == "cycle").split()


def test_a_reader_that_leaves_early_is_no_error(tiny_models: Mapping[str, Path]) -> None:
    command = f'"{sys.executable}" -m specctl chat -m "{tiny_models["clock"]}" --json'
    done = subprocess.run(
        ["bash", "-c", f"echo amber | {command} | head -3; exit ${{PIPESTATUS[1]}}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert len(done.stdout.splitlines()) == 3
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "error" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("arguments", ["--version", "--help", "drafters", "chat -p hi -n 3 -m {}"])
def test_a_full_disk_is_no_bug(arguments: str, tiny_models: Mapping[str, Path]) -> None:
    command = f'"{sys.executable}" -m specctl {arguments.format(tiny_models["clock"])} > /dev/full'
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "cannot write the output: No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_record_file_replays(tiny_models: Mapping[str, Path], tmp_path: Path) -> None:
    from specctl.metrics import fold
    from specctl.recording import read

    file = tmp_path / "run.jsonl"
    model = str(tiny_models["clock"])
    run("chat", "-m", model, "-n", "7", *GREEDY, "--record", str(file), text="amber")
    assert fold(read(file)).emitted == 7


def test_stop_string_ends_the_answer_before_it(tiny_models: Mapping[str, Path]) -> None:
    model = str(tiny_models["clock"])
    words = run("chat", "-m", model, "-n", "12", *GREEDY, text="amber").stdout.split()
    done = run("chat", "-m", model, "-n", "12", *GREEDY, "--stop", words[4], text="amber")
    assert done.stdout.split() == words[:4]


def test_a_broken_template_is_said_and_chatting_goes_on(tiny_models: Mapping[str, Path]) -> None:
    done = run("chat", "-m", str(tiny_models["clock-broken-template"]), "-n", "4", text="amber")
    assert done.returncode == 0, done.stderr
    assert "template is broken" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--k", "0"), 2, "k 0"),
        (("--temperature", "-1"), 2, "temperature -1"),
        (("--spec-type", "ngram-simpel"), 2, "did you mean ngram-simple"),
        (("--spec-type", "draft-simple"), 2, "--draft"),
        (("--ctx", "5"), 2, "context of 5"),
        (("--kv-type", "q99"), 2, "q99"),
        (("--think", "maybe"), 2, "maybe"),
        (("--model", "nope.gguf"), 1, "nope.gguf"),
        (("--model", __file__), 1, "not a GGUF"),
        (("--no-such-flag",), 2, "no-such-flag"),
        (("--n-cpu-moe", "99999999999"), 2, "n-cpu-moe"),
        (("--repeat-penalty", "1e-300"), 2, "repeat penalty"),
        (("--prompt", "@invioce.py rename it"), 2, "no file invioce.py"),
    ],
)
def test_bad_input_is_told_without_a_traceback(
    arguments: tuple[str, ...], code: int, said: str, tiny_models: Mapping[str, Path]
) -> None:
    model = () if "--model" in arguments else ("--model", str(tiny_models["clock"]))
    done = run("chat", *model, *arguments, text="amber")
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_switch_that_the_template_does_not_have_is_said(
    tiny_models: Mapping[str, Path],
) -> None:
    done = run("chat", "-m", str(tiny_models["clock"]), "-n", "4", "--think", "on", text="amber")
    assert done.returncode == 0, done.stderr
    assert "--think changes nothing" in done.stderr


def test_a_draft_of_another_vocabulary_is_refused(tiny_models: Mapping[str, Path]) -> None:
    done = run(
        *("chat", "-m", str(tiny_models["clock"]), "--spec-type", "draft-simple"),
        *("--draft", str(tiny_models["draft-other-token"])),
        text="amber",
    )
    assert done.returncode == 1
    assert re.search(r"token \d+ differs: target '.*', draft '.*'", done.stderr)


@pytest.mark.parametrize("name", ["hybrid", "recurrent"])
def test_speculation_on_a_recurrent_state(tiny_models: Mapping[str, Path], name: str) -> None:
    arguments = ("chat", "-m", str(tiny_models[name]), "-n", "40", "--temp", "0")
    plain = run(*arguments, "--spec-type", "none", text="amber amber")
    done = run(*arguments, "--spec-type", "ngram-simple", "--k", "4", text="amber amber")
    assert plain.returncode == done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout != ""
    assert ("costs a second pass" in done.stderr) == (name == "recurrent")


def test_ctrl_c_in_the_middle_of_a_prompt(tiny_models: Mapping[str, Path], tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_text("amber " * 7500)  # some five seconds on one thread
    arguments = ("--ctx", "8192", "-n", "8", "--threads", "1")
    with Terminal("chat", "--plain", "-m", str(tiny_models["slow"]), *arguments) as terminal:
        at = terminal.wait("> ")
        terminal.type(f"@{text}")
        time.sleep(1.0)
        start = time.monotonic()
        terminal.press_ctrl_c()
        at = terminal.wait("cancelled", 10, after=at)
        assert time.monotonic() - start < 2.0
        at = terminal.wait("> ", after=at)
        terminal.type("amber")
        at = terminal.wait("8 tokens", after=at)
        terminal.wait("> ", after=at)
        terminal.type("/quit")
        assert terminal.exit_code() == 0
        assert terminal.settings_restored()


def test_ctrl_c_stops_an_answer_and_twice_quits(tiny_models: Mapping[str, Path]) -> None:
    model = str(tiny_models["slow"])
    with Terminal(
        "chat", "--plain", "-m", model, "--ctx", "4096", "-n", "4000", *GREEDY
    ) as terminal:
        at = terminal.wait("> ")
        terminal.type("amber")
        time.sleep(1.0)
        terminal.press_ctrl_c()
        at = terminal.wait("cancelled", 10, after=at)
        at = terminal.wait("> ", after=at)
        time.sleep(0.5)  # a key before readline listens is lost, in any Python program
        terminal.press_ctrl_c()
        at = terminal.wait("again leaves", after=at)
        terminal.wait("> ", after=at)
        time.sleep(0.5)
        terminal.press_ctrl_c()
        assert terminal.exit_code() == 0
        assert terminal.settings_restored()
        assert "Traceback" not in terminal.text


def test_ten_turns_in_a_small_context(tiny_models: Mapping[str, Path]) -> None:
    model = str(tiny_models["clock"])
    draft = str(tiny_models["clock-draft"])
    with Terminal(
        *("chat", "--plain", "-m", model, "--ctx", "256", "-n", "60", *GREEDY),
        *("--spec-type", "draft-simple", "--draft", draft, "--k", "8"),
    ) as terminal:
        at = 0
        for _ in range(10):
            at = terminal.wait("> ", after=at)
            terminal.type("amber anchor apple")
            at = terminal.wait("tok/s", after=at)
        terminal.wait("> ", after=at)
        terminal.type("/stats")
        at = terminal.wait("acceptance by position", after=at)
        terminal.wait("> ", after=at)
        terminal.type("/quit")
        assert terminal.exit_code() == 0
        assert "left the context" in terminal.text
        assert "Traceback" not in terminal.text


def test_accepted_draft_tokens_are_tinted(tiny_models: Mapping[str, Path]) -> None:
    arguments = ("chat", "--plain", "-m", str(tiny_models["clock"]), "-n", "40", *GREEDY)
    drafting = ("--spec-type", "draft-simple", "--draft", str(tiny_models["clock-draft"]))
    for colour, tinted in (({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)):
        with Terminal(*arguments, *drafting, **colour) as terminal:
            at = terminal.wait("> ")
            terminal.type("amber")
            terminal.wait("tok/s", after=at)
            assert ("\x1b[32m" in terminal.raw) is tinted


def test_commands_of_the_chat(tiny_models: Mapping[str, Path]) -> None:
    with Terminal(
        "chat", "--plain", "-m", str(tiny_models["clock"]), "-n", "9", *GREEDY
    ) as terminal:
        at = terminal.wait("> ")
        for typed, shown in (
            ("/help", "/spec"),
            ("/spec ngram-simple", "spec type ngram-simple"),
            ("/k 5", "k 5"),
            ("/k many", "takes a number"),
            ("/spec nonsense", "not a spec type"),
            ("/system be brief", "with the system message"),
            ("/nonsense", "not a command"),
            ("amber", "9 tokens"),
            ("/reset", "a new conversation"),
        ):
            terminal.type(typed)
            at = terminal.wait(shown, after=at + len(typed))
            at = terminal.wait("> ", after=at)
        terminal.type("/quit")
        assert terminal.exit_code() == 0


def test_an_emoji_answer_arrives_whole(tiny_models: Mapping[str, Path]) -> None:
    done = run(
        *("chat", "-m", str(tiny_models["clock-emoji"]), "-n", "80", *GREEDY),
        text="amber",
        LC_ALL="C",
    )
    assert done.returncode == 0
    assert "�" not in done.stdout
    assert any(ord(char) > 0xFFFF for char in done.stdout)


@pytest.mark.demo
def test_the_demo_model_talks(demo_model: Path) -> None:
    done = run(
        *(
            "chat",
            "-m",
            str(demo_model),
            "-n",
            "24",
            *GREEDY,
            "--spec-type",
            "ngram-simple,ngram-mod",
        ),
        text="Say hello.",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
