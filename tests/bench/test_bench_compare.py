"""Two results side by side: alike or refused, and changes only beyond both noises."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_bench import GOOD, Cost, FakeSession, arm, finished, plan

from specctl import paths
from specctl.bench.compare import SCHEMA, compare, unlike
from specctl.bench.report import verdict
from specctl.bench.results import document
from specctl.bench.stored import load, parse
from specctl.errors import UsageError

BETTER = Cost(k=3, accepted=3, t_d=0.001, t_v=0.0135, t_o=0.0005)  # 4 tokens in 15 ms: 2.67×
RESULTS = Path(__file__).parents[2] / "docs" / "results"


def quiet(data: dict[str, Any]) -> dict[str, Any]:
    """As a file holds it, measured on an idle machine."""
    data["machine"].update(load_before=0.1, load_after=1.1)
    loaded: dict[str, Any] = json.loads(json.dumps(data))
    return loaded


@pytest.fixture
def result(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def make(cost: Cost = GOOD, noisy: bool = False, **changes: Any) -> dict[str, Any]:
        pace = (lambda n: 1 + 0.3 * (n % 4 == 0)) if noisy else (lambda n: 1.0)
        session = FakeSession({("ngram-simple",): cost}, pace=pace)
        what = changes.pop("plan", None) or plan(**changes)
        return quiet(document(finished(tmp_path, session, what)))

    return make


# ---------------------------------------------------------------- the way back


def test_what_was_written_is_read_back_to_the_last_digit(
    result: Callable[..., dict[str, Any]],
) -> None:
    data = result(noisy=True)
    stored = parse(data)
    assert [(r.workload, r.arm) for r in stored.rows] == [
        ("code-edit", "ngram-simple"),
        ("chat", "ngram-simple"),
        (None, "ngram-simple"),
    ]
    for row, raw in zip(stored.rows, data["report"]["rows"], strict=True):
        for name in ("plain_rate", "rate", "speedup", "low", "high", "noise", "verdict"):
            assert getattr(row.speed, name) == raw[name]
        for name in ("acceptance_rate", "accepted_per_cycle", "break_even", "coverage", "ttft"):
            assert getattr(row, name) == raw[name]
        assert list(row.acceptance_by_position) == raw["acceptance_by_position"]
    assert stored.compared == ("ngram-simple",)
    assert list(stored.plain_texts) == ["code-edit/p0", "chat/p1"]


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_results_kept_in_the_repository_are_read(file: Path) -> None:
    stored = load(str(file))
    assert stored.rows[-1].workload is None
    (*_, last) = compare(stored, stored).pairs
    assert (last.change, last.verdict) == (1.0, "no difference shown")


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1])
    out = []
    for key, one in inner:
        out.append((*path, key))
        if isinstance(one, dict | list):
            out += _paths(one, (*path, key))
    return out


def test_any_damage_is_an_error_that_names_the_place(
    result: Callable[..., dict[str, Any]],
) -> None:
    """Every entry, replaced by nonsense or left out: a result or an error, never a crash."""
    data = result()
    good, refused = parse(data), set()
    for path in _paths(data):
        for junk in (object, [], {}, "x", -1, math.nan, True, 1e300, None):
            broken = copy.deepcopy(data)
            *way, last = path
            place: Any = broken
            for key in way:
                place = place[key]
            if junk is object:
                del place[last]
            else:
                place[last] = junk
            with contextlib.suppress(UsageError):
                compare(parse(broken), good)
                continue
            refused.add((path, repr(junk)))
    row = ("report", "rows", 0)
    for figure in ("speedup", "noise", "plain_rate", "acceptance_rate", "break_even", "repeats"):
        assert {
            ((*row, figure), repr(junk)) for junk in (object, [], "x", math.nan, True)
        } < refused
    for place in ("report", "runs", "prompts", "arms", "model", "machine", "sampling", "repeats"):
        assert {((place,), repr(junk)) for junk in (object, "x", math.nan, None)} < refused
    del data["report"]["rows"][1]["identity"]["bugs"]
    with pytest.raises(UsageError, match=r"this.json, report, rows\[1\], identity .* no 'bugs'"):
        parse(data, "this.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not a result"),
        ("[1]", "is not a result of specctl bench"),
        ('{"schema": "specctl-bench/99"}', "specctl-bench/99"),
        ('{"schema": "specctl-bench/1"}', "no 'report'"),
        ('{"a": NaN}', "NaN"),
        ("[" * 100_000, "is not a result"),
        ("\udcff", "is not a result"),
    ],
)
def test_other_files_are_told(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "other.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError) as told:
        load(str(file))
    assert said in told.value.message
    assert "other.json" in told.value.message


# ---------------------------------------------------------------- alike?


def changed(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    other = copy.deepcopy(data)
    *way, last = path.split(".")
    place: Any = other
    for key in way:
        place = place[int(key)] if key.isdigit() else place[key]
    place[last] = value
    return other


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("model.file", "other.gguf", "model: fake.gguf, 4 bytes in A, other.gguf, 4 bytes in B"),
        ("model.bytes", 5, "model: fake.gguf, 4 bytes in A, fake.gguf, 5 bytes in B"),
        ("max_tokens", 13, "max-tokens: 12 in A, 13 in B"),
        ("machine.threads", 2, "threads: 1 in A, 2 in B"),
        ("sampling.temperature", 0.5, "temperature: 0.0 in A, 0.5 in B"),
        ("sampling.repeat_penalty", 1.1, "repeat_penalty: 1.0 in A, 1.1 in B"),
        ("settings.n_ctx", 8192, "n_ctx: 4096 in A, 8192 in B"),
        ("settings.target.kv_type_k", "q8_0", "target.kv_type_k: f16 in A, q8_0 in B"),
        ("prompts.1.tokens_hash", "0" * 16, "other tokens under the same name: chat/p1"),
        ("prompts.1.prompt", "chat/p9", "prompts only in A: chat/p1"),
        ("arms.1.name", "ngram-mod", "no arm in common: ngram-simple in A, ngram-mod in B"),
    ],
)
def test_unlike_runs_are_refused_with_what_differs(
    result: Callable[..., dict[str, Any]], path: str, value: Any, said: str
) -> None:
    data = result()
    a, b = parse(data), parse(changed(data, path, value))
    assert said in unlike(a, b)
    with pytest.raises(UsageError) as told:
        compare(a, b)
    assert said in told.value.message
    assert not unlike(a, a)


def test_all_differences_are_said_at_once(result: Callable[..., dict[str, Any]]) -> None:
    a = parse(result())
    b = parse(result(max_tokens=7, prompts=1))
    assert unlike(a, b) == ("prompts only in A: chat/p1", "max-tokens: 12 in A, 7 in B")


@pytest.mark.parametrize("path", ["sampling.seed", "sampling.top_k", "settings.threads"])
def test_what_changes_nothing_is_no_difference(
    result: Callable[..., dict[str, Any]], path: str
) -> None:
    """Greedy draws nothing; threads are compared as they ran, not as they were asked for."""
    data = result()
    assert not unlike(parse(data), parse(changed(data, path, 1)))
    hot = changed(data, "sampling.temperature", 0.7)
    assert bool(unlike(parse(hot), parse(changed(hot, path, 1)))) is path.startswith("sampling")


# ---------------------------------------------------------------- changes


def test_change_is_the_ratio_of_the_speed_ups(result: Callable[..., dict[str, Any]]) -> None:
    found = compare(parse(result()), parse(result(BETTER)))
    for pair in found.pairs:
        assert pair.change == pytest.approx(4 / 3)
        assert pair.verdict == "faster"
    backwards = compare(found.b, found.a)
    assert {pair.verdict for pair in backwards.pairs} == {"slower"}
    assert backwards.pairs[0].change == pytest.approx(3 / 4)


def test_a_slower_machine_is_no_change(
    result: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    session = FakeSession({("ngram-simple",): GOOD}, pace=lambda n: 2.0)
    slow = parse(quiet(document(finished(tmp_path, session))))
    found = compare(parse(result()), slow)
    assert {pair.verdict for pair in found.pairs} == {"no difference shown"}
    assert found.pairs[-1].b.speed.plain_rate == pytest.approx(50)


@pytest.mark.parametrize(("factor", "word"), [(1.05, "no difference shown"), (1.08, "faster")])
def test_both_noises_must_be_beaten(
    result: Callable[..., dict[str, Any]], factor: float, word: str
) -> None:
    """Floors of 2 % and 4 % together reach to 6.08 %: each alone would call 1.05 faster."""
    a, b = result(), result()
    for row in b["report"]["rows"]:
        row["speedup"] *= factor
        row["noise"] = 0.04
    assert a["report"]["rows"][0]["noise"] == 0.02
    assert verdict(factor, 0.04) == "faster"
    assert {pair.verdict for pair in compare(parse(a), parse(b)).pairs} == {word}


def test_nothing_generated_is_no_change(result: Callable[..., dict[str, Any]]) -> None:
    data = result()
    for row in data["report"]["rows"]:
        row.update(plain_rate=None, rate=None, speedup=None, low=None, high=None)
    pair = compare(parse(data), parse(result())).pairs[0]
    assert (pair.change, pair.verdict) == (None, "no difference shown")


def test_what_is_compared_may_differ_and_is_said(result: Callable[..., dict[str, Any]]) -> None:
    a = result()
    tuned = result(plan=plan(arm("ngram-simple"), arm("ngram-mod")))
    tuned["specctl"], tuned["machine"]["cpu"] = "9.9", "other CPU"
    spec = next(one["spec"] for one in tuned["arms"] if one["name"] == "ngram-simple")
    spec["ngram_simple"]["size_n"] = 3
    spec["ngram_mod"]["n_max"] = 3  # no matter to ngram-simple
    tuned["runs"][0]["tokens_hash"] = "f" * 16
    notes = compare(parse(a), parse(tuned)).notes
    assert f"specctl: {a['specctl']} in A, 9.9 in B" in notes
    assert "ngram-simple: ngram_simple.size_n: 12 in A, 3 in B" in notes
    assert "only in B: ngram-mod" in notes
    assert any(note.startswith("cpu: ") and "other CPU in B" in note for note in notes)
    assert any("plain decoding's text differs on 1 of 2 prompts" in note for note in notes)
    assert not any("n_max" in note for note in notes)
    assert "B: ngram-mod never drafted" in notes


def test_another_draft_model_is_said_where_it_drafts(
    result: Callable[..., dict[str, Any]],
) -> None:
    data = result()
    other = changed(data, "draft", {"file": "d.gguf", "bytes": 9})
    assert not compare(parse(data), parse(other)).notes
    for one in (data, other):
        one["arms"][1]["spec"]["types"] = ["draft-simple"]
    assert compare(parse(data), parse(other)).notes == (
        "draft model: not set in A, d.gguf, 9 bytes in B",
    )


# ---------------------------------------------------------------- the command


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    from specctl.cli import app, render

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["specctl", "bench", "compare", *arguments])
        monkeypatch.setenv("COLUMNS", "80")
        render.out.cache_clear()
        capfd.readouterr()
        with pytest.raises(SystemExit) as done:
            app.main()
        captured = capfd.readouterr()
        return int(done.value.code or 0), captured.out, captured.err

    return command


@pytest.fixture
def two(tmp_path: Path, result: Callable[..., dict[str, Any]]) -> tuple[str, str]:
    files = tmp_path / "a.json", tmp_path / "b.json"
    for file, data in zip(files, (result(), result(BETTER)), strict=True):
        file.write_text(json.dumps(data), encoding="utf-8")
    return str(files[0]), str(files[1])


def test_the_table_fits_80_columns_and_says_it(
    run: Callable[..., tuple[int, str, str]], two: tuple[str, str]
) -> None:
    code, out, err = run(*two)
    assert (code, err) == (0, "")
    tables = out[out.index("Does it pay") :]
    assert max(map(len, tables.splitlines())) <= 80
    words = " ".join(out.split())
    assert "ngram-simple 100.0 100.0 2.00× 2.67× +33.3 % faster" in words
    assert "ngram-simple 67 % 100 % 2.00 3.00 0.50 0.50" in words
    assert [line.strip() for line in out.splitlines() if line.strip() == "total"] == ["total"] * 2


def test_as_json(run: Callable[..., tuple[int, str, str]], two: tuple[str, str]) -> None:
    code, out, _ = run(*two, "--json")
    data = json.loads(out)
    assert code == 0
    assert data["schema"] == SCHEMA
    row = data["rows"][-1]
    assert row["change"] == pytest.approx(4 / 3)
    assert row["b"]["acceptance_rate"] == 1.0
    assert row["verdict"] == "faster"


def test_a_refusal_exits_2(
    run: Callable[..., tuple[int, str, str]], two: tuple[str, str], tmp_path: Path
) -> None:
    data = json.loads(Path(two[1]).read_text())
    data["max_tokens"], data["model"]["bytes"] = 5, 77
    Path(two[1]).write_text(json.dumps(data))
    code, out, err = run(*two)
    assert (code, out) == (2, "")
    assert "max-tokens: 12 in A, 5 in B" in err
    assert "77 bytes in B" in err
    for other, said in ((str(tmp_path), "not a file"), ("nowhere", "no result nowhere")):
        code, out, err = run(two[0], other)
        assert (code, out) == (2, "")
        assert said in err
        assert "Traceback" not in err


def test_kept_results_go_by_their_name(
    run: Callable[..., tuple[int, str, str]], two: tuple[str, str]
) -> None:
    kept = paths.data_dir() / "bench"
    kept.mkdir(parents=True)
    (kept / "2026-01-01-fake.json").write_text(Path(two[0]).read_text())
    assert run("2026-01-01-fake", two[1])[0] == 0
    assert run("2026-01-01-fake.json", two[1])[0] == 0


def test_names_of_the_file_are_no_markup(
    run: Callable[..., tuple[int, str, str]], two: tuple[str, str]
) -> None:
    text = Path(two[0]).read_text().replace("ngram-simple", "[/bold]<x>")
    for file in two:
        Path(file).write_text(text)
    code, out, err = run(*two)
    assert code == 0, err
    assert "[/bold]<x>" in out
