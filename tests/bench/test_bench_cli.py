"""`specctl bench` from its flags to its exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_bench import GOOD, SILENT, FakeSession

from specctl import paths
from specctl.bench import page
from specctl.bench.results import SCHEMA, check_writable, cpu_name, tokens_hash, write
from specctl.errors import SpecctlError, UsageError

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSession:
    """The engine is a script; the model is an empty file."""
    pytest.importorskip("numpy")
    import specctl.engine.session as module

    session = FakeSession({("ngram-simple",): GOOD, ("ngram-mod",): SILENT})
    session.opened = []  # type: ignore[attr-defined]

    def open_session(model: Path, draft: Path | None, specs: Sequence[Any], settings: Any) -> Any:
        session.opened.append((model, draft, tuple(specs), settings))  # type: ignore[attr-defined]
        return session

    monkeypatch.setattr(module, "open_session", open_session)
    (tmp_path / "some-model.gguf").write_bytes(b"GGUF")
    return session


@pytest.fixture
def run(
    scripted: FakeSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Run:
    from specctl.cli import app, render

    def bench(*flags: str) -> tuple[int, str, str]:
        model = str(tmp_path / "some-model.gguf")
        monkeypatch.setattr(sys, "argv", ["specctl", "bench", "-m", model, *flags])
        render.out.cache_clear()
        render.err.cache_clear()
        capfd.readouterr()
        with pytest.raises(SystemExit) as done:
            app.main()
        captured = capfd.readouterr()
        return int(done.value.code or 0), captured.out, captured.err

    return bench


def test_quick_measures_three_prompts_once(run: Run, scripted: FakeSession) -> None:
    code, out, err = run("--quick")
    assert code == 0
    assert "3 prompts × 1 × (plain, ngram-simple), up to 64 tokens" in " ".join(err.split())
    assert "≈" in err
    assert "(estimate from the warm-up" in " ".join(err.split())
    assert "1.94×" in out  # 64 tokens in 22 cycles of 15 ms
    assert "faster" in out
    assert [call for call in scripted.calls if call not in ("reset", "closed")] == [
        *("none", "ngram-simple", "none"),
        *("none", "ngram-simple", "ngram-simple", "none", "none", "ngram-simple"),
    ]
    assert scripted.calls[-1] == "closed"


def test_types_and_ks_make_arms(run: Run, scripted: FakeSession) -> None:
    types = ("--spec-type", "ngram-simple", "--spec-type", "ngram-simple,ngram-mod")
    code, out, _ = run("--quick", *types, "--k", "2", "--k", "4")
    assert code == 0
    (_, _, specs, _) = scripted.opened[0]  # type: ignore[attr-defined]
    assert [(spec.types, spec.k) for spec in specs] == [
        (("none",), None),
        (("ngram-simple",), 2),
        (("ngram-simple",), 4),
        (("ngram-simple", "ngram-mod"), 2),
        (("ngram-simple", "ngram-mod"), 4),
    ]
    assert "ngram-simple k=2" in out


def test_plain_again_is_one_arm_whatever_the_ks(run: Run, scripted: FakeSession) -> None:
    code, out, err = run("--quick", "--spec-type", "none", "--k", "2", "--k", "4", "--strict")
    assert code == 0
    assert "(plain, none)" in " ".join(err.split())
    assert "1.00×" in out
    assert "cycles drafted" not in out


def test_strict_fails_where_an_arm_never_drafts(run: Run) -> None:
    flags = ("--quick", "--spec-type", "ngram-mod")
    code, out, _ = run(*flags)
    assert code == 0
    assert "0 of 192 cycles drafted, because: no match of 12 tokens (192)" in " ".join(out.split())
    code, out, err = run(*flags, "--strict")
    assert code == 1
    assert "0 of 192 cycles drafted" in out  # the report comes all the same
    assert "--strict: ngram-mod never drafted" in err


def test_strict_fails_on_an_identity_bug(run: Run, scripted: FakeSession) -> None:
    assert run("--quick", "--strict")[0] == 0
    scripted.texts = lambda prompt, types: (
        tuple(range(100, 150)) + ((1,) * 50 if types == ("none",) else (2,) * 50)
    )
    scripted.rows = lambda tokens, batch: [0.0] * 20
    code, out, err = run("--quick", "--strict")
    assert code == 1
    assert "BUG" in out
    assert "token 50: single steps do not give plain's token again" in " ".join(out.split())
    assert "3 texts differ from plain's without a tie" in " ".join(err.split())


def test_stopped_it_keeps_what_is_there_and_exits_130(run: Run, scripted: FakeSession) -> None:
    def pace(generation: int) -> float:
        if generation == 3 + 4:  # the warm-up's, then two prompts
            raise KeyboardInterrupt
        return 1.0

    scripted.pace = pace
    code, out, err = run("--quick", "--strict")
    assert code == 130
    assert "stopped: this is about the 2 prompts" in err
    assert "kept as" in err
    assert "ngram-simple" in out


def test_stopped_beside_a_server_nothing_more_is_measured(
    run: Run, scripted: FakeSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from fake_bench import arm, finished, plan

    from specctl.cli import bench_engine

    outcome = replace(finished(tmp_path, FakeSession(), plan(arm("none"))), interrupted=True)
    monkeypatch.setattr(bench_engine, "measure_started", lambda *_: outcome)
    code, _, err = run("--quick", "--engine", "llama-server", "--also-in-process")
    assert code == 130, err
    assert scripted.calls == []


def test_json_holds_everything_and_no_place(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    code, _, err = run("--quick", "--json", str(file), "--repeats", "2")
    assert code == 0
    data = json.loads(file.read_text(encoding="utf-8"))
    assert data["schema"] == SCHEMA
    assert data["model"] == {"file": "some-model.gguf", "bytes": 4}
    assert len(data["runs"]) == 3 * 2 * 2
    first = data["runs"][0]
    assert first["arm"] == "plain"
    assert first["tokens"] == 64
    assert first["tokens_hash"] == tokens_hash(range(100, 164))
    assert data["runs"][1]["totals"]["accepted"] == 44
    assert data["runs"][1]["identity"]["status"] == "same"
    assert data["machine"]["cpu"]
    assert {"load_before", "load_after", "threads"} <= data["machine"].keys()
    assert [row["workload"] for row in data["report"]["rows"]][-1] is None
    assert str(tmp_path) not in file.read_text(encoding="utf-8")
    kept = list((paths.data_dir() / "bench").glob("*-some-model.json"))
    assert [json.loads(one.read_text(encoding="utf-8")) for one in kept] == [data]
    assert "kept as" in err


def test_a_run_draws_itself(run: Run, tmp_path: Path) -> None:
    html, svg, result = (tmp_path / name for name in ("r.html", "r.svg", "r.json"))
    flags = ("--html", str(html), "--svg", str(svg), "--json", str(result))
    assert run("--quick", *flags)[0] == 0
    (kept,) = (paths.data_dir() / "bench").glob("*.json")
    data = json.loads(kept.read_text(encoding="utf-8"))
    assert json.loads(result.read_text(encoding="utf-8")) == data
    assert html.read_text(encoding="utf-8") == page.page(data, kept.stem)
    assert svg.read_text(encoding="utf-8") == page.picture(data)
    assert "1.94×" in svg.read_text(encoding="utf-8")


def test_own_prompts_replace_the_built_in_ones(
    run: Run, tmp_path: Path, scripted: FakeSession
) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("say one\n---\nsay two\n")
    _, out, err = run("--prompts", str(file), "--repeats", "1", "--max-tokens", "12")
    assert "2 prompts × 1 ×" in " ".join(err.split())
    assert "best mine/line-1" in out
    _, _, err = run("--prompts", str(file), "--workload", "chat", "--repeats", "1")
    assert "8 prompts × 1 ×" in " ".join(err.split())


def test_prompts_of_a_public_benchmark(run: Run, tmp_path: Path) -> None:
    rows = [
        {"question_id": n, "category": category, "turns": ["one", "two"]}
        for n, category in enumerate(["qa", "qa", "rag"])
    ]
    file = tmp_path / "question.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    code, out, err = run("--prompts", str(file), "--per-workload", "1", "-r", "1", "-n", "12")
    assert code == 0
    assert "2 prompts × 1 ×" in " ".join(err.split())
    assert "qa/0" in out
    said = "2 prompts have more than one turn: the first turn is asked, the others are not"
    assert said in " ".join(out.split())
    code, _, err = run("--prompts", str(file), "--per-workload", "0")
    assert code == 2
    assert "--per-workload 0" in err


def test_going_on_past_the_end_is_asked_of_the_engine(run: Run, scripted: FakeSession) -> None:
    assert run("--quick")[0] == 0
    assert not any(request.ignore_eog for request in scripted.requests)
    scripted.requests.clear()
    assert run("--quick", "--ignore-eos")[0] == 0
    assert scripted.requests
    assert all(request.ignore_eog for request in scripted.requests)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--spec-type", "ngram-simpel"), ("ngram-simpel", "ngram-simple")),
        (("--workload", "poems"), ("poems", "creative")),
        (("--prompts", "no-such-file.txt"), ("no-such-file.txt",)),
        (("--max-tokens", "0"), ("max-tokens 0",)),
        (("--repeats", "0"), ("repeats 0",)),
        (("--k", "0"), ("k 0",)),
        (("--temperature", "-1"), ("temperature -1",)),
        (("--json", "no-such-folder/x.json"), ("no-such-folder", "no folder")),
        (("--html", "no-such-folder/x.html"), ("no-such-folder", "no folder")),
        (("--svg", "."), ("cannot write .", "a folder")),
        (("--spec-type", "ngram-simple", "--spec-type", "ngram-simple"), ("asked for twice",)),
        (("--spec-type", ","), ("no spec type",)),
        (("--max-tokens", "5000"), ("--ctx",)),
    ],
)
def test_wrong_flags_exit_2_before_anything_runs(
    run: Run, scripted: FakeSession, flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    code, out, err = run(*flags)
    assert (code, out) == (2, "")
    for word in words:
        assert word in " ".join(err.split())
    assert "Traceback" not in err
    assert set(scripted.calls) <= {"closed"}


def test_a_missing_model_exits_1(run: Run) -> None:
    code, _, err = run("-m", "no-such-model.gguf")
    assert code == 1
    assert "no-such-model.gguf" in err


def test_the_command_loads_no_engine() -> None:
    code = (
        "import sys, specctl.cli.bench\n"
        "print([m for m in ('llama_cpp', 'numpy', 'textual') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------- results


def test_a_result_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b.json"
    write(file, {"x": "é"})
    assert json.loads(file.read_text(encoding="utf-8")) == {"x": "é"}
    assert [path.name for path in file.parent.iterdir()] == ["b.json"]
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SpecctlError, match="cannot write"):
        write(tmp_path / "file" / "b.json", {})


def test_a_result_that_has_no_place_is_refused_first(tmp_path: Path) -> None:
    check_writable(tmp_path / "new.json")
    with pytest.raises(UsageError, match="a folder"):
        check_writable(tmp_path)


def test_cpu_name(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nmodel name\t: other\n")
    assert cpu_name(info) == "Some CPU @ 2.00GHz"
    assert cpu_name(tmp_path / "missing")


# ---------------------------------------------------------------- the real thing


@pytest.mark.native
@pytest.mark.demo
def test_the_demo_model_end_to_end(demo_model: Path, tmp_path: Path) -> None:
    """A text that repeats itself: the drafter engages, and the answer is plain decoding's."""
    prompts, result = tmp_path / "p.txt", tmp_path / "r.json"
    prompts.write_text("Repeat this list ten times: red green blue, red green blue, red green")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "specctl", "bench", "--model", str(demo_model)),
            *("--prompts", str(prompts), "--json", str(result), "--threads", "1"),
            *("--max-tokens", "24", "--repeats", "1", "--ctx", "256"),
            *("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3", "--k", "4"),
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(result.read_text(encoding="utf-8"))
    assert len(data["runs"]) == 2
    assert data["report"]["rows"][-1]["identity"]["bugs"] == 0
    total = data["runs"][1]["totals"]
    assert total["drafted"] > 0
    assert total["emitted"] == data["runs"][1]["tokens"]
    assert "ngram-simple k=4" in done.stdout
