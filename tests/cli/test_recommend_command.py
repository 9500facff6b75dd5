"""`specctl recommend` as a user meets it: quick, readable at 80 columns, clear when wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from specctl.cli.ask import measured_here
from specctl.cli.recommend import recommend
from specctl.cli.render import out
from specctl.errors import UsageError
from specctl.units import GIB


@pytest.fixture(autouse=True)
def _fresh_console() -> Iterator[None]:
    """The console remembers its width."""
    out.cache_clear()
    yield
    out.cache_clear()


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specctl", "recommend", *args],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


def test_it_takes_under_a_second_of_cpu() -> None:
    """CPU time of the whole process, since the wall clock also sees other programs."""
    before = os.times()
    done = run("--vram", "16")
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    assert done.returncode == 0, done.stderr
    assert used < 1.0


def test_wrong_values_are_usage_errors_without_traceback() -> None:
    done = run("--vram", "16", "--use", "poetry")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "'poetry' is not a use" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vram": "lots"}, "'lots' is not a size"),
        ({"vram": "-4"}, "is not a size"),
        ({"gpu": "quantum 9000"}, "not here, and not in the data-sheet table"),
        ({"vram": "16", "max_download": "x"}, "'x' is not a size"),
        ({"vram": "16", "method": "magic"}, "not a drafting method"),
        ({"vram": "16", "licence": "freeware"}, "no model has licence"),
        ({"vram": "16", "ctx": 1}, "too small"),
        ({"vram": "16", "top": 0}, "shows nothing"),
        ({"vram": "16", "explain": 99}, "--explain 99: there are rows 1 to"),
        ({"vram": "16", "explain": 1, "as_json": True}, "--explain and --json"),
    ],
)
def test_wrong_values_say_what_is_wrong(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        recommend(**options)  # type: ignore[arg-type]


def test_readable_at_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out.cache_clear()
    recommend(vram="16", ram="32")
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [i for i, line in enumerate(lines) if re.match(r" ?\d+  [a-z]", line)]
    assert len(rows) >= 5
    assert all("tok/s" in lines[i] + lines[i + 1] for i in rows)
    assert all("class" in lines[i + 1] + lines[i + 2] for i in rows)
    assert "[simulated]" in text
    assert "the median of" in " ".join(lines)
    assert "specctl pull " in text
    assert "in llama-server, not in specctl chat yet" in text
    assert "Not chosen:" in text


def test_one_line_a_row_when_wide(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    out.cache_clear()
    recommend(vram="24", ram="32")
    text = capsys.readouterr().out
    header = next(line for line in text.splitlines() if line.startswith("#"))
    for name in ("class", "target", "drafter", "memory GiB", "ctx", "get GiB", "break-even"):
        assert name in header


def test_json_has_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    recommend(vram="12", ram="32", as_json=True, top=7)
    said = json.loads(capsys.readouterr().out)
    assert said["estimate"] is True
    assert said["machine"]["simulated"] is True
    assert len(said["ranked"]) == 7
    budget = said["machine"]["gpu_budget_bytes"]
    assert 11 * GIB < budget < 12 * GIB
    for row in said["ranked"]:
        assert row["runs_in"] == "specctl chat"
        assert row["memory_bytes"] <= budget
        assert sum(part["gpu_bytes"] for part in row["memory_parts"]) == row["memory_bytes"]
        assert row["plain_tokens_per_second"][0] <= row["plain_tokens_per_second"][1]
        assert (row["break_even_accepted_per_cycle"] is None) == (row["method"] == "none")
        alone = ("", "+none") if row["method"] == "none" else ("",)
        assert row["pull"] in [f"specctl pull {row['name']}{end}" for end in alone]


def test_explain_shows_memory_evidence_and_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    recommend(vram="24", ram="32", method="draft-mtp", explain=1)
    text = " ".join(capsys.readouterr().out.split())
    for part in ("weights", "backend", "together", "Measured by others", "[M]", "Licence"):
        assert part in text
    assert "--spec-type draft-mtp" in text
    assert "Next (runs specctl chat)" in text


def test_cpu_only(capsys: pytest.CaptureFixture[str]) -> None:
    recommend(vram="0", ram="16")
    text = " ".join(capsys.readouterr().out.split())
    assert "CPU only" in text
    assert "an assumption" in text


def test_ask_turns_rules_into_an_answer() -> None:
    answers = "creative\n0.9\n1\n4096\n"
    done = subprocess.run(
        [sys.executable, "-m", "specctl", "recommend", "--vram", "16", "--ask"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        input=answers,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "rule: creative text" in done.stderr
    assert "rule: temperature above 0.7" in done.stderr
    assert "measured here: nothing yet" in done.stderr
    assert "ctx 4096" in done.stdout
    assert "ngram-mod" not in done.stdout.split("Not chosen")[0]


def test_ask_without_answers_ends_calmly() -> None:
    done = run("--vram", "16", "--ask")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Aborted" not in done.stderr
    assert "no answer, so nothing was ranked" in done.stderr


def test_ctrl_c_at_a_question_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", stop)
    with pytest.raises(typer.Exit) as ended:
        recommend(vram="16", ask=True)
    assert ended.value.exit_code == 130
    assert "nothing was ranked" in capsys.readouterr().err


def test_a_gpu_that_holds_nothing_gets_the_answer_for_the_cpu(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recommend(vram="1", ram="16", top=2)
    text = " ".join(capsys.readouterr().out.split())
    assert "Nothing fits the GPU" in text
    assert "as with --vram 0" in text
    assert "--gpu-layers 0" in text
    assert "--explain N" in text
    recommend(vram="1", ram="16", top=2, as_json=True)
    row = json.loads(capsys.readouterr().out)["ranked"][0]
    assert (row["place"], "--gpu-layers 0" in row["run"]) == ("CPU", True)


def test_where_nothing_fits_at_all_it_says_so_and_fails() -> None:
    done = run("--vram", "0", "--ram", "0.3")
    assert done.returncode == 1
    assert "Nothing fits." in done.stdout
    assert "Not chosen, the nearest first:" in done.stdout
    assert "--explain" not in done.stdout
    assert "needs" in done.stdout.split("nearest first:")[1].splitlines()[1]


def test_all_names_what_the_short_list_counts(capsys: pytest.CaptureFixture[str]) -> None:
    recommend(vram="0", ram="64")
    short = capsys.readouterr().out
    recommend(vram="0", ram="64", all_=True)
    everything = capsys.readouterr().out
    assert "models + ngram-mod" in " ".join(short.split())
    assert "--all" in short
    assert everything.count("+ ngram-mod:") + everything.count("+ \nngram-mod:") >= 10


def test_lookup_rows_are_named_by_what_chat_runs(capsys: pytest.CaptureFixture[str]) -> None:
    recommend(vram="24", ram="32", use="edit", method="ngram-mod", top=3)
    text = capsys.readouterr().out
    ranked = text.split("llama-server")[0]
    assert "look-up drafting (auto)" in ranked
    assert "ngram-mod" not in ranked
    assert "trust high" in " ".join(ranked.split())


def test_a_console_without_unicode_gets_no_traceback() -> None:
    done = run("--vram", "16", PYTHONIOENCODING="cp1252", LC_ALL="C", TERM="dumb")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "Traceback" not in done.stderr


def test_ask_quotes_what_was_measured_here(tmp_path: Path) -> None:
    row = {
        "workload": "code-gen",
        "arm": "draft-simple k 4",
        "speedup": 1.44,
        "verdict": "faster",
        "repeats": 3,
        "coverage": 0.4,
    }
    plain = {**row, "arm": "plain", "speedup": 1.0}
    chat = {**row, "workload": "chat", "speedup": 0.87, "verdict": "slower"}
    unknown = {**row, "speedup": None}
    undrafted = {**row, "arm": "ngram-simple", "speedup": 0.72, "coverage": 0.0}
    chat["repeats"] = 1
    result = {
        "schema": "specctl-bench/1",
        "date": "2026-11-29T10:00:00Z",
        "model": {"file": "m.gguf"},
        "machine": {"threads": 1, "load_before": 0.0, "load_after": 1.0},
        "report": {"rows": [chat, plain, unknown, undrafted, row]},
    }
    cores = float(os.cpu_count() or 1)
    for name, load in (("before", {"load_before": cores}), ("after", {"load_after": cores + 1})):
        busy = {**result, "machine": {"threads": 1, "load_before": 0, "load_after": 0, **load}}
        (tmp_path / f"2026-11-30-busy-{name}.json").write_text(json.dumps(busy), encoding="utf-8")
    (tmp_path / "2026-11-29-a.json").write_text(json.dumps(result), encoding="utf-8")
    theirs = {**result, "served": {"started": False}}
    (tmp_path / "2026-11-30-theirs.json").write_text(json.dumps(theirs), encoding="utf-8")
    (tmp_path / "2026-11-30-damaged.json").write_text("{", encoding="utf-8")
    assert measured_here("code", tmp_path) == [
        "draft-simple k 4 on code-gen: 1.44-fold, faster (3 runs; m.gguf, 2026-11-29)",
        "draft-simple k 4 on chat: 0.87-fold, slower (one run; m.gguf, 2026-11-29)",
    ]
    assert measured_here("code", tmp_path / "absent")[0].startswith("nothing yet")
