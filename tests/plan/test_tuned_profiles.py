"""Tuned profiles: written and read back, found by name, and below the flags."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.errors import ModelError, ProfileError
from specctl.plan import catalog
from specctl.plan import tuned as profiles
from specctl.plan.tuned import Evidence, Measured, Tuned, dumps, read_tuned
from specctl.resolve import Resolved, header_places, resolve
from specctl.settings import DraftSettings, EngineSettings, ModelSettings, SpecSettings

ROW = Measured("auto", "final", 4, 5, 0.0213, "faster", "same", 1.412, 1.35, 1.44, 10.5, 14.8, 0.61)
EVIDENCE = Evidence(
    date="2026-11-30T06:00:00Z",
    specctl="0.1.0",
    engine="llama-cpp-python 0.3.36",
    machine='a "CPU", 2 cores',
    target="some.gguf",
    target_bytes=4,
    prompts="mine.jsonl: 4 of 9 prompts",
    prompts_hash="0123456789abcdef",
    temperature=0.0,
    max_tokens=64,
    ctx=4096,
    seconds=187.2,
    runs=63,
    answer=("auto is 1.41× plain decoding",),
    candidates=(ROW, dataclasses.replace(ROW, name="none", speedup=None)),
)


def made(**changes: Any) -> Tuned:
    values: dict[str, Any] = {"id": "mine", "model": "demo", "types": ("auto",), "threads": 2}
    return Tuned(**{**values, "evidence": EVIDENCE, **changes})


def test_what_is_written_is_read_back() -> None:
    full = made(
        draft='/some where/d\u00e4ft "1".gguf',
        types=("ngram-suffix", "draft-simple"),
        k=4,
        draft_n_max=8,
        kv_type="q8_0",
        draft_kv_type="q8_0",
        gpu_layers=0,
        draft_gpu_layers=12,
        n_cpu_moe=3,
        flash_attn="on",
    )
    for one in (made(), full):
        assert read_tuned(profiles.write(one)) == one


@given(st.text(min_size=1), st.text(), st.floats(0, 1e6))
def test_any_text_survives(text: str, answer: str, seconds: float) -> None:
    evidence = dataclasses.replace(
        EVIDENCE, machine=text, answer=(answer,), seconds=seconds, candidates=()
    )
    import tomllib

    try:
        text.encode(), answer.encode()
    except UnicodeEncodeError:
        return  # lone surrogates are no text
    back = tomllib.loads(dumps(made(evidence=evidence)))["tuned"]["evidence"]
    assert (back["machine"], back["answer"]) == (text, [answer])
    assert back["seconds"] == pytest.approx(seconds, rel=1e-3, abs=0.06)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("threads = 2", "threads = 0", "line 8: tuned.threads must be at least 1"),
        ("spec_type", "spec_typ", 'tuned.spec_typ is not a key here; did you mean "spec_type"'),
        ("threads = 2", 'threads = 2\nkv_type = "q9"', "unknown KV type 'q9'"),
        ("threads = 2", 'threads = 2\nflash_attn = "perhaps"', "must be one of auto, on, off"),
        ("[tuned]", "[turned]", "tuned.spec_type is missing"),
        ("runs = 63", 'runs = "many"', "tuned.evidence.runs must be a whole number"),
        ('stage = "final"', "stages = 1", "candidate"),
        ('"auto"\nthreads', '"auto,auto"\nthreads', "named twice"),
    ],
)
def test_a_wrong_file_is_told_by_line_and_key(old: str, new: str, said: str) -> None:
    path = profiles.write(made())
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ProfileError) as error:
        read_tuned(path)
    assert said in str(error.value)
    assert path.name in str(error.value)


def test_the_catalogue_does_not_take_it_for_a_model() -> None:
    before = len(catalog.load().models)
    profiles.write(made())
    assert len(catalog.load().models) == before


def test_flags_win_over_what_was_tuned() -> None:
    tuned = made(types=("draft-simple",), k=4, kv_type="q8_0", gpu_layers=7, draft_kv_type="q8_0")
    assert tuned.spec(SpecSettings(types=("auto",))) == SpecSettings(types=("draft-simple",), k=4)
    assert tuned.spec(SpecSettings(k=9)).k == 9
    chain = made(types=("ngram-suffix", "draft-simple"), draft_n_max=8)
    assert chain.spec(SpecSettings()).draft.n_max == 8
    assert chain.spec(SpecSettings(draft=DraftSettings(n_max=5))).draft.n_max == 5
    settings = tuned.engine(EngineSettings())
    assert (settings.threads, settings.target.gpu_layers) == (2, 7)
    assert settings.target.kv_type_k == settings.draft.kv_type_v == "q8_0"
    flags = EngineSettings(threads=5, target=ModelSettings(gpu_layers=1, kv_type_k="q4_0"))
    settings = tuned.engine(flags)
    assert (settings.threads, settings.target.gpu_layers, settings.target.kv_type_k) == (
        5,
        1,
        "q4_0",
    )


# ---------------------------------------------------------------- names


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    target, draft = tmp_path / "some.gguf", tmp_path / "small.gguf"
    target.write_bytes(b"GGUF")
    draft.write_bytes(b"GGUF")
    return target, draft


def test_its_name_means_the_files_and_how_to_run_them(pair: tuple[Path, Path]) -> None:
    target, draft = pair
    tuned = made(model=str(target), draft=str(draft), types=("draft-simple",), k=4)
    profiles.write(tuned)
    found = resolve("MINE")
    assert isinstance(found, Resolved)
    assert (found.model, found.draft, found.spec_types, found.k) == (
        target,
        draft,
        ("draft-simple",),
        4,
    )
    assert found.tuned == tuned
    assert found.tuned.words == "draft-simple k=4, 2 threads"
    assert found.notes == ()  # what is in force depends on the flags: the command says it
    assert header_places("mine") == (str(target), str(draft))


def test_only_what_the_flags_leave_is_in_force() -> None:
    one = made(types=("draft-simple",), k=4, draft_kv_type="q8_0", draft="x.gguf")
    usual, two = EngineSettings(), EngineSettings(threads=2)

    def said(*specs: SpecSettings, flags: EngineSettings = usual, drafted: bool = True) -> str:
        return one.in_force(specs, flags, drafted=drafted)

    assert said(SpecSettings()) == one.words == "draft-simple k=4, draft KV q8_0, 2 threads"
    assert said(SpecSettings(k=3)) == "draft-simple, draft KV q8_0, 2 threads"
    assert said(SpecSettings(k=4), SpecSettings(k=3), drafted=False) == "draft-simple, 2 threads"
    assert said(drafted=False) == "2 threads"
    assert said(flags=two) == "draft KV q8_0"
    assert said(flags=two, drafted=False) == ""
    bounded = made(types=("ngram-suffix", "draft-simple"), draft_n_max=4, threads=1)
    flag = SpecSettings(draft=DraftSettings(n_max=6))
    assert bounded.in_force((flag,), two, drafted=True) == "ngram-suffix,draft-simple"
    assert bounded.words == "ngram-suffix,draft-simple n-max=4, 1 thread"


def test_a_path_or_another_draft_is_not_what_was_tuned(pair: tuple[Path, Path]) -> None:
    target, draft = pair
    profiles.write(made(model=str(target)))
    by_path = resolve(str(target))
    assert isinstance(by_path, Resolved)
    assert by_path.tuned is None
    other = resolve("mine", str(draft))
    assert isinstance(other, Resolved)
    assert (other.model, other.draft, other.tuned) == (target, draft, None)


def test_a_file_that_is_gone_or_another_one_is_said(pair: tuple[Path, Path]) -> None:
    target, _ = pair
    path = profiles.write(made(model=str(target)))
    target.write_bytes(b"GGUF, but longer")
    found = resolve("mine")
    assert isinstance(found, Resolved)
    assert any("not the file that was tuned" in note for note in found.notes)
    target.unlink()
    with pytest.raises(ModelError) as error:
        resolve("mine")
    assert path.name in (error.value.hint or "")


@pytest.mark.demo
def test_demo_itself_can_be_tuned_and_is_still_the_demo() -> None:
    plain = resolve("demo")
    assert isinstance(plain, Resolved)
    assert plain.tuned is None
    size = plain.model.stat().st_size
    evidence = dataclasses.replace(EVIDENCE, target_bytes=size)
    profiles.write(made(id="demo", types=("ngram-suffix",), evidence=evidence))
    tuned = resolve("demo")
    assert isinstance(tuned, Resolved)
    assert (tuned.model, tuned.spec_types) == (plain.model, ("ngram-suffix",))
    assert tuned.notes == ()
    assert tuned.tuned is not None


def test_a_damaged_file_stops_only_who_names_it() -> None:
    profiles.write(made())
    broken = profiles.path_of("broken")
    broken.write_text("[tuned]\nid = 5\n", encoding="utf-8")
    assert profiles.find("mine") == made()
    assert profiles.find("something else") is None
    with pytest.raises(ProfileError, match="broken"):
        profiles.find("broken")


# ---------------------------------------------------------------- profiles that name profiles


def test_a_name_is_read_once(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    target, draft = pair
    profiles.write(made(model=str(target), draft=str(draft)))
    profiles.write(made(id="fast", model="mine"))
    read: list[str] = []

    def counted(path: Path) -> Tuned:
        read.append(path.name)
        return read_tuned(path)

    monkeypatch.setattr(profiles, "read_tuned", counted)
    for ask in (resolve, header_places):
        ask("fast")
        assert sorted(read) == ["fast.tuned.toml", "mine.tuned.toml"]
        read.clear()


def test_a_profile_of_a_profile_is_of_the_model_behind_it(pair: tuple[Path, Path]) -> None:
    target, draft = pair
    profiles.write(made(model=str(target), draft=str(draft), k=9))
    outer = made(id="fast", model="Mine", types=("ngram-mod",), threads=1)
    profiles.write(outer)
    found = resolve("fast")
    assert isinstance(found, Resolved)
    assert (found.model, found.draft, found.tuned) == (target, None, outer)
    assert header_places("fast") == (str(target), None)


@pytest.mark.parametrize("length", [2, 3])
def test_profiles_that_name_each_other_are_both_named(length: int) -> None:
    ids = [f"loop{n}" for n in range(length)]
    for n, one in enumerate(ids):
        profiles.write(made(id=one, model=ids[(n + 1) % length].upper()))
    for ask in (resolve, header_places):
        with pytest.raises(ProfileError, match="name each other") as error:
            ask("loop0")
        for one in ids:
            assert str(profiles.path_of(one)) in error.value.message
    profiles.write(made(id="other", draft="loop1"))
    with pytest.raises(ProfileError, match="name each other"):
        resolve("other")


def test_a_profile_that_names_itself_is_of_no_model() -> None:
    path = profiles.write(made(model="mine"))
    with pytest.raises(ModelError, match="no model 'mine'") as error:
        resolve("mine")
    assert path.name in (error.value.hint or "")
