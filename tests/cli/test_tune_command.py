"""`specctl tune` from its flags to what chat does with the profile."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from specctl import paths
from specctl.hub import drafts
from specctl.hub.lock import Lock, released
from specctl.plan import tuned as profiles

pytestmark = pytest.mark.native
Specctl = Callable[..., tuple[int, str, str]]
REPEATS = "Repeat this list: one, two, three, one, two, three, one, two, three, one, two, three."


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    file = tmp_path / "mine.txt"
    file.write_text(f"{REPEATS}\n---\nSay hello.\n", encoding="utf-8")
    return file


def tiny(file: Path) -> tuple[str, ...]:
    """A search of seconds: few tokens, two candidates, one number of threads."""
    some = ("-s", "ngram-suffix", "-s", "ngram-simple")
    return ("--prompts", str(file), "--minutes", "0.05", "-n", "8", *some, "--threads", "1")


@pytest.mark.demo
def test_tuned_shown_used_and_overruled(specctl: Specctl, texts: Path) -> None:
    code, out, err = specctl("tune", "demo", *tiny(texts))
    assert code == 0, err
    assert "≈ 3.0 s at most (--minutes): 2 candidates and plain decoding, 2 prompts" in err
    assert "Use it: specctl chat --model demo" in out
    tuned = profiles.find("demo")
    assert tuned is not None
    assert (tuned.model, tuned.threads, tuned.evidence.max_tokens) == ("demo", 1, 8)
    assert tuned.evidence.runs >= 3 * tuned.evidence.candidates[0].prompts
    assert "mine.txt" in tuned.evidence.prompts
    assert str(texts.parent) not in tuned.evidence.prompts
    assert not list((paths.data_dir() / "tune").glob("*"))  # a finished search is not gone on with

    code, out, _ = specctl("tune", "--show", "demo")
    assert code == 0
    assert f"demo: {tuned.words}" in out
    assert tuned.evidence.prompts_hash in out

    # whatever the winner was here: what chat does is what the profile says
    path = profiles.path_of("demo")
    text = path.read_text(encoding="utf-8")
    text = re.sub(r'spec_type = ".*"', 'spec_type = "ngram-cache"\nk = 3', text)
    path.write_text(text, encoding="utf-8")
    ask = ("chat", "--model", "demo", "--prompt", "hi", "-n", "4", "--json")
    started = json.loads(specctl(*ask)[1].splitlines()[0])
    assert (started["spec_types"], started["k_max"], started["threads"]) == (["ngram-cache"], 3, 1)
    started = json.loads(specctl(*ask, "--threads", "2", "-s", "ngram-mod")[1].splitlines()[0])
    assert (started["spec_types"], started["threads"]) == (["ngram-mod"], 2)

    code, out, err = specctl(
        "bench", "--model", "demo", "--prompts", str(texts), "-n", "8", "-r", "1"
    )
    assert code == 0
    assert "(plain, ngram-cache k=3), up to 8 tokens each, 1 thread" in " ".join(err.split())


def test_a_bare_path_is_named_after_its_file(
    specctl: Specctl, texts: Path, tiny_models: dict[str, Path]
) -> None:
    path = tiny_models["jitter"]
    code, _, err = specctl("tune", "--model", str(path), *tiny(texts))
    assert code == 0, err
    tuned = profiles.find(path.stem)
    assert tuned is not None
    assert tuned.model == str(path.resolve())


@pytest.mark.parametrize(
    ("draft", "types"), [("eagle-draft", "draft-eagle3"), ("clock-draft", "draft-simple")]
)
def test_a_draft_file_is_tried_as_what_it_is(
    specctl: Specctl, texts: Path, tiny_models: dict[str, Path], draft: str, types: str
) -> None:
    pair = ("--model", str(tiny_models["clock"]), "--draft", str(tiny_models[draft]))
    some = ("--minutes", "0.05", "-n", "8", "--threads", "1", "--k", "2")
    code, _, err = specctl("tune", *pair, "--prompts", str(texts), *some, "-s", types)
    assert code == 0, err
    tuned = profiles.find("clock")
    assert tuned is not None
    assert f"{types} k=2" in {one.name for one in tuned.evidence.candidates}
    assert sum(one.stage == "final" for one in tuned.evidence.candidates) == 1


def test_draft_self_is_what_was_made(
    specctl: Specctl, texts: Path, tiny_models: dict[str, Path]
) -> None:
    """Context history first; then the draft, with the length that it was made for."""
    model, draft = tiny_models["clock"], tiny_models["clock-draft"]
    some = ("--minutes", "0.05", "-n", "8", "--threads", "1", "-s", "draft-self")
    command = ("tune", "--model", str(model), "--prompts", str(texts), *some)
    code, _, err = specctl(*command)
    assert code == 0, err
    assert "draft-self is ngram-map-k here: no draft was made from clock.gguf" in err
    tuned = profiles.find("clock")
    assert tuned is not None
    assert [one.name for one in tuned.evidence.candidates] == ["ngram-map-k"]

    identity = drafts.identify(model)
    made = drafts.MadeDraft(
        file=str(draft.resolve()), size=draft.stat().st_size, quant="F32", target=str(model),
        target_size=identity.size, target_digest=identity.digest, k=7, accepted=3.0,
        break_even=1.0, speedup=2.0, noise=0.1, pays=True, workload="mine", unix_time=0.0,
    )  # fmt: skip
    drafts.keep(made)
    code, _, err = specctl(*command)
    assert code == 0, err
    assert "draft-self is draft-simple with clock-draft.gguf, K 7" in err
    tuned = profiles.find("clock")
    assert tuned is not None
    assert [one.name for one in tuned.evidence.candidates] == ["draft-simple n-max=7"]
    assert tuned.evidence.draft == str(draft.resolve())


@pytest.mark.demo
def test_stopped_it_says_how_to_go_on(
    specctl: Specctl, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specctl.engine.session import Session

    generate, count = Session.generate, 0

    def stopped(self, request):
        nonlocal count
        count += 1
        if count == 13:  # the second run of round 1: 7 of the threads, 4 to warm up, 1 done
            raise KeyboardInterrupt
        yield from generate(self, request)

    monkeypatch.setattr(Session, "generate", stopped)
    code, _, err = specctl("tune", "demo", *tiny(texts))
    assert code == 130
    kept = re.search(r"stopped: (\d+) runs are kept; the same command goes on", err)
    assert kept is not None, err
    assert profiles.find("demo") is None
    code, _, err = specctl("tune", "demo", *tiny(texts))
    assert code == 0, err
    assert f"going on where it was stopped: {kept[1]} runs" in err
    assert profiles.find("demo") is not None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("demo", "--model", "demo"), "name two models"),
        (("demo", "--minutes", "0"), "--minutes 0 is not between 0 and a day"),
        (("demo", "-s", "ngram-simpel"), "did you mean ngram-simple?"),
        (("demo", "-n", "1"), "--max-tokens 1 measures nothing"),
        (("demo", "--workload", "poems"), "'poems' is not a built-in workload"),
        (("--show", "nothing-there"), "nothing is tuned under 'nothing-there'"),
    ],
)
def test_what_cannot_be_meant(specctl: Specctl, flags: tuple[str, ...], said: str) -> None:
    code, _, err = specctl("tune", *flags)
    assert code == 2
    assert said in " ".join(err.split())


def test_a_name_that_another_model_has_is_refused(
    specctl: Specctl, texts: Path, tmp_path: Path
) -> None:
    file = tmp_path / "qwen3-8b.gguf"
    file.write_bytes(b"GGUF")
    code, _, err = specctl("tune", str(file), *tiny(texts))
    assert code == 2
    assert "qwen3-8b is another model's name already" in err
    assert "give one with --name" in err
    stored(file)
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    code, _, err = specctl("tune", str(other), "--name", "mine", *tiny(texts))
    assert code == 2
    assert "--name mine is another model's name already" in err
    assert "give one with --name" not in err


@pytest.mark.parametrize(
    ("model", "flags", "said"),
    [
        ("clock", ("-s", "draft-mtp"), "draft-mtp needs MTP heads"),
        ("clock", ("-s", "draft-simple"), "draft-simple needs a draft model"),
        ("clock", ("-s", "draft-eagle3"), "draft-eagle3 needs"),
        ("eagle-draft", (), "not a whole model"),
    ],
)
def test_what_files_cannot_do_is_said_before_anything_is_loaded(
    specctl: Specctl,
    texts: Path,
    tiny_models: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    flags: tuple[str, ...],
    said: str,
) -> None:
    from specctl.llama.model import Model

    monkeypatch.setattr(Model, "__init__", lambda *_, **__: pytest.fail("a model was loaded"))
    code, _, err = specctl("tune", str(tiny_models[model]), "--prompts", str(texts), *flags)
    assert code in (1, 2)
    assert said in " ".join(err.split())
    assert not list((paths.data_dir() / "tune").glob("*"))


def test_two_searches_of_one_profile_do_not_share_a_file(
    specctl: Specctl, texts: Path, tiny_models: dict[str, Path]
) -> None:
    lock = Lock(paths.data_dir() / ".locks" / "tune--clock.lock")
    assert lock.try_acquire()
    command = ("tune", str(tiny_models["clock"]), *tiny(texts))
    with released(lock):
        code, _, err = specctl(*command)
        assert code == 1
        assert f"clock is being tuned by pid {os.getpid()} on" in " ".join(err.split())
        assert not (paths.data_dir() / "tune" / "clock.jsonl").exists()
    assert specctl(*command)[0] == 0


def test_nothing_tuned_yet(specctl: Specctl) -> None:
    code, out, _ = specctl("tune", "--show")
    assert code == 0
    assert "Nothing is tuned yet" in out


def stored(model: Path, threads: int = 1, why: str = "as written here") -> None:
    """A profile called `mine`, as if it had been tuned."""
    evidence = profiles.Evidence(
        date="2026-11-30T06:00:00Z", specctl="0", engine="e", machine="m", target=model.name,
        target_bytes=model.stat().st_size, prompts="1 of 1", prompts_hash="0", temperature=0.0,
        max_tokens=8, ctx=4096, seconds=1.0, runs=1, answer=(why,),
    )  # fmt: skip
    profiles.write(profiles.Tuned("mine", str(model), ("ngram-suffix",), threads, evidence, k=4))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "note: tuned: ngram-suffix k=4, 1 thread (specctl tune --show mine)"),
        (("--k", "2"), "note: tuned: ngram-suffix, 1 thread (specctl tune --show mine)"),
        (("--spec-type", "draft-self"), "note: tuned: 1 thread (specctl tune --show mine)"),
        (("--threads", "1"), "note: tuned: ngram-suffix k=4 (specctl tune --show mine)"),
        (("-s", "ngram-mod", "--threads", "1"), None),
    ],
)
def test_the_note_says_what_is_in_force_of_the_tuning(
    specctl: Specctl, tiny_models: dict[str, Path], flags: tuple[str, ...], said: str | None
) -> None:
    stored(tiny_models["clock"])
    for command in (
        ("chat", "--prompt", "hi", "--plain"),
        ("bench", "--workload", "chat", "--quick"),
    ):
        code, _, err = specctl(*command, "--model", "mine", "-n", "2", *flags)
        assert code == 0, err
        assert [line for line in err.splitlines() if "tuned" in line] == ([said] if said else [])


def test_make_draft_says_nothing_of_a_tuning(
    specctl: Specctl, tiny_models: dict[str, Path]
) -> None:
    stored(tiny_models["clock"])
    _, out, err = specctl("make-draft", "mine", "--dry-run")
    assert tiny_models["clock"].name in out + err  # it was found
    assert "tuned" not in out + err


def test_show_prints_what_the_threads_rest_on(
    specctl: Specctl, texts: Path, tiny_models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specctl.cores.usable_cores", lambda: 2)
    monkeypatch.setattr("specctl.cores.usable_threads", lambda: 2)
    command = tiny(texts)[:-2]
    code, _, err = specctl("tune", "--model", str(tiny_models["clock"]), *command)
    assert code == 0, err
    kept = profiles.find("clock")
    assert kept is not None
    why = [line for line in kept.evidence.answer if line.startswith("threads ")]
    assert re.fullmatch(
        r"threads 1: (\d+\.\d\d× the speed of 2 \(plain decoding, .* ±\d+%\)|not tried, .*)", why[0]
    )
    assert "not tried" in why[0] or why[1].startswith(f"threads kept: {kept.threads}, ")
    code, out, _ = specctl("tune", "--show", "clock")
    assert all(line in out for line in why)
