"""`specctl watch` and `specctl engine run` as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import urllib.request
from pathlib import Path

import pytest
from kit import free_port, stand_in, started, wait_for

sys.path.append(str(Path(__file__).parent.parent / "external"))
from fake_engine import FakeEngine, chat_events

from specctl.external.exposition import parse
from specctl.recording import read

PAYLOADS = Path(__file__).parent.parent / "external" / "payloads"


def drive(engine: FakeEngine, accepted=(4, 2, 0)) -> None:
    for one in accepted:
        engine.cycle(4, one)
    engine.cycle(0, 0)


def test_once_as_json(specctl):
    with FakeEngine("llama-server") as engine:
        drive(engine)
        code, out, _ = specctl("watch", engine.url, "--once", "--json", "--baseline", "100")
    assert code == 0
    said = json.loads(out)
    assert (said["drafts"], said["drafted"], said["accepted"]) == (3, 12, 6)
    assert (said["passes"], said["generated"]) == (4, 10)
    assert said["acceptance_rate"] == 0.5
    assert said["tokens_per_pass"] == 2.5
    assert said["break_even"] == pytest.approx((0.08 - 0.01) / 0.03 - 1)
    assert said["speculates"] is True
    assert said["verify_share"] is None  # not told, so null
    assert said["since"] == "the server's start"


def test_what_is_not_known_is_null(specctl):
    with FakeEngine("trtllm") as engine:
        engine.metrics = True
        engine._prometheus_metrics = lambda: (404, "text/plain", b"")  # type: ignore[method-assign]
        drive(engine)
        code, out, _ = specctl("watch", engine.url, "--once", "--json")
    said = json.loads(out)
    assert code == 0
    assert (said["drafted"], said["generated"], said["passes"]) == (12, None, None)
    assert said["break_even"] is None
    assert said["tokens_per_second"] is None


def test_once_for_people(specctl):
    with FakeEngine("vllm") as engine:
        drive(engine)
        code, out, _ = specctl("watch", engine.url, "--once")
    assert code == 0
    assert "vLLM 0.33.0" in out
    assert "speculation on" in out
    assert "α 0.50, drafted 75 %" in out
    assert "by position (of all drafts): 0.67 0.67 0.33 0.33" in out


def test_counters_that_lie_are_said_and_null(specctl):
    with FakeEngine("llama-server") as engine:
        engine.counts.accepted, engine.counts.drafted, engine.counts.drafts = 9, 4, 1
        code, out, _ = specctl("watch", engine.url, "--once", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["accepted"] is None
    assert "9 accepted of 4 drafted" in " ".join(said["notes"])


def test_prometheus_text_once(specctl):
    with FakeEngine("llama-server") as engine:
        drive(engine)
        code, out, _ = specctl("watch", engine.url, "--prometheus", "-")
    assert code == 0
    samples = parse(out)
    assert samples.total("specctl_watch_accepted_tokens_total") == 6
    assert samples.total("specctl_watch_acceptance_rate") == 0.5
    assert samples.total("specctl_watch_break_even") is None


def test_strict_turns_a_broken_rule_into_an_exit_code(specctl):
    with FakeEngine("llama-server") as engine:
        for _ in range(100):
            engine.cycle(4, 1)
        code, out, _ = specctl("watch", engine.url, "--once", "--json", "--strict")
        assert code == 1
        assert "below 0.40" in json.loads(out)["alerts"][0]
        assert specctl("watch", engine.url, "--once", "--json")[0] == 0


def test_probe_once(specctl):
    value = json.loads((PAYLOADS / "llama-server-ngram.json").read_text())
    with FakeEngine("llama-server") as engine:
        engine.metrics = False
        engine.stream = chat_events(value["chunks"])
        code, out, _ = specctl("watch", engine.url, "--once", "--json", "--probe")
        assert len(engine.asked) == 3
    said = json.loads(out)
    assert code == 0
    assert (said["drafts"], said["drafted"], said["accepted"]) == (9, 72, 27)
    assert said["coverage"] == pytest.approx(3 / 39)
    assert said["since"] == "own prompts just now"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--interval", "0"), 2, "0.1 … 3600"),
        (("--baseline", "-1"), 2, "no speed"),
        (("--baseline", "nan"), 2, "no speed"),
        (("--prometheus", "x"), 2, "a port"),
        (("--prometheus", "99999999999"), 2, "65535"),
        (("--once", "--prometheus", "0"), 2, "--prometheus -"),
        (("--timeout", "inf"), 2, "600"),
        (("--once", "--record", "x"), 2, "--once records nothing"),
        (("--json", "--prometheus", "-"), 2, "two outputs"),
        (("--probe",), 1, "shows no cycles"),
    ],
)
def test_what_cannot_be_meant(specctl, arguments, code, words):
    with FakeEngine("vllm") as engine:
        got, out, err = specctl("watch", engine.url, "--plain", *arguments)
    assert got == code
    assert words in err
    assert not out


def test_servers_that_cannot_be_watched(specctl):
    with FakeEngine("llama-server", key="k") as engine:
        code, _, err = specctl("watch", engine.url, "--once")
        assert code == 1
        assert "wants an API key" in err
        assert specctl("watch", engine.url, "--once", "--api-key", "k")[0] == 0
    code, _, err = specctl("watch", engine.url, "--once")
    assert code == 1
    assert "cannot be reached" in err
    assert specctl("watch", "ftp://x")[0] == 2


# ---------------------------------------------------------------- as a process


def test_lines_a_recording_and_a_page_until_ctrl_c(tmp_path):
    port, file = free_port(), tmp_path / "w.jsonl"
    page = f"http://127.0.0.1:{port}/metrics"

    def up() -> bool:
        try:
            return b"specctl_watch_up" in urllib.request.urlopen(page).read()
        except OSError:
            return False

    with (
        FakeEngine("llama-server") as engine,
        started(
            "watch", engine.url, "--plain", "--interval", "0.1", "--record", str(file),
            "--prometheus", str(port),
        ) as ours,
    ):  # fmt: skip
        wait_for(up)
        drive(engine)
        wait_for(lambda: file.exists() and len(file.read_text().splitlines()) >= 2)
        samples = parse(urllib.request.urlopen(page).read().decode())
        ours.send_signal(signal.SIGINT)
        out, err = ours.communicate(timeout=20)
    assert ours.returncode == 0, err
    assert "α 0.50, drafted 75 %" in out
    assert samples.total("specctl_watch_accepted_tokens_total") == 6
    records = list(read(file))
    assert type(records[0]).__name__ == "Started"
    assert records[1].accepted == 6


@pytest.mark.skipif(os.name != "posix", reason="process groups")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_engine_run_starts_checks_and_leaves_nothing(tmp_path, how):
    program, model = stand_in(tmp_path)
    port = free_port()
    with started(
        "engine", "run", "llama-server", model, "--spec-type", "ngram-simple",
        "--bin", program, "--port", str(port), "--grace", "2",
    ) as ours:  # fmt: skip
        assert ours.stdout is not None
        url = ours.stdout.readline().strip()
        assert url == f"http://127.0.0.1:{port}"
        ours.send_signal(how)
        _, err = ours.communicate(timeout=20)
    assert ours.returncode == 0, err
    assert "speculation is on" in err
    assert "6 of 12 drafted tokens stood" in err
    assert "is stopped" in err
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 1)


@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_engine_run_shows_the_end_of_the_log(tmp_path, specctl):
    program, model = stand_in(tmp_path)
    common = ("engine", "run", "llama-server", model, "--bin", program, "--port")
    code, out, err = specctl(*common, str(free_port()), "--", "--fake", "dies")
    assert code == 1
    assert "ended with exit code 3" in err
    assert "failed to load model" in err
    assert not out
    code, out, err = specctl(*common, str(free_port()), "--", "--fake", "crash")
    assert code == 1
    assert "ended with exit code 9" in err
    assert "out of memory" in err
    code, out, err = specctl(*common, str(free_port()), "--spec-type", "ngram-simple", "--",
                             "--fake", "faints")  # fmt: skip
    assert code == 1
    assert "ended with exit code 9" in err
    assert "fainted" in err
    assert not out
    code, _, err = specctl("engine", "run", "llama-server", model, "--bin", str(tmp_path))
    assert code == 2


@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_engine_run_without_a_check_needs_no_metrics(tmp_path):
    program, model = stand_in(tmp_path)
    port = str(free_port())
    common = ("engine", "run", "llama-server", model, "--bin", program, "--port", port)
    with started(*common, "--no-check", "--", "--fake", "mute") as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline().strip() == f"http://127.0.0.1:{port}"
        ours.send_signal(signal.SIGINT)
        ours.communicate(timeout=20)
    assert ours.returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="a pseudo-terminal")
def test_the_screen_on_a_terminal():
    from terminal import Terminal

    with FakeEngine("llama-server") as engine, Terminal("watch", engine.url) as terminal:
        terminal.wait("waiting for requests")
        drive(engine)
        terminal.wait("by position")
        os.write(terminal.master, b"q")
        assert terminal.exit_code() == 0
        assert terminal.text.count("Traceback") == 0
