"""`specctl replay`: a recording as a panel and as a picture."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from terminal import Terminal

from specctl.events import Record, Started
from specctl.recording import IN_THE_MIDDLE, head, read, whole, write_line

sys.path.append(str(Path(__file__).parent.parent / "tui"))
import records as r

RECORDING = Path(__file__).parents[2] / "docs" / "recordings" / "docstrings.jsonl"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specctl", "replay", *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def write(path: Path, records: Iterable[Record]) -> Path:
    with path.open("w") as out:
        for record in records:
            write_line(record, out)
    return path


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    cycles = [r.cycle(i, ("a", "b", "c"), drafted=3, clock=1 + i / 10) for i in range(10)]
    return write(tmp_path / "r.jsonl", [r.started(), r.prompt(), *cycles, r.finished(30)])


def test_once_prints_the_final_panel(recorded):
    done = run(str(recorded), "--once")
    assert done.returncode == 0, done.stderr
    assert "accepted per cycle" in done.stdout
    assert "above" in done.stdout
    assert "α 0.67" in done.stdout  # 2 of 3, ten times
    assert "\x1b" not in done.stdout


def test_without_a_terminal_it_prints_and_at_takes_a_moment(recorded):
    whole, half = run(str(recorded)), run(str(recorded), "--at", "1.45")
    assert whole.returncode == half.returncode == 0
    assert whole.stdout != half.stdout
    assert "last 5" in half.stdout


def test_a_picture_holds_the_text_and_needs_no_network(recorded, tmp_path):
    picture = tmp_path / "p.svg"
    done = run(str(recorded), "--svg", str(picture), "--size", "80x24")
    assert done.returncode == 0, done.stderr
    svg = picture.read_text()
    assert "accepted" in svg
    assert "url(" not in svg.replace("url(#", "")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("no-such-file.jsonl",), 1, "cannot read no-such-file.jsonl"),
        (("{}", "--speed", "0"), 2, "--speed 0 is not in 0.1 … 100"),
        (("{}", "--svg", "x.svg", "--size", "10x10"), 2, "'10x10' is not a size"),
    ],
)
def test_what_cannot_be(recorded, arguments, code, message):
    done = run(*(argument.format(recorded) for argument in arguments))
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_empty_and_a_damaged_recording(tmp_path):
    empty, damaged = write(tmp_path / "empty.jsonl", []), tmp_path / "damaged.jsonl"
    damaged.write_text('{"type": "cycle"}\n')
    assert "holds no records" in run(str(empty)).stderr
    assert "damaged.jsonl, line 1" in run(str(damaged)).stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no pty")
def test_it_plays_on_a_terminal_and_q_ends(recorded):
    with Terminal("replay", str(recorded), "--speed", "100") as terminal:
        terminal.wait("replay 1.9 of 1.9 s")
        terminal.type("q")
        assert terminal.exit_code() == 0
        assert terminal.settings_restored()


def test_the_recording_of_the_readme_is_whole():
    records = list(read(RECORDING))
    assert records[0].message.startswith("Add a docstring")  # type: ignore[union-attr]
    assert type(records[-1]).__name__ == "Finished"


def test_an_older_recording_that_begins_in_the_middle_plays_with_a_note(tmp_path):
    cycles = [r.cycle(i, ("a", "b", "c"), drafted=3, clock=60 + i / 10) for i in range(20, 30)]
    done = run(str(write(tmp_path / "r.jsonl", [*cycles, r.finished(30)])), "--once")
    assert done.returncode == 0, done.stderr
    assert IN_THE_MIDDLE in " ".join(done.stderr.split())
    assert "plain decoding" not in done.stdout
    assert "above" in done.stdout


def test_what_the_stand_in_says(tmp_path):
    cycles = [r.cycle(i, ("a",), clock=60 + i / 10) for i in range(20, 22)]
    started, *rest = whole(cycles)
    assert isinstance(started, Started)
    assert (started.spec_types, started.prompt_tokens) == (("none",), 13)
    assert rest == cycles
    assert whole([r.started(), *cycles])[0] == r.started()
    assert head(write(tmp_path / "r.jsonl", cycles)) == started
    assert head(write(tmp_path / "empty.jsonl", [])) is None
