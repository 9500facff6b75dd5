"""`specctl make-draft` and `--spec-type draft-self` as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selfdraft_kit import told_costs

from specctl import paths
from specctl.hub import drafts

pytestmark = pytest.mark.native
Specctl = Callable[..., tuple[int, str, str]]
SMALL = ("-n", "24", "-t", "1", "--ctx", "1024")


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "mine.txt"
    path.write_text("amber anchor\n---\ncedar cherry\n")
    return str(path)


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A step of the draft over one of the target."""
    return told_costs(monkeypatch)


def test_it_says_plainly_that_it_does_not_pay(
    specctl: Specctl, tiny_models: Any, prompts: str, costs: Any, tmp_path: Path
) -> None:
    costs(0.83)
    result = tmp_path / "result.json"
    code, out, err = specctl(
        "make-draft", str(tiny_models["clock"]), "-q", "q8_0", "--prompts", prompts,
        "--k", "1", "--k", "4", "--json", str(result), *SMALL,
    )  # fmt: skip
    assert code == 0
    assert "Q8_0 drafts at 0.83 of the target's own step" in out
    assert (
        "at K 4 it needs 3.32 accepted per cycle and would get 4.00: faster, ≈ 1.16×; kept" in out
    )
    costs(2.0)
    drafts.folder().joinpath("clock-Q8_0.gguf").unlink()
    code, out, err = specctl(
        "make-draft", str(tiny_models["clock"]), "-q", "Q8_0", "--prompts", prompts,
        "--json", str(result), *SMALL,
    )  # fmt: skip
    assert code == 0
    assert "would get 1.00: slower, ≈ 0.67×; nothing kept" in out
    assert not list(drafts.folder().glob("*.gguf"))
    assert "q8_0" in err  # what came out
    data = json.loads(result.read_text())
    (draft,) = data["drafts"]
    assert data["kept"] is None
    assert draft["agreement"] == 1.0
    assert draft["k_star"] == 0
    assert [one["k"] for one in draft["lengths"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert str(tmp_path) not in json.dumps(data)


def test_dry_run_makes_nothing(specctl: Specctl, tiny_models: Any) -> None:
    code, out, _ = specctl("make-draft", str(tiny_models["clock"]), "-q", "Q8_0", "--dry-run")
    assert code == 0
    assert "would make Q8_0, ≈ " in out
    assert "clock-Q8_0.gguf" in out
    assert not drafts.folder().exists()


def test_dropping_layers_says_what_was_measured_of_it(specctl: Specctl, tiny_models: Any) -> None:
    code, out, _ = specctl(
        "make-draft", str(tiny_models["slow"]), "--drop-layers", "3", "--dry-run"
    )
    assert code == 0
    assert "leaves out layers 4 to 6, counted from 0" in out
    assert "did not pay in any of our measurements" in out
    assert "slow-F32-drop3.gguf" in out


def test_a_target_that_is_cut_off_is_refused(
    specctl: Specctl, tiny_models: Any, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_models["clock"].read_bytes()[:-5000])
    code, out, err = specctl("make-draft", str(cut), "-q", "Q8_0", "--dry-run")
    assert (code, out) == (1, "")
    assert "cut.gguf is incomplete: by its header 4.9 KiB are missing" in err.replace("\n", " ")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("-q", "Q9"), "not a quant"),
        (("--k", "0"), "--k 0"),
        (("--k", "99"), "--k 99"),
        (("-n", "1"), "--max-tokens 1"),
        (("--drop-layers", "-1"), "--drop-layers -1 is below 1"),
        (("--drop-layers", "0"), "--drop-layers 0 drops nothing"),
        (("--drop-layers", "1"), "the first and the last stay"),
        (("-w", "poems"), "not a built-in workload"),
        (("--ctx", "40"), "--ctx"),
        (("-o", "there.gguf"), "there is a file"),
        (("-o", "model.bin"), ".gguf"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    specctl: Specctl,
    tiny_models: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.gguf").write_text("mine")
    code, _, err = specctl("make-draft", str(tiny_models["clock"]), "-q", "Q8_0", *flags)
    assert code == 2
    assert words in err
    assert (tmp_path / "there.gguf").read_text() == "mine"


def test_a_target_that_cannot_be_read(specctl: Specctl, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03")
    code, _, err = specctl("make-draft", str(broken))
    assert code == 1
    assert "broken.gguf" in err
    assert "Traceback" not in err


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_leaves_no_part_file(tiny_models: Any, tmp_path: Path) -> None:
    """The real signal, to the whole process group, while the target answers or is quantised."""
    home = tmp_path / "home"
    command = [sys.executable, "-m", "specctl", "make-draft", str(tiny_models["slow"])]
    child = subprocess.Popen(
        [*command, "-q", "Q4_0", "-w", "chat", "-n", "2", "-t", "1", "--ctx", "1024"],
        env={**os.environ, "SPECCTL_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    folder = home / "data" / "models" / "self-drafts"
    until = time.monotonic() + 60
    while not list(folder.glob("*.part")) and time.monotonic() < until and child.poll() is None:
        time.sleep(0.02)
    assert list(folder.glob("*.part")), child.communicate()[0]
    os.killpg(child.pid, signal.SIGINT)
    said, _ = child.communicate(timeout=60)
    assert child.returncode == 130, said
    assert list(folder.iterdir()) == []


# ---------------------------------------------------------------- draft-self


def test_drafters_lists_it(specctl: Specctl) -> None:
    _, out, _ = specctl("drafters", "--json")
    (row,) = [one for one in json.loads(out) if one["name"] == "draft-self"]
    assert row["available"]
    assert "make-draft" in row["needs"]


def test_draft_self_both_ways(specctl: Specctl, tiny_models: Any, prompts: str, costs: Any) -> None:
    """Context history before a draft was made, the draft afterwards; chat, bench and verify."""
    model = str(tiny_models["clock"])
    chat = ("chat", "-m", model, "-s", "draft-self", "-p", "amber", "--temp", "0", "--json", *SMALL)
    code, out, err = specctl(*chat)
    assert code == 0, err
    assert "draft-self is ngram-map-k here: no draft was made from clock.gguf" in err
    assert json.loads(out.splitlines()[0])["spec_types"] == ["ngram-map-k"]

    costs(0.1)
    make = ("make-draft", model, "-q", "Q8_0", "--prompts", prompts, *SMALL)
    code, made, err = specctl(*make)
    assert code == 0, err
    assert f"specctl chat -m {model} -s draft-self" in made

    code, out, err = specctl(*chat)
    assert code == 0, err
    assert "draft-self is draft-simple with clock-Q8_0.gguf, K 8" in err
    started = json.loads(out.splitlines()[0])
    assert (started["spec_types"], started["k_max"]) == (["draft-simple"], 8)
    assert started["draft_model"] == "clock-Q8_0.gguf"

    code, out, err = specctl(
        "bench", "-m", model, "-s", "draft-self", "-s", "ngram-mod", "--prompts", prompts,
        "-r", "1", "--strict", *SMALL,
    )  # fmt: skip
    assert "draft-simple" in out
    assert "draft-self is draft-simple with clock-Q8_0.gguf" in err
    (kept,) = paths.data_dir().rglob("*bench*/*.json")
    assert json.loads(kept.read_text())["draft"]["file"] == "clock-Q8_0.gguf"

    code, out, err = specctl("verify", model, "-s", "draft-self", "-n", "16", "-t", "1")
    assert code == 0, out + err
    assert "draft-simple" in out


def test_another_draft_beside_it_is_refused(
    specctl: Specctl, tiny_models: Any, prompts: str, costs: Any
) -> None:
    costs(0.1)
    model, other = str(tiny_models["clock"]), str(tiny_models["clock-draft"])
    assert specctl("make-draft", model, "-q", "Q8_0", "--prompts", prompts, *SMALL)[0] == 0
    code, _, err = specctl(
        "chat", "-m", model, "-d", other, "-s", "draft-self", "-p", "amber", *SMALL
    )
    assert code == 2
    assert "another draft is named" in err


def test_in_a_running_chat(tiny_models: Any, prompts: str, specctl: Specctl, costs: Any) -> None:
    """/spec draft-self: the draft where it is open, else context history."""
    from specctl.cli.aliases import in_session
    from specctl.engine.session import open_session
    from specctl.settings import EngineSettings, SpecSettings

    costs(0.1)
    model = tiny_models["clock"]
    assert specctl("make-draft", str(model), "-q", "Q8_0", "--prompts", prompts, *SMALL)[0] == 0
    asked = SpecSettings(types=("draft-self",))
    settings = EngineSettings(n_ctx=512, threads=1)
    made, _ = drafts.find(model)
    assert made is not None
    with open_session(model, settings=settings) as session:
        spec, note = in_session(asked, session)
        assert spec.types == ("ngram-map-k",)
        assert "is not open" in note
        session.use(spec)
    simple = SpecSettings(types=("draft-simple",))
    with open_session(model, made.path, (simple,), settings) as session:
        spec, note = in_session(asked, session)
        assert spec.types == ("draft-simple",)
        session.use(spec)


# ---------------------------------------------------------------- a real model


@pytest.mark.demo
def test_the_demo_model(specctl: Specctl, demo_model: Path, tmp_path: Path) -> None:
    """Q4_0 of the Q4_1 demo model is refused; a low quant of its odd shapes is told as it is."""
    code, _, err = specctl("make-draft", str(demo_model), "-q", "Q4_0")
    assert code == 2
    assert "its steps would cost about what the target's do" in err
    copy = tmp_path / "demo-f16.gguf"
    from specctl.llama.quantise import convert

    convert(demo_model, copy, "f16")
    result = tmp_path / "result.json"
    prompt = tmp_path / "p.txt"
    prompt.write_text("Count from one to ten in words.")
    code, out, err = specctl(
        "make-draft", str(copy), "-q", "Q3_K_S", "--prompts", str(prompt), "--k", "2",
        "-n", "16", "-t", "1", "--ctx", "256", "--json", str(result),
    )  # fmt: skip
    assert code == 0, err
    assert "most of it is not q3_K" in err  # 576 columns
    (draft,) = json.loads(result.read_text())["drafts"]
    assert 0.5 < draft["agreement"] <= 1
    assert draft["bytes"] < copy.stat().st_size / 2
    assert len(draft["lengths"]) == 2
    kept = json.loads(result.read_text())["kept"]
    assert ("nothing kept" in out) == (kept is None)
