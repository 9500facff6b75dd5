"""Names of models in chat and bench: found, pulled after a yes (a hub on loopback), or why not."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hub"))
from hubserver import HubServer

from specctl import demo
from specctl.cli import proposal, render
from specctl.cli.fetching import say_unused_draft
from specctl.cli.opening import as_named, as_proposed
from specctl.drafters.registry import SPEC_TYPES
from specctl.errors import ModelError, SpecctlError, UsageError
from specctl.hardware.machine import take_snapshot
from specctl.hardware.simulate import simulate
from specctl.plan.profile import IN_PROCESS
from specctl.resolve import Missing, Resolved, header_places, resolve, resolve_model
from specctl.settings import EngineSettings, ModelSettings, SpecSettings
from specctl.units import GIB

native = [pytest.mark.native, pytest.mark.skipif(sys.platform == "win32", reason="no pty")]
PROFILE = """
family = "own"

[[model]]
id = "clock"
name = "Clock"
licence = "mit"
params = 0.001
params_active = 0.001
role = "target"
released = "2026-11"
quality = 5
quality_source = "for this test"

[model.shape]
arch = "llama"
source = "written by the test"
n_layer = 2
n_embd = 320
n_head = 2
n_vocab = 320
context_length = 4096
kv_width_k = 32
kv_width_v = 32
n_attention = 2
head_dim = 32
n_ff = 32

[[model.files]]
repo = "org/clock"
list = [{{ quant = "F32", file = "clock.gguf", bytes = {size} }}]

[[model.draft]]
method = "draft-simple"
status = "measured"
source = "for this test"
model = "clock-small"
quant = "F32"
k = 4

[[model.draft]]
method = "draft-eagle3"
status = "listed"
source = "for this test"
repo = "org/head"
file = "head.gguf"
bytes = 1000

[[model.draft]]
method = "draft-dflash"
status = "listed"
source = "for this test"
repo = "org/block"
file = "block.gguf"
bytes = 1000

[[model]]
id = "clock-small"
name = "Clock, small"
licence = "mit"
params = 0.0005
params_active = 0.0005
role = "draft"
released = "2026-11"
quality = 1
quality_source = "for this test"

[[model.files]]
repo = "org/clock-small"
list = [{{ quant = "F32", file = "clock-draft.gguf", bytes = {small} }}]

[[model]]
id = "parts"
name = "A model in parts"
licence = "mit"
params = 0.001
params_active = 0.001
role = "target"
released = "2026-11"
quality = 1
quality_source = "for this test"

[[model.files]]
repo = "org/split"
list = [{{ quant = "Q8_0", parts = ["c-00001-of-00002.gguf", "c-00002-of-00002.gguf"], bytes = 9 }}]

[[model]]
id = "own-pair"
name = "A model of this machine"
licence = "mit"
params = 0.001
params_active = 0.001
role = "target"
released = "2026-11"
quality = 1
quality_source = "for this test"

[[model.files]]
folder = "models"
list = [{{ quant = "F32", file = "own.gguf" }}]
"""
PAIR = "clock:F32+draft-simple"
SHORT = ("-n", "24", "--temperature", "0")


@pytest.fixture
def hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_models: Mapping[str, Path]
) -> Iterator[HubServer]:
    """The hub has the pair; a profile of the user's describes it; nothing of it is here."""
    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGING", "LLAMA_", "OLLAMA_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    target, small = (tiny_models[name].read_bytes() for name in ("clock", "clock-draft"))
    profiles = tmp_path / "specctl-home" / "config" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "own.toml").write_text(PROFILE.format(size=len(target), small=len(small)))
    with HubServer() as server:
        server.add("org/clock", {"clock.gguf": target})
        server.add("org/clock-small", {"clock-draft.gguf": small})
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def run(*arguments: str, text: str = "amber", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specctl", *arguments],
        input=text,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environ},
        timeout=120,
        check=False,
    )


# ---------------------------------------------------------------- names


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
    assert resolve_model("clock-draft.gguf") == place
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
        ("gemma-4-31b-it+draft-mtp", UsageError, "of this model", "specctl pull gemma-4-31b-it"),
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
    """Of those that read a target's layers, EAGLE-3 heads; blocks are for llama-server still."""
    own = {name for name, kind in SPEC_TYPES.items() if kind.layers in ("", "eagle3")}
    assert {"none", *own} == IN_PROCESS


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


# ---------------------------------------------------------------- commands


class TestOnAPipe:
    pytestmark = native

    def test_the_command_that_is_named_fetches_it(self, hub: HubServer) -> None:
        done = run("chat", "-m", PAIR, *SHORT)
        assert done.returncode == 1
        assert f"{PAIR} is not on this machine (" in done.stderr
        assert hub.sent == 0
        command = done.stderr.partition("fetch it: specctl ")[2].strip()
        fetched = run(*shlex.split(command))
        assert fetched.returncode == 0, fetched.stderr
        assert len(fetched.stdout.split()) == 2
        asked = hub.requests.total()
        talked = run("chat", "-m", PAIR, *SHORT, HF_HUB_OFFLINE="1")
        assert talked.returncode == 0, talked.stderr
        assert "accepted/cycle" in talked.stderr
        assert hub.requests.total() == asked

    def test_offline_names_what_is_missing(self, hub: HubServer) -> None:
        done = run("chat", "-m", PAIR, *SHORT, HF_HUB_OFFLINE="1")
        assert done.returncode == 1
        assert "HF_HUB_OFFLINE forbids fetching: org/clock/clock.gguf, org/clock-" in done.stderr
        assert not hub.requests

    def test_bench_compares_the_draft_that_a_name_brings(
        self, hub: HubServer, tmp_path: Path
    ) -> None:
        assert run("pull", PAIR).returncode == 0
        prompts = tmp_path / "own.txt"
        prompts.write_text("amber anchor apple")
        done = run("bench", "-m", PAIR, "--prompts", str(prompts), "-n", "16", "-r", "1")
        assert done.returncode == 0, done.stderr
        assert "(plain, draft-simple k=4)" in " ".join(done.stderr.split())

    @pytest.mark.demo
    def test_nothing_named_is_the_demo_model_and_said(self, hub: HubServer) -> None:
        done = run("chat", "-n", "4", text="hello")
        assert done.returncode == 0, done.stderr
        assert "no --model named: the demo model" in done.stderr
        assert "specctl recommend" in done.stderr

    def test_nothing_named_and_no_demo_model(
        self, monkeypatch: pytest.MonkeyPatch, hub: HubServer
    ) -> None:
        from specctl.cli.fetching import demo_without_asking

        monkeypatch.setattr(demo, "_DEMO_PACKAGE", "no-such-package")
        with pytest.raises(UsageError, match="no --model named") as caught:
            demo_without_asking("bench")
        assert "specctl bench --model" in (caught.value.hint or "")


class TestOnATerminal:
    pytestmark = native

    def test_a_yes_pulls_and_the_chat_begins(self, hub: HubServer) -> None:
        from terminal import Terminal

        with Terminal("chat", "--plain", "-m", PAIR, *SHORT) as terminal:
            at = terminal.wait(f"{PAIR} is not here: ")
            at = terminal.wait("Pull it now? [Y/n]", after=at)
            terminal.type("")
            at = terminal.wait("fetched in", after=at)
            at = terminal.wait("\n> ", after=at)
            terminal.type("amber")
            terminal.wait("accepted/cycle", after=at)
        assert hub.sent == sum(len(f.data) for r in hub.repos.values() for f in r.files.values())

    def test_a_no_fetches_nothing(self, hub: HubServer) -> None:
        from terminal import Terminal

        with Terminal("chat", "-m", "hf:org/clock/clock.gguf", *SHORT) as terminal:
            terminal.wait("MiB. Pull it now? [Y/n]")  # the size is the hub's
            terminal.type("n")
            terminal.wait("later: specctl pull hf:org/clock/clock.gguf")
            assert terminal.exit_code() == 1
        assert hub.sent == 0

    def test_nothing_named_proposes_the_best_and_gets_it(self, hub: HubServer) -> None:
        from terminal import Terminal

        arguments = ("chat", "--plain", "--ctx", "512", *SHORT)
        with Terminal(*arguments) as terminal:
            at = terminal.wait("Best for this machine: clock:F32")
            at = terminal.wait("download ", after=at)
            at = terminal.wait("[p] pull it", after=at)
            terminal.type("?")
            at = terminal.wait("one of p", after=at)
            at = terminal.wait("[q] quit", after=at)
            terminal.type("p")
            at = terminal.wait("fetched in", after=at)
            at = terminal.wait("\n> ", after=at)
            terminal.type("amber")
            terminal.wait("24 tokens", after=at)
        with Terminal(*arguments) as terminal:
            at = terminal.wait("[u] use it, it is here")
            at = terminal.wait("[u]", after=at)  # also what Enter chooses
            terminal.type("q")
            assert terminal.exit_code() == 0
