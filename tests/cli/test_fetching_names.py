"""What a name means: files that are here, what is missing, methods, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from fetch_kit import PAIR, HubServer, own_hub, run

from specctl.cli import proposal, render
from specctl.cli.fetching import say_unused_draft
from specctl.cli.opening import as_named, as_proposed
from specctl.drafters.registry import SPEC_TYPES
from specctl.errors import ModelError, SpecctlError, UsageError
from specctl.hardware.machine import take_snapshot
from specctl.hardware.simulate import simulate
from specctl.plan.profile import IN_PROCESS
from specctl.resolve import Missing, Resolved, header_places, resolve
from specctl.settings import EngineSettings, ModelSettings, SpecSettings
from specctl.units import GIB

native = [pytest.mark.native, pytest.mark.skipif(sys.platform == "win32", reason="no pty")]


@pytest.fixture
def hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_models: Mapping[str, Path]
) -> Iterator[HubServer]:
    """The hub has the pair; nothing of it is here."""
    with own_hub(tmp_path, monkeypatch, tiny_models) as server:
        yield server


def test_a_name_is_complete_or_says_what_is_missing(hub: HubServer) -> None:
    pair = resolve(PAIR)
    assert isinstance(pair, Missing)
    assert (pair.name, pair.pull, pair.exact) == (PAIR, PAIR, True)
    assert [str(file) for file in pair.files] == [
        "org/clock/clock.gguf",
        "org/clock-small/clock-draft.gguf",
    ]
    sizes = [len(file.data) for repo in hub.repos.values() for file in repo.files.values()]
    assert pair.bytes == sum(sizes)

    alone = resolve("clock")
    assert isinstance(alone, Missing)
    assert (alone.name, alone.pull, alone.bytes) == ("clock:F32", "clock:F32+none", sizes[0])

    beside = resolve("clock", "hf:org/other/x.gguf")
    assert isinstance(beside, Missing)
    assert beside.pull == "clock:F32+none hf:org/other/x.gguf"
    assert beside.bytes is None
    assert not hub.requests


def test_files_of_the_store_are_found_with_the_profiles_advice(
    hub: HubServer, tmp_path: Path
) -> None:
    store = tmp_path / "specctl-home" / "data" / "models"
    for repo, files in (("org/clock", "clock.gguf"), ("org/clock-small", "clock-draft.gguf")):
        place = store / repo.replace("/", "--") / files
        place.parent.mkdir(parents=True)
        place.write_bytes(hub.repos[repo].files[files].data)
        if repo == "org/clock":
            lacking = resolve(PAIR)
            assert isinstance(lacking, Missing)
            assert [file.file for file in lacking.files] == ["clock-draft.gguf"]
            plain = resolve("clock")
            assert isinstance(plain, Resolved)
            assert not plain.notes
    pair = resolve(PAIR)
    assert isinstance(pair, Resolved)
    assert pair.model == store / "org--clock" / "clock.gguf"
    assert pair.draft == place
    assert (pair.spec_types, pair.k) == (("draft-simple",), 4)
    plain = resolve("clock")
    assert isinstance(plain, Resolved)
    assert (plain.draft, plain.spec_types) == (None, None)
    assert f"--model {PAIR} uses it" in plain.notes[0]
    look_up = resolve("clock:F32+ngram-suffix")
    assert isinstance(look_up, Resolved)
    assert look_up.spec_types == ("ngram-suffix",)
    assert resolve("clock-draft.gguf") == Resolved(place)
    assert header_places(PAIR) == (str(pair.model), str(place))
    place.write_bytes(b"another size")  # the catalogue knows the size: this is another file
    assert isinstance(resolve(PAIR), Missing)


def test_a_split_model_is_here_when_all_parts_are(hub: HubServer, tmp_path: Path) -> None:
    folder = tmp_path / "specctl-home" / "data" / "models" / "org--split"
    folder.mkdir(parents=True)
    (folder / "c-00001-of-00002.gguf").write_bytes(b"one")
    half = resolve("parts")
    assert isinstance(half, Missing)
    assert len(half.files) == 2
    assert not half.exact
    (folder / "c-00002-of-00002.gguf").write_bytes(b"two")
    whole = resolve("parts")
    assert isinstance(whole, Resolved)
    assert whole.model.name == "c-00001-of-00002.gguf"


def test_a_local_profile_names_files_of_this_machine(hub: HubServer, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no file .*own\.gguf") as gone:
        resolve("own-pair")
    assert "own.toml" in (gone.value.hint or "")
    path = tmp_path / "specctl-home" / "config" / "profiles" / "models" / "own.gguf"
    path.parent.mkdir()
    path.write_bytes(b"GGUF")
    assert resolve("own-pair") == Resolved(path)


def test_a_header_is_read_on_the_hub_where_the_file_is_not_here(hub: HubServer) -> None:
    expected = ("hf:org/clock/clock.gguf", "hf:org/clock-small/clock-draft.gguf")
    assert header_places(PAIR) == expected
    done = run("inspect", PAIR, "--json")
    assert done.returncode == 0, done.stderr
    assert '"draft"' in done.stdout


@pytest.mark.parametrize(
    ("name", "kind", "said", "hint"),
    [
        ("clok", ModelError, "'clok'", "did you mean clock"),
        ("qwen3-8bb:Q4_K_M", ModelError, "qwen3-8bb", "qwen3-8b"),
        ("dem", ModelError, "'dem'", "demo"),
        ("clock:Q9", UsageError, "no quant 'Q9'", "F32"),
        ("clock+draft-simpel", UsageError, "draft-simpel", "draft-simple"),
        ("clock+draft-dflash", UsageError, "llama-server", f"runs: {PAIR};"),
        ("hf:org/clock", UsageError, "names no file", "hf:owner/repo/file.gguf"),
        ("hf:org/clock@v2/clock.gguf", UsageError, "a revision", "clock.gguf --revision v2"),
        ("./clock.gguf", ModelError, "no such file", "hf:owner/repo/file.gguf"),
    ],
)
def test_what_cannot_be_meant_is_told(
    name: str, kind: type[SpecctlError], said: str, hint: str, hub: HubServer
) -> None:
    with pytest.raises(kind) as caught:
        resolve(name)
    assert said in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "head", "k"),
    [
        ("clock:F32+draft-eagle3", "head.gguf", None),
        ("muse-glimmer-30b:Q4_K_M+draft-dflash", "dflash-kquant.gguf", 7),
        ("gemma-4-31b-it:Q4_K_M+draft-mtp", "mtp-gemma-4-31B-it.gguf", 2),
        ("qwen3.8-27b:Q4_K_M+draft-mtp", "MTP/mtp-Qwen3.8-27B-Q4_0.gguf", 2),
    ],
)
def test_a_head_of_its_own_file_is_fetched_and_run(
    name: str, head: str, k: int | None, hub: HubServer
) -> None:
    missing = resolve(name)
    assert isinstance(missing, Missing)
    assert missing.pull == name
    assert head in [want.file for want in missing.files]
    placed = {(want.repo, want.file): Path(want.file) for want in missing.files}
    found = resolve(name, placed=placed)
    method = name.partition("+")[2]
    assert isinstance(found, Resolved)
    assert (found.draft, found.spec_types, found.k) == (Path(head), (method,), k)


def test_a_draft_is_one_model(hub: HubServer) -> None:
    with pytest.raises(UsageError, match="a draft is one model"):
        resolve("clock", PAIR)


def test_in_process_methods_are_those_with_a_drafter() -> None:
    assert {"none", *SPEC_TYPES} == IN_PROCESS


@pytest.mark.parametrize(
    ("files", "types"),
    [
        (Resolved(Path("t")), ("auto",)),
        (Resolved(Path("t"), spec_types=("ngram-suffix",)), ("ngram-suffix",)),
        (Resolved(Path("t"), Path("d"), ("draft-simple",), 4), ("auto",)),
        (Resolved(Path("t"), spec_types=("draft-mtp",), k=2), ("draft-mtp",)),
        (Resolved(Path("t"), Path("h"), ("draft-mtp",), 2), ("draft-mtp",)),
        (Resolved(Path("t"), Path("h"), ("draft-eagle3",), 3), ("draft-eagle3",)),
    ],
)
def test_what_chat_drafts_with_where_no_spec_type_is_given(
    files: Resolved, types: tuple[str, ...]
) -> None:
    assert as_named(SpecSettings(types=("auto",)), files).types == types


def test_a_proposals_kv_type_and_place_are_used_unless_flags_say_more() -> None:
    files = Resolved(Path("t"), kv_type="q8_0", n_cpu_moe=7)
    target = as_proposed(EngineSettings(), files).target
    assert (target.kv_type_k, target.kv_type_v, target.n_cpu_moe) == ("q8_0", "q8_0", 7)
    own = EngineSettings(target=ModelSettings(kv_type_k="q4_0", kv_type_v="q4_0", n_cpu_moe=2))
    assert as_proposed(own, files) == own
    assert as_proposed(EngineSettings(), Resolved(Path("t"))) == EngineSettings()


@pytest.mark.native
def test_a_gpu_that_this_build_cannot_use_is_not_proposed_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = simulate(take_snapshot(), 24 * GIB, 32 * GIB, None)
    monkeypatch.setattr(proposal, "take_snapshot", lambda: machine)
    for usable, place in ((False, {"CPU"}), (True, {"GPU", "GPU, experts in RAM"})):
        monkeypatch.setattr("specctl.llama.api.has_gpu_backend", lambda found=usable: found)
        assert {one.fit.place for one in proposal._ranked(4096)} <= place


@pytest.mark.parametrize(("types", "said"), [(("ngram-simple",), True), (("auto",), False)])
def test_a_draft_that_nothing_uses_is_said(
    types: tuple[str, ...],
    said: bool,
    capsys: pytest.CaptureFixture[str],
    tiny_models: dict[str, Path],
) -> None:
    render.err.cache_clear()
    small = tiny_models["clock-draft"]
    say_unused_draft(Resolved(Path("t"), small), [SpecSettings(types=types)])
    assert (f"{small.name} is not used" in capsys.readouterr().err) is said
    say_unused_draft(Resolved(Path("t")), [SpecSettings(types=types)])
    assert not capsys.readouterr().err


@pytest.mark.native
@pytest.mark.parametrize("command", ["chat", "bench", "verify", "tune", "serve"])
def test_a_model_is_not_its_own_draft(
    specctl, tiny_models: dict[str, Path], tmp_path: Path, command: str
) -> None:
    twin = tmp_path / "twin.gguf"
    twin.symlink_to(tiny_models["clock"])
    more = ("--prompt", "x") if command == "chat" else ()
    code, _, err = specctl(command, "-m", str(tiny_models["clock"]), "-d", str(twin), *more)
    assert code == 2
    assert "target and draft are the same file" in err
