"""What the home screen's rows say: the same words and figures as the commands they stand for."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from specctl import paths
from specctl.cli import doctor, home_rows, home_store, recommend
from specctl.cli.home_desk import LocalDesk, Simulation
from specctl.hub import store
from specctl.plan import tuned as profiles
from specctl.plan.candidates import Wish
from specctl.recording import write_line
from specctl.tui.home_state import Failed, Home, ModelRow, Proposal, ResultRow, Seen
from specctl.units import GIB

sys.path.append(str(Path(__file__).parents[1] / "hub"))
sys.path.append(str(Path(__file__).parents[1] / "plan"))
sys.path.append(str(Path(__file__).parents[1] / "tui"))
import records as r
from test_made_drafts import _made
from test_tuned_profiles import made as tuned

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture(autouse=True)
def _only_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No models of other programs."""
    for name in [name for name in os.environ if name.startswith(("HF_HOME", "XDG_", "OLLAMA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def model_file(name: str, size: int = 100) -> Path:
    path = paths.models_dir() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF" + bytes(size - 4))
    return path


def named(seen: Seen) -> dict[str, ModelRow]:
    return {row.name: row for row in seen.rows if isinstance(row, ModelRow)}


# ---------------------------------------------------------------- machine, recommended


def test_the_machine_is_what_doctor_says():
    desk = LocalDesk(Simulation(vram=8 * GIB))
    machine = desk.machine()
    seen = home_rows.machine(machine, final=True)
    assert seen.rows[0].rows == tuple(doctor.rows(machine))
    assert seen.rows[0].conclusion == doctor.conclusion(machine)
    assert seen.about == "simulated: --vram 8.0 GiB"
    early = home_rows.machine(machine, final=False)
    assert "Engine" not in dict(early.rows[0].rows)
    assert not early.final


def test_the_recommended_are_those_of_recommend_with_its_figures():
    machine = LocalDesk(Simulation(vram=8 * GIB, ram=32 * GIB)).machine()
    ranked = recommend.rank_machine(machine, Wish(), home_rows.TOP).ranked
    seen = home_rows.recommended(machine)
    assert [row.key for row in seen.rows] == [one.selection.name for one in ranked]
    for row, one in zip(seen.rows, ranked, strict=True):
        assert isinstance(row, Proposal)
        assert row.speed == f"≈{recommend.speed_words(one)} tok/s"
        assert recommend.download_words(one).removeprefix("≈") in row.get
        assert one.model.licence in row.facts
        (pull,) = row.actions
        assert pull.argv == ("pull", one.selection.pull_name)
        assert row.get in pull.ask[0]
        assert str(paths.models_dir()) in pull.ask[1]


def test_where_nothing_fits_it_says_so():
    seen = home_rows.recommended(LocalDesk(Simulation(vram=0, ram=GIB // 4)).machine())
    assert not seen.rows
    assert seen.empty.startswith("Nothing fits.")


# ---------------------------------------------------------------- downloaded


def test_every_kind_of_model_is_there_with_the_name_that_runs_it(tmp_path: Path):
    target = tmp_path / "target.gguf"
    target.write_bytes(b"GGUF" + bytes(1000))
    made = _made(target, pays=False, speedup=0.9)
    plain = model_file("org--repo/one-Q4_K_M.gguf")
    for part in (1, 2, 3):
        model_file(f"org--repo/big-0000{part}-of-00003.gguf", 1000 * part)
    model_file("org--repo/odd-00007-of-00003.gguf")
    half = model_file("org--repo/half.gguf.part", 60)
    rows = named(home_store.downloaded())
    assert rows["org--repo/one-Q4_K_M.gguf"].actions[0].argv == ("chat", "--model", plain.name)
    assert rows["org--repo/big-00001-of-00003.gguf"].size == "5.9 KiB"
    assert not [name for name in rows if "00002-of" in name]
    assert "org--repo/odd-00007-of-00003.gguf" in rows
    own = rows[made.path.name]
    assert own.note == "draft made from target.gguf, ≈ 0.90×, does not pay"
    assert own.actions[0].argv == (
        "chat", "--model", str(target.resolve()), "--spec-type", "draft-self",
    )  # fmt: skip
    assert rows[half.name].note == "half-fetched"
    target.unlink()
    gone = named(home_store.downloaded())[made.path.name]
    assert "which is gone" in gone.note
    assert not gone.actions


def test_two_files_of_one_name_are_named_by_path():
    one, two = model_file("a--b/same.gguf"), model_file("c--d/same.gguf")
    models = [row.actions[0].argv[-1] for row in named(home_store.downloaded()).values()]
    assert {str(one), str(two)} <= set(models)


def test_a_file_of_the_catalogue_goes_by_its_name_there(monkeypatch: pytest.MonkeyPatch):
    text = """
family = "toy"
[[model]]
id = "toy"
name = "Toy"
licence = "mit"
params = 1.0
params_active = 1.0
role = "both"
released = "2026-01"
quality = 1
quality_source = "none"
[[model.files]]
repo = "org/toy"
list = [{ quant = "Q4_K_M", file = "toy-Q4_K_M.gguf", gib = 0.1 }]
"""
    folder = paths.config_dir() / "profiles"
    folder.mkdir(parents=True)
    (folder / "toy.toml").write_text(text)
    path = model_file("org--toy/toy-Q4_K_M.gguf")
    store.record(path, "org/toy", path.name, "1" * 40, "0" * 64, verified=True)
    row = named(home_store.downloaded())["toy:Q4_K_M"]
    assert row.actions[0].argv == ("chat", "--model", "toy:Q4_K_M")


def test_what_was_tuned_comes_first_and_once():
    path = model_file("imported/mine.gguf")
    profiles.write(tuned(id="mine", model=str(path.resolve()), draft=None))
    profiles.write(tuned(id="other", model="elsewhere.gguf", draft=None))
    (profiles.folder() / "broken.tuned.toml").write_text("[tuned]\nid = 3\n")
    seen = home_store.downloaded()
    assert [row.key for row in seen.rows[:2]] == ["mine", "other"]
    assert seen.rows[0].note.startswith("tuned: ")
    assert seen.rows[0].size == "100 B"
    assert "mine.gguf" not in str([row.key for row in seen.rows])
    (warning,) = seen.warnings
    assert "broken.tuned.toml" in warning


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root reads everything")
def test_a_store_without_permission_is_told():
    model_file("imported/mine.gguf")
    paths.models_dir().chmod(0)
    try:
        assert "permission denied" in home_store.downloaded().warnings[0]
    finally:
        paths.models_dir().chmod(0o755)


def test_a_store_that_is_no_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "file"
    file.write_text("x")
    monkeypatch.setenv("SPECCTL_MODELS", str(file))
    assert home_store.downloaded().warnings == (
        f"{file} is no folder: choose another one with SPECCTL_MODELS",
    )


def test_one_section_that_fails_hides_only_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPECCTL_MODELS", "~nobody-of-this-name/x")
    events = list(LocalDesk(Simulation(vram=8 * GIB)).look())
    failed = [event for event in events if isinstance(event, Failed)]
    assert {one.section for one in failed} >= {"downloaded"}
    assert all("no such user" in one.why for one in failed)
    home = Home()
    for event in events:
        home.apply(event)
    assert not home.waiting
    assert home.parts["results"].seen


# ---------------------------------------------------------------- results


def keep(name: str, change: Any = None) -> None:
    folder = paths.data_dir() / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    data = json.loads((RESULTS / "demo-f16.json").read_text(encoding="utf-8"))
    if change is not None:
        change(data)
    (folder / f"{name}.json").write_text(json.dumps(data))


def total(data: Any, arm: str) -> Any:
    return next(
        row for row in data["report"]["rows"] if row["workload"] is None and row["arm"] == arm
    )


def only() -> ResultRow:
    (row,) = home_rows.results().rows
    assert isinstance(row, ResultRow)
    return row


def test_a_result_is_its_fastest_arm_and_the_rest_by_count():
    keep("2026-11-30-a")
    row = only()
    assert row.name == "SmolLM2-135M-Instruct.F16.gguf"
    assert re.fullmatch(r"2026-11-\d\d \d\d:\d\d", row.date)
    assert row.arms[0] == ("faster", "auto 1.43× faster (one, ±19%)")
    assert row.arms[1:] == (("faster", "2 more: faster"),)
    assert row.actions[0].argv == ("bench", "page", "2026-11-30-a")


def test_a_proven_gain_comes_before_a_larger_figure_inside_the_noise():
    keep("a", lambda data: total(data, "auto").update(verdict="no difference shown"))
    assert only().arms == (
        ("faster", "ngram-mod 1.27× faster (one, ±16%)"),
        ("faster", "1 more: faster"),
        ("no difference shown", "1 more: no difference"),
    )


def test_losses_silence_and_bugs_are_named():
    def worse(data: Any) -> None:
        total(data, "ngram-simple").update(speedup=0.71, verdict="slower", low=0.69, high=0.74)
        total(data, "auto")["identity"].update(bugs=2)
        report = data["report"]
        report["undrafted"].append(
            {"workload": None, "arm": "ngram-mod", "cycles": 9, "reasons": []}
        )
        data["interrupted"] = True

    keep("a", worse)
    row = only()
    assert set(row.arms) == {
        ("differs", "auto changes the text: BUG 2"),
        ("never drafted", "ngram-mod never drafted"),
        ("slower", "ngram-simple 0.71× slower (0.69–0.74)"),
    }
    assert row.note == "stopped early"


def test_a_text_that_differs_over_http_is_said():
    keep("a", lambda data: total(data, "auto")["identity"].update(differs=3))
    assert only().arms[0] == ("faster", "auto 1.43× faster (one, ±19%), text: diff 3")


def test_nor_is_one_hidden_in_a_count():
    keep("a", lambda data: total(data, "ngram-simple")["identity"].update(differs=1))
    said = [words for _, words in only().arms]
    assert said[0].startswith("auto 1.43×")
    assert any(re.match(r"ngram-simple .*, text: diff 1$", one) for one in said)
    assert said[-1] == "1 more: faster"


def test_broken_files_are_named_and_do_not_hide_the_others():
    keep("good")
    keep("damaged", lambda data: data["report"].pop("rows"))
    folder = paths.data_dir() / "bench"
    (folder / "no.json").write_bytes(b"\xff\xfe not json")
    recordings = paths.data_dir() / "recordings"
    recordings.mkdir()
    (recordings / "empty.jsonl").touch()
    (recordings / "junk.jsonl").write_text("[1]\n")
    with (recordings / "good.jsonl").open("w") as out:
        write_line(r.started("Say it again."), out)
    rows = {Path(row.key).name: row for row in home_rows.results().rows}
    assert {name for name, row in rows.items() if row.broken} == {
        "damaged.json", "no.json", "empty.jsonl", "junk.jsonl",
    }  # fmt: skip
    assert all(name in row.broken for name, row in rows.items() if row.broken)
    assert "Say it again." in rows["good.jsonl"].note
    assert rows["good.jsonl"].actions[0].argv == ("replay", str(recordings / "good.jsonl"))


def test_only_the_newest_are_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(home_rows, "NEWEST", 2)
    for index, name in enumerate(("old", "newer", "newest")):
        keep(name)
        os.utime(paths.data_dir() / "bench" / f"{name}.json", (1e9 + index, 1e9 + index))
    seen = home_rows.results()
    assert {Path(row.key).stem for row in seen.rows} == {"newer", "newest"}
    assert seen.about == "the newest of 3"


def test_nothing_yet_says_what_to_do():
    seen = home_rows.results()
    assert not seen.rows
    assert "specctl bench --quick" in seen.empty
    empty = home_store.NOTHING
    assert "specctl pull" in empty


def test_pages_are_what_the_commands_print(capsys: pytest.CaptureFixture[str]):
    keep("a")
    desk = LocalDesk(Simulation(vram=8 * GIB))
    page = desk.page(only().actions[0])(100).plain
    assert "Does it pay?" in page
    assert "1.43×" in page
    assert max(map(len, page.splitlines())) <= 100
    action = home_rows.machine(desk.machine(), final=False).rows[0].actions[0]
    assert "A model can use 7.5 GiB" in desk.page(action)(60).plain
    shutil.rmtree(paths.data_dir() / "bench")
