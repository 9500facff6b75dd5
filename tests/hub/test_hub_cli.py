"""`specctl pull` and `specctl models` as commands, and profiles as names of whole pairs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from hubserver import HubServer

from specctl.cli.app import main
from specctl.cli.pull import short_name
from specctl.errors import UsageError
from specctl.hub.profiles import choose, elsewhere_on_the_hub, wanted
from specctl.hub.remote import Wanted
from specctl.plan.catalog import Catalog, load

PROFILE = """
family = "toy"

[[model]]
id = "{id}"
name = "Toy"
licence = "mit"
params = 1.0
params_active = 1.0
role = "both"
released = "2026-01"
quality = 1
quality_source = "none"

[[model.files]]
repo = "org/{id}"
{files}

[[model.files]]
repo = "twin/{id}"
list = [{{ quant = "Q4_K_M", file = "{id}-Q4_K_M.gguf", gib = 1.0 }}]
{drafts}
"""
BIG = """list = [
  { quant = "Q4_K_M", file = "big-Q4_K_M.gguf", bytes = 1000 },
  { quant = "Q8_0", parts = ["big-Q8_0-00001-of-00002.gguf", "big-Q8_0-00002-of-00002.gguf"] },
]"""
SMALL = 'list = [{ quant = "Q4_K_M", file = "small-Q4_K_M.gguf", gib = 0.1 }]'
DRAFT = """
[[model.draft]]
method = "draft-eagle3"
status = "listed"
source = "none"
repo = "org/head"
file = "head.gguf"

[[model.draft]]
method = "draft-simple"
status = "measured"
source = "none"
model = "small"
quant = "Q4_K_M"
"""
TARGET = Wanted("org/big", "big-Q4_K_M.gguf", 1000)
SMALL_FILE = Wanted("org/small", "small-Q4_K_M.gguf")
PARTS = tuple(Wanted("org/big", f"big-Q8_0-0000{n}-of-00002.gguf") for n in (1, 2))


@pytest.fixture
def profiles(tmp_path: Path) -> Catalog:
    folder = tmp_path / "specctl-home" / "config" / "profiles"
    folder.mkdir(parents=True)
    (folder / "big.toml").write_text(PROFILE.format(id="big", files=BIG, drafts=DRAFT))
    (folder / "small.toml").write_text(PROFILE.format(id="small", files=SMALL, drafts=""))
    return load()


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["specctl", *args])
    with pytest.raises(SystemExit) as caught:
        main()
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "quant", "draft", "files"),
    [
        ("big", None, None, (TARGET, SMALL_FILE)),  # the measured draft, not the listed one
        ("big", None, "none", (TARGET,)),
        ("big+none", None, None, (TARGET,)),
        ("big", "q8_0", "none", PARTS),
        ("big:Q8_0+draft-simple", None, None, (*PARTS, SMALL_FILE)),
        ("big", None, "draft-eagle3", (TARGET, Wanted("org/head", "head.gguf"))),
        ("small", None, None, (SMALL_FILE,)),
    ],
)
def test_profile_names(
    name: str,
    quant: str | None,
    draft: str | None,
    files: tuple[Wanted, ...],
    profiles: Catalog,
) -> None:
    assert wanted(choose(profiles, name, quant, draft)) == files


@pytest.mark.parametrize(
    ("name", "quant", "draft"),
    [("big:Q8_0", "Q4_K_M", None), ("big+none", None, "draft-simple"), ("bigg", None, None)],
)
def test_contradictions(name: str, quant: str | None, draft: str | None, profiles: Catalog) -> None:
    with pytest.raises(UsageError):
        choose(profiles, name, quant, draft)


def test_twins(profiles: Catalog) -> None:
    assert elsewhere_on_the_hub(profiles, "org/big", ("big-Q4_K_M.gguf",)) == (
        "hf:twin/big/big-Q4_K_M.gguf",
    )
    assert elsewhere_on_the_hub(profiles, "org/big", ("other.gguf",)) == ()


# ---------------------------------------------------------------- commands


def test_pull_of_a_profile_is_the_whole_pair(
    hub: HubServer,
    profiles: Catalog,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.add("org/big", {TARGET.file: b"b" * 999})
    hub.add("org/small", {SMALL_FILE.file: b"s" * 10})
    code, out, _ = run(capsys, monkeypatch, "pull", "big", "--dry-run")
    assert code == 0
    assert out.splitlines()[-1] == "total\t1009 B\t1009 B to fetch"
    assert hub.sent == 0
    code, out, err = run(capsys, monkeypatch, "pull", "big")
    assert code == 0
    assert [Path(line).name for line in out.splitlines()] == [TARGET.file, SMALL_FILE.file]
    assert "big: big:Q4_K_M+draft-simple" in err
    assert "expected bytes 1000, the hub has 999" in err
    code, out, _ = run(capsys, monkeypatch, "pull", "big", "--json", "--offline")
    assert code == 0
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events] == ["ready", "ready", "done"]


def test_gated_profile_names_the_twin(
    hub: HubServer,
    profiles: Catalog,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.add("org/small", {SMALL_FILE.file: b"s"}, gated=True)
    code, _, err = run(capsys, monkeypatch, "pull", "small")
    assert code == 1
    assert f"open {hub.url}/org/small" in err
    assert "elsewhere: hf:twin/small/small-Q4_K_M.gguf" in err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("hf:o/r",), "names no file"),
        (("o/r/f.gguf",), "a file on the hub is hf:o/r/f.gguf"),
        (("big", "--draft", "draft-simple", "--no-draft"), "contradict"),
        (("big", "--stall", "0"), "--stall takes"),
        (("hf:o/r/f-00003-of-00002.gguf",), "part 3 of 2"),
        (("hf:o/r/f.gguf", "--offline"), "--offline forbids fetching: o/r/f.gguf"),
    ],
)
def test_bad_pulls(
    args: tuple[str, ...],
    says: str,
    profiles: Catalog,
    hub: HubServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, out, err = run(capsys, monkeypatch, "pull", *args)
    assert code == (1 if "--offline" in args else 2)
    assert says in err
    assert out == ""
    assert not hub.requests


def test_models(
    hub: HubServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, out, err = run(capsys, monkeypatch, "models")
    assert (code, out) == (0, "")
    assert "no models on this machine" in err
    demo_model = tmp_path / "smol.gguf"
    demo_model.write_bytes(b"GGUF")
    monkeypatch.setattr("specctl.demo.demo_model", lambda: demo_model)
    _, _, err = run(capsys, monkeypatch, "models")
    assert "but the demo models: demo (SmolLM2-135M Q4_1, 4 B) and demo-f16" in err
    hub.add("org/m", {"m.gguf": b"m" * 2048})
    run(capsys, monkeypatch, "pull", "hf:org/m/m.gguf")
    mine(tmp_path / "mine.gguf")
    assert run(capsys, monkeypatch, "models", "import", str(tmp_path / "mine.gguf"))[0] == 0
    code, out, _ = run(capsys, monkeypatch, "models")
    assert [line.split() for line in out.splitlines()] == [
        ["name", "size", "where", "verified"],
        ["imported/mine.gguf", "256", "B", "specctl", "unchanged"],
        ["org/m/m.gguf", "2.0", "KiB", "specctl", "yes"],
    ]
    code, out, _ = run(capsys, monkeypatch, "models", "verify")
    assert (code, out.count("\tok\n")) == (0, 2)
    assert "also here: the demo models: demo (" in run(capsys, monkeypatch, "models")[2]
    code, out, _ = run(capsys, monkeypatch, "models", "list", "--json", "m.gguf")
    row = json.loads(out)[0]
    assert (row["repo"], row["size"], row["verified"]) == ("org/m", 2048, "yes")
    Path(row["path"]).write_bytes(b"x" * 2048)
    code, out, err = run(capsys, monkeypatch, "models", "verify", "m.gguf")
    assert code == 1
    assert "DAMAGED" in out
    assert "pull it again" in err
    code, _, err = run(capsys, monkeypatch, "models", "remove", "m.gguf")
    assert code == 2
    assert "needs a yes" in err
    assert Path(row["path"]).exists()
    assert run(capsys, monkeypatch, "models", "remove", "m.gguf", "--yes")[0] == 0
    assert not Path(row["path"]).exists()


def mine(path: Path) -> bytes:
    """A whole GGUF file of one tensor."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("token_embd.weight", np.ones((1, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def test_verify_looks_into_files_without_the_hubs_hash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCTL_MODELS", str(tmp_path / "store"))
    (tmp_path / "store").mkdir()
    whole = mine(tmp_path / "store" / "whole.gguf")
    for name, data in {"empty": b"", "random": b"\x07" * 64, "short": whole[:-1]}.items():
        (tmp_path / "store" / f"{name}.gguf").write_bytes(data)
    for verdict in ("no hash known; recorded this one", "ok"):  # and no hash of a damaged one
        code, out, err = run(capsys, monkeypatch, "models", "verify")
        assert code == 1
        empty, random, short, good = (line.split("\t")[1] for line in out.splitlines())
        assert empty == "DAMAGED: is empty"
        assert random.startswith("DAMAGED: is not a GGUF")
        assert short == "DAMAGED: 1 B are missing"
        assert good == verdict
        assert "damaged: empty.gguf, random.gguf, short.gguf" in err


@pytest.mark.parametrize("action", ["list", "verify"])
@pytest.mark.parametrize("link", [False, True])
def test_a_models_folder_that_is_none_is_an_error(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    link: bool,
) -> None:
    root = tmp_path / "store"
    if link:
        root.symlink_to(tmp_path / "nothing")
    else:
        root.write_text("")
    monkeypatch.setenv("SPECCTL_MODELS", str(root))
    code, out, err = run(capsys, monkeypatch, "models", action)
    assert (code, out) == (1, "")
    assert f"{root} is {'a link to nothing' if link else 'no folder'}" in err
    assert "SPECCTL_MODELS" in err


def test_half_fetched_files_are_listed_as_such(
    hub: HubServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/m", {"m.gguf": b"m" * 3000})
    hub.faults.cuts = [1000]
    code, _, err = run(capsys, monkeypatch, "pull", "hf:org/m/m.gguf", "--retries", "0")
    assert code == 1
    assert "the line was cut" in err
    code, out, _ = run(capsys, monkeypatch, "models")
    assert "1000 B of 2.9 KiB" in out
    assert "half-fetched" in out


@pytest.mark.parametrize("args", [("erase",), ("remove",), ("import",), ("verify", "nothing.gguf")])
def test_bad_models_commands(
    args: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, "models", *args)
    assert code == (1 if args[0] == "verify" else 2)
    assert out == ""
    assert err.startswith("error: ")


def test_short_names_keep_the_quant() -> None:
    assert short_name("d/model-Q4.gguf", 10) == "model-Q4"
    assert short_name("d/model-Q4.gguf", 8) == "model-Q4"
    assert short_name("d/model-Q4.gguf", 5) == "…l-Q4"
    assert short_name("d/model-Q4.gguf", 3) == ""
