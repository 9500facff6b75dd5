"""`specctl bench --engine`, from its flags to its exit code, over loopback."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from answering import Answering
from kit import free_port, stand_in

from specctl import paths
from specctl.bench.results import SERVED_SCHEMA

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Run:
    from specctl.cli import app, render

    (tmp_path / "mine.txt").write_text("say one\n---\nsay two\n")

    def run(*flags: str, command: tuple[str, ...] = ("bench",)) -> tuple[int, str, str]:
        short = ("--prompts", str(tmp_path / "mine.txt"), "-n", "12", "-r", "1")
        common = short if command == ("bench",) else ()
        monkeypatch.setattr(sys, "argv", ["specctl", *command, *common, *flags])
        render.out.cache_clear()
        render.err.cache_clear()
        capfd.readouterr()
        with pytest.raises(SystemExit) as done:
            app.main()
        captured = capfd.readouterr()
        words = (" ".join(text.split()) for text in captured)
        out, err = words
        return int(done.value.code or 0), out, err

    return run


@pytest.fixture
def serving() -> Iterator[Callable[..., Answering]]:
    made: list[Answering] = []

    def make(kind: str, **changes: Any) -> Answering:
        made.append(Answering(kind, **changes))
        made[-1].open()
        return made[-1]

    yield make
    for one in made:
        one.close()


def kept(file: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return data


# ---------------------------------------------------------------- running servers


@pytest.mark.parametrize("kind", ["llama-server", "vllm", "sglang", "trtllm", "openai"])
def test_two_addresses(
    bench: Run, serving: Callable[..., Answering], tmp_path: Path, kind: str
) -> None:
    spec, plain = serving(kind, pace=0.01), serving(kind, pace=0.01, speculative=False)
    file = tmp_path / "r.json"
    code, out, err = bench(
        "--engine", spec.url, "--baseline-url", plain.url, "--json", str(file), "--batch", "1,2"
    )
    assert code == 0, err
    assert "same" in out
    assert "How the gain changes with the batch" in out
    assert "whether they differ in speculation alone is not known" in out
    data = kept(file)
    assert data["schema"] == SERVED_SCHEMA
    assert data["served"]["servers"] == "given"
    (total,) = [row for row in data["report"]["rows"] if row["workload"] is None]
    assert 1.5 < total["speedup"] < 6  # 11 passes against 4 of the same length
    if kind in ("llama-server", "vllm", "trtllm"):
        assert total["acceptance_rate"] == pytest.approx(7 / 12)
    assert [row["workload"] for row in data["served"]["batches"]] == ["batch 1", "batch 2"]
    assert spec.most_at_once == plain.most_at_once == 2
    asked = spec.asked[-1]
    assert (asked["temperature"], asked["max_tokens"]) == (0, 12)
    assert asked.get("ignore_eos") == (True if kind != "openai" else None)
    names = [path.name for path in (paths.data_dir() / "bench").glob("*.json")]
    assert len(names) == 1
    assert "tiny-model" in names[0]


def test_one_server_without_a_baseline(bench: Run, serving: Callable[..., Answering]) -> None:
    code, out, err = bench("--engine", serving("vllm").url)
    assert code == 0, err
    assert "not known" in out
    assert "speed-up not known; --baseline-url names a server" in out


def test_one_server_whose_requests_switch_off(
    bench: Run, serving: Callable[..., Answering], tmp_path: Path
) -> None:
    file = tmp_path / "r.json"
    engine = serving("llama-server", switch=True, pace=0.01)
    code, out, _ = bench("--engine", engine.url, "--json", str(file))
    assert code == 0
    assert "one server for both arms" in out
    assert kept(file)["report"]["rows"][-1]["speedup"] > 1.5


def test_texts_that_differ_are_said_honestly(bench: Run, serving: Callable[..., Answering]) -> None:
    spec, plain = serving("vllm", words="v{} "), serving("vllm", speculative=False)
    code, out, _ = bench("--engine", spec.url, "--baseline-url", plain.url, "--strict")
    assert code == 0  # a difference is no bug as far as is known
    assert "diff 2" in out
    assert "differs from byte 0 on; whether it is a tie cannot be told over HTTP" in out


def test_stop_at_eos_is_not_asked_to_go_on(bench: Run, serving: Callable[..., Answering]) -> None:
    spec, plain = serving("vllm", end=6), serving("vllm", speculative=False, end=6)
    both = ("--engine", spec.url, "--baseline-url", plain.url)
    assert "ignore_eos), where a model" in bench(*both)[1]
    code, out, _ = bench(*both, "--stop-at-eos")
    assert code == 0
    assert "answers end where the model ends them" in out
    assert "ignore_eos" not in spec.asked[-1]


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ({"trouble": "status", "status": 429}, "answers 429"),
        ({"trouble": "status", "status": 500}, "answers 500"),
        ({"trouble": "cut"}, "ended in the middle"),
        ({"trouble": "endless"}, "ignores max_tokens"),
    ],
)
def test_trouble_from_the_start_is_an_error(
    bench: Run, serving: Callable[..., Answering], trouble: Mapping[str, Any], words: str
) -> None:
    spec = serving("vllm", pace=0.0, **trouble)
    plain = serving("vllm", speculative=False)
    code, out, err = bench("--engine", spec.url, "--baseline-url", plain.url)
    assert (code, out) == (1, "")
    assert words in err
    assert "Traceback" not in err


def test_trouble_in_the_middle_keeps_what_was_done(
    bench: Run, serving: Callable[..., Answering], tmp_path: Path
) -> None:
    spec = serving("vllm", trouble="status", status=500, troubled_after=2)  # warm-up, one answer
    plain = serving("vllm", speculative=False)
    file = tmp_path / "r.json"
    code, out, err = bench("--engine", spec.url, "--baseline-url", plain.url, "--json", str(file))
    assert code == 1
    assert "answers 500" in err
    assert "what every arm had done until then is above" in err
    assert "Does it pay?" in out
    data = kept(file)
    assert data["interrupted"]
    assert len(data["runs"]) == 2
    assert "answers 500" in data["served"]["failure"]


@pytest.mark.parametrize(
    ("flags", "words", "code"),
    [
        (("--engine", "vllm"), ("starts llama-server only", "specctl engine run vllm"), 2),
        (("--engine", "lama-server"), ("neither llama-server nor an address",), 2),
        (("--engine", "http://"), ("not a web address",), 2),
        (("--batch", "2"), ("--batch has no meaning", "--engine"), 2),
        (("--baseline-url", "http://x"), ("--baseline-url has no meaning",), 2),
        (("--engine", "URL", "--batch", "0"), ("--batch 0 is not in 1 … 256",), 2),
        (("--engine", "URL", "--batch", "1,1000"), ("--batch 1000",), 2),
        (("--engine", "URL", "--batch", "two"), ("'two' is no number",), 2),
        (("--engine", "URL", "--batch", ""), ("'' is no number",), 2),
        (("--engine", "URL", "-s", "ngram-mod"), ("--spec-type: a running server is",), 2),
        (("--engine", "URL", "--ctx", "512"), ("as it was started",), 2),
        (("--engine", "URL", "--bin", "x"), ("--bin has no meaning",), 2),
        (("--engine", "URL", "--also-in-process"), ("--also-in-process has no meaning",), 2),
        (("--engine", "URL", "--temperature", "0.5"), ("at temperature 0",), 2),
        (("--engine", "URL", "--tui"), ("--tui",), 2),
        (("--engine", "URL", "-m", "other"), ("serves no model 'other'", "tiny-model"), 2),
        (("--engine", "URL", "--baseline-url", "URL"), ("is the address of --engine",), 2),
        (("--engine", "URL", "--json", "no/such/x.json"), ("no folder",), 2),
    ],
)
def test_what_cannot_be_meant(
    bench: Run,
    serving: Callable[..., Answering],
    flags: tuple[str, ...],
    words: tuple[str, ...],
    code: int,
) -> None:
    url = serving("vllm").url
    found, out, err = bench(*(url if flag == "URL" else flag for flag in flags))
    assert (found, out) == (code, ""), err
    for word in words:
        assert word in err
    assert "Traceback" not in err


def test_nobody_at_the_address(bench: Run) -> None:
    code, _, err = bench("--engine", f"127.0.0.1:{free_port()}")
    assert code == 1
    assert "cannot be reached" in err


def test_arms_that_are_the_wrong_way_round(bench: Run, serving: Callable[..., Answering]) -> None:
    spec, plain = serving("llama-server"), serving("llama-server", speculative=False)
    code, _, err = bench("--engine", plain.url)
    assert code == 2
    assert "runs without speculation" in err
    other = serving("llama-server")
    code, _, err = bench("--engine", spec.url, "--baseline-url", other.url)
    assert code == 2
    assert "it is no baseline" in err


def test_a_server_is_not_its_own_baseline(bench: Run, serving: Callable[..., Answering]) -> None:
    url = serving("vllm").url
    for other in (url.replace("127.0.0.1", "localhost"), url + "/v1?t=1"):
        code, _, err = bench("--engine", url + "/?t=1", "--baseline-url", other)
        assert code == 2
        assert "is the address of --engine" in err


@pytest.mark.parametrize("method", ["plain", "none"])
def test_a_method_called_plain_is_an_arm_of_its_own(
    bench: Run,
    serving: Callable[..., Answering],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    method: str,
) -> None:
    monkeypatch.setattr("specctl.external.peer.Peer.method", property(lambda _: method))
    spec, plain = serving("llama-server"), serving("llama-server", speculative=False)
    file = tmp_path / "r.json"
    code, _, err = bench(
        "--engine", spec.url, "--baseline-url", plain.url, "--json", str(file), "--strict"
    )
    assert code == 0, err
    assert [arm["name"] for arm in kept(file)["arms"]] == ["plain", "speculative"]


def test_a_stream_held_back_shows_no_speed_up(
    bench: Run, serving: Callable[..., Answering], tmp_path: Path
) -> None:
    spec, plain = serving("openai", trouble="held"), serving("openai")
    file = tmp_path / "r.json"
    code, out, err = bench(
        *("--engine", spec.url, "--baseline-url", plain.url, "-n", "32", "--json", str(file))
    )
    assert code == 0, err
    assert "its answer came in one piece, which has no rate: a proxy or the server holds" in out
    assert "faster" not in out
    assert kept(file)["report"]["rows"][-1]["speedup"] is None


def test_a_models_name_is_shown_without_what_would_steer_the_terminal(
    bench: Run, serving: Callable[..., Answering], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "evil\x1b]0;PWNED\x07\x1b[31m"
    monkeypatch.setattr("answering.MODEL", name)
    engine = serving("openai")
    code, out, err = bench("--engine", engine.url)
    assert code == 0, err
    assert "evil�]0;PWNED" in err
    assert "\x1b]" not in out + err
    assert "\x07" not in out + err
    assert engine.asked[-1]["model"] == name


def test_a_key_is_sent(bench: Run, serving: Callable[..., Answering]) -> None:
    engine = serving("vllm", key="secret")
    assert bench("--engine", engine.url)[0] == 1
    code, _, err = bench("--engine", engine.url, "--api-key", "secret")
    assert code == 0, err


def test_kept_results_are_compared_and_drawn(
    bench: Run, serving: Callable[..., Answering], tmp_path: Path
) -> None:
    spec, plain = serving("vllm"), serving("vllm", speculative=False)
    a, b, html = (str(tmp_path / name) for name in ("a.json", "b.json", "p.html"))
    both = ("--engine", spec.url, "--baseline-url", plain.url, "--batch", "2")
    for file in (a, b):
        assert bench(*both, "--json", file)[0] == 0
    code, out, _ = bench(a, b, command=("bench", "compare"))
    assert code == 0
    assert "Does it pay more?" in out
    assert bench(a, "--html", html, command=("bench", "page"))[0] == 0
    assert "clock: ours" in Path(html).read_text(encoding="utf-8")
    code, out, _ = bench(a, command=("bench", "page"))
    assert code == 0
    assert "threads not told" in out


# ---------------------------------------------------------------- llama-server, started


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FAKE_LLAMA_SERVER", "")
    return stand_in(tmp_path)[0]


def test_started_once_for_each_arm(
    bench: Run, program: str, tiny_models: Mapping[str, Path], tmp_path: Path
) -> None:
    file = tmp_path / "r.json"
    model = str(tiny_models["clock"])
    code, out, err = bench(
        *("-m", model, "--engine", "llama-server", "--bin", program, "-s", "ngram-simple"),
        *("-s", "ngram-mod", "--k", "4", "--json", str(file), "-t", "1"),
    )
    assert code == 0, err
    data = kept(file)
    assert [arm["name"] for arm in data["arms"]] == [
        *("plain", "ngram-simple k=4", "ngram-mod k=4"),
    ]
    assert data["model"] == {"file": "clock.gguf", "bytes": Path(model).stat().st_size}
    assert data["machine"]["threads"] == 1
    assert data["served"]["servers"] == "together"
    assert "keeps the pool of ngram-mod" in out
    assert list((paths.cache_dir() / "engines").glob("*.log")) == []  # nothing went wrong
    assert data["report"]["rows"][-1]["acceptance_rate"] == pytest.approx(7 / 12)


def test_started_one_after_the_other(
    bench: Run, program: str, tiny_models: Mapping[str, Path]
) -> None:
    code, out, err = bench(
        *("-m", str(tiny_models["clock"]), "--engine", "llama-server", "--bin", program),
        "--in-turn",
    )
    assert code == 0, err
    assert "one server after the other" in out


def test_a_server_that_dies_shows_its_log(
    bench: Run, program: str, tiny_models: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ("-m", str(tiny_models["clock"]), "--engine", "llama-server", "--bin", program)
    monkeypatch.setenv("FAKE_LLAMA_SERVER", "drops")
    code, out, err = bench(*common, "-r", "3")
    assert code == 1
    assert "ended with exit code 9" in err
    assert "a bad graph" in err
    assert "Does it pay?" in out  # two of three repeats
    (log,) = (paths.cache_dir() / "engines").glob("bench-ngram*.log")
    assert re.search(r"-\d+\.log$", log.name)  # of this server alone: two may be measuring
    monkeypatch.setenv("FAKE_LLAMA_SERVER", "dies")
    code, out, err = bench(*common)
    assert (code, out) == (1, "")
    assert "failed to load model" in err
    monkeypatch.setenv("FAKE_LLAMA_SERVER", "off")
    code, out, err = bench(*common)
    assert (code, out) == (1, "")
    assert "does not speculate" in err


def test_no_llama_server(
    bench: Run, tiny_models: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    common = ("-m", str(tiny_models["clock"]), "--engine", "llama-server")
    code, _, err = bench(*common)
    assert code == 1
    assert "llama-server is not installed, or not on PATH" in err
    code, _, err = bench(*common, "--bin", str(tmp_path / "nothing"))
    assert code == 2
    assert "no program that can be run" in err


def test_methods_that_llama_server_lacks(
    bench: Run, program: str, tiny_models: Mapping[str, Path]
) -> None:
    common = ("-m", str(tiny_models["clock"]), "--engine", "llama-server", "--bin", program)
    code, _, err = bench(*common, "-s", "auto")
    assert code == 2
    assert "auto" in err
    code, _, err = bench(*common, "-s", "draft-simple")
    assert code == 2
    assert "--draft" in err
    code, _, err = bench(*common, "-s", "ngram-suffix")
    assert code == 2
    assert "no ngram-suffix in llama-server" in err
    assert ": name it with --spec-type" in err
    assert "--nearest" not in err  # of engine run, not of bench
