"""`specctl inspect`, `plan` and `check` as a user meets them: output, width, exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "gguf")]

import gguf_families as families  # noqa: E402
import gguf_headers as headers  # noqa: E402

from specctl.cli.app import main  # noqa: E402
from specctl.drafters.registry import SPEC_TYPES  # noqa: E402

Run = Callable[..., "Done"]


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The console script's own entry point, in this process: twenty starts of Python are slow."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("specctl.cli.check.probe_engine", lambda: "not asked in this test")

    def call(*arguments: str) -> Done:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["specctl", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        code = ended.value.code
        return Done(code if isinstance(code, int) else int(code is not None), said.out, said.err)

    return call


def model(path: Path, n: int, n_ff: int) -> str:
    keys = headers.base("llama", 2, 256, 4, 2, 64, n_ff, n) | headers.vocabulary(n)
    tensors = headers.ends(256, n, "f16")
    for i in range(2):
        tensors += headers.attention(i, 256, 256, 128, "f16")
        tensors += headers.feed_forward(i, 256, n_ff, "f16")
    return str(headers.write(path, keys, tensors))


def eight_gib(path: Path) -> str:
    return str(families.FULL_SIZE["Llama 3.1 8B"](path))


def test_inspect_shows_what_it_is(run: Run, tmp_path: Path) -> None:
    path = families.qwen35(tmp_path / "m.gguf", mtp=1, moe=True)
    done = run("inspect", str(path))
    assert done.returncode == 0, done.stderr
    for text in ("qwen35moe", "3 recurrent", "2 of 8 used", "embedded head, 1 layer"):
        assert text in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    plain = json.loads(run("inspect", str(path), "--json").stdout)["model"]
    assert plain["shape"]["n_recurrent"] == 3
    assert plain["weights"]["layers"][4] > 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<!DOCTYPE html>", "is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"", "is empty"),
    ],
)
def test_inspect_names_what_is_no_model(
    run: Run, tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    done = run("inspect", str(path))
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_inspect_of_a_cut_download_shows_and_fails(run: Run, tmp_path: Path) -> None:
    path = families.llama(tmp_path / "m.gguf")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    done = run("inspect", str(path))
    assert done.returncode == 1
    assert "incomplete" in done.stdout
    plan = run("plan", str(path))
    assert plan.returncode == 1
    assert "incomplete" in plan.stderr


def test_check_accepts_and_refuses(run: Run, tmp_path: Path) -> None:
    target = model(tmp_path / "t.gguf", 1000, 4096)
    good = run("check", target, model(tmp_path / "d.gguf", 1128, 512))
    assert good.returncode == 0, good.stdout + good.stderr
    assert good.stdout.startswith("ok  as draft-simple")
    assert "128 tokens of padding" in good.stdout
    assert "compared with our own list" in good.stderr
    bad = run("check", target, model(tmp_path / "e.gguf", 1129, 512), "--json")
    assert bad.returncode == 1
    found = json.loads(bad.stdout)
    assert found["verdict"] == "no"
    assert "129" in found["findings"][0]["text"]


def test_check_says_when_there_is_no_drafter_for_a_good_pair(run: Run, tmp_path: Path) -> None:
    trunk = families.qwen35(tmp_path / "t.gguf")
    head = families.qwen35(tmp_path / "h.gguf", mtp=1, trunk=False)
    done = run("check", str(trunk), str(head))
    if "draft-mtp" in SPEC_TYPES:
        assert done.stdout.startswith("ok  as draft-mtp")
    else:
        assert "ok with warnings  as draft-mtp" in done.stdout
        assert "no drafter draft-mtp" in done.stdout


def test_check_says_which_heads_specctl_does_not_run(run: Run, tmp_path: Path) -> None:
    trunk = families.qwen35(tmp_path / "t.gguf")
    chain = families.qwen35(tmp_path / "h.gguf", mtp=2, trunk=False)
    done = run("check", str(trunk), str(chain))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok with warnings  as draft-mtp")
    assert "2 MTP heads in a chain" in done.stdout


def test_plan_full_offload(run: Run, tmp_path: Path) -> None:
    done = run("plan", eight_gib(tmp_path / "m.gguf"), "--vram", "16", "--ram", "32")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Simulated: --vram 16.0 GiB, --ram 32.0 GiB\nfull offload, 8192")
    assert "1.00 GiB" in done.stdout  # 32 layers x 8192 cells x 2048 values x 2 bytes
    assert "specctl chat … --ctx 8192 --gpu-layers -1" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_plan_gives_up_the_draft_and_says_so(run: Run, tmp_path: Path) -> None:
    target = eight_gib(tmp_path / "m.gguf")
    draft = str(families.FULL_SIZE["Qwen3 0.6B"](tmp_path / "d.gguf"))
    done = run("plan", target, "--draft", draft, "--vram", "7", "--ram", "32", "--json")
    assert done.returncode == 0, done.stderr
    plain = json.loads(done.stdout)
    assert plain["draft"] is None
    assert plain["ctx"] == 8192
    assert "draft left out" in plain["decisions"][0]
    assert plain["device"] <= plain["budget"]["device"]
    assert any("no tokenizer" in note for note in plain["notes"])


def test_plan_never_shrinks_a_context_asked_for(run: Run, tmp_path: Path) -> None:
    target = eight_gib(tmp_path / "m.gguf")
    done = run("plan", target, "--vram", "6", "--ram", "32", "--ctx", "32768", "--json")
    plain = json.loads(done.stdout)
    assert (plain["ctx"], plain["kind"]) == (32768, "partial offload")
    assert 0 < plain["settings"]["target"]["gpu_layers"] < 33
    nothing = run("plan", target, "--vram", "1", "--ram", "2")
    assert nothing.returncode == 1
    assert "does not fit" in nothing.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kv-type", "q9_0"), "q9_0"),
        (("--ctx", "5"), "context of 5"),
        (("--vram", "much"), "not a size"),
        (("--mtp",), "no MTP head"),
        (("--k", "0"), "k 0"),
    ],
)
def test_plan_refuses_what_cannot_be_meant(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    path = str(families.llama(tmp_path / "m.gguf"))
    done = run("plan", path, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_names_that_mean_nothing(run: Run) -> None:
    for command in (("inspect", "no.gguf"), ("plan", "no.gguf"), ("check", "no.gguf", "no.gguf")):
        done = run(*command)
        assert done.returncode == 1
        assert "no.gguf" in done.stderr
    assert run("inspect", "hf:a/b").returncode == 2


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing answers at the hub's address."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


@pytest.mark.usefixtures("no_network")
def test_plan_of_a_profile_without_network_uses_the_catalogue(run: Run) -> None:
    done = run("plan", "qwen3-8b:Q4_K_M+draft-simple", "--vram", "24", "--ram", "32")
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "target of the catalogue (qwen3, Q4_K_M)" in words
    assert "draft of the catalogue (qwen3, " in words
    assert "≈ qwen3-8b:Q4_K_M+draft-simple: dimensions and size are the catalogue's" in words
    assert "since 127.0.0.1 cannot be reached" in words
    assert "was not checked: that needs both headers" in words
    weights = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["weights"])
    assert "≈ 4." in weights
    assert run("plan", "qwen3-8b", "--mtp").returncode == 2


@pytest.mark.usefixtures("no_network")
def test_check_and_plan_without_network_say_it_in_pulls_words(run: Run) -> None:
    told = []
    for words in (("check", "qwen3-8b", "qwen3-0.6b"), ("plan", "hf:me/m/m.gguf")):
        done = run(*words)
        assert (done.returncode, done.stdout) == (1, "")
        assert "pull the model first, or go online" in done.stderr
        assert "ConnectError" not in done.stderr
        told.append(done.stderr.splitlines()[0])
    assert told[0] == told[1]
    assert told[0].startswith("error: 127.0.0.1 cannot be reached: ")


def test_where_the_network_is_forbidden_check_names_the_switch(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    done = run("check", "qwen3-8b", "qwen3-0.6b")
    assert done.returncode == 1
    assert "HF_HUB_OFFLINE forbids it" in done.stderr
    assert run("plan", "qwen3-8b", "--vram", "24").returncode == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--ctx", "10"), "32 … 16777216"),
        (("--ctx", "99999999"), "32 … 16777216"),
        (("--draft", ""), "no model ''"),
    ],
)
def test_a_plan_says_what_cannot_be(
    run: Run, tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    done = run("plan", model(tmp_path / "t.gguf", 1000, 4096), *flags)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert said in " ".join(done.stderr.split())


def test_a_card_of_which_nothing_may_be_used_is_said(run: Run, tmp_path: Path) -> None:
    target = model(tmp_path / "t.gguf", 1000, 4096)
    done = run("plan", target, "--vram", "0.001")
    assert done.returncode == 0
    words = " ".join(done.stdout.split())
    assert "may be used (1.0 MiB free − 512.0 MiB headroom): all of it is for the CPU" in words
    assert "all of it is for the CPU" not in run("plan", target, "--vram", "8").stdout
