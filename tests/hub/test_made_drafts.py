"""Whose draft it is: identities, records, and what `draft-self` becomes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from specctl.cli import aliases
from specctl.errors import UsageError
from specctl.hub import drafts, store
from specctl.hub.drafts import ALIAS, MadeDraft, become, find, identify, keep
from specctl.resolve import Resolved
from specctl.settings import DraftSettings, SpecSettings

MIB = 1024**2


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target.gguf"
    path.write_bytes(b"GGUF" + bytes(20 * MIB))
    return path


def _made(target: Path, name: str = "draft.gguf", **changes: Any) -> MadeDraft:
    file = drafts.folder() / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"GGUF" + name.encode())
    identity = identify(target)
    made = MadeDraft(
        file=str(file), size=file.stat().st_size, quant="Q2_K", target=str(target.resolve()),
        target_size=identity.size, target_digest=identity.digest, k=2, accepted=1.5,
        break_even=0.9, speedup=1.3, noise=0.02, pays=True, workload="chat", unix_time=1.0,
    )  # fmt: skip
    made = dataclasses.replace(made, **changes)
    keep(made)
    return made


# ---------------------------------------------------------------- identity


def test_a_moved_target_is_the_same(target: Path, tmp_path: Path) -> None:
    before = identify(target)
    moved = target.rename(tmp_path / "elsewhere.gguf")
    assert identify(moved) == before


@pytest.mark.parametrize("at", [10, 15 * MIB, 16 * MIB + 5, 20 * MIB + 3])
def test_a_changed_byte_is_another_target(target: Path, at: int) -> None:
    """In the head, or at one of the places behind it: the first, or the appended last byte."""
    before = identify(target)
    with target.open("r+b") as file:
        if at > 20 * MIB:
            file.seek(0, 2)
        else:
            file.seek(at)
        file.write(b"x")
    assert identify(target) != before


def test_all_parts_of_a_split_file_count(tmp_path: Path) -> None:
    names = [tmp_path / f"m-0000{n}-of-00002.gguf" for n in (1, 2)]
    for name in names:
        name.write_bytes(b"GGUF" + name.name.encode())
    before = identify(names[0])
    assert before.size == sum(name.stat().st_size for name in names)
    names[1].write_bytes(b"GGUFother")
    assert identify(names[0]) != before
    names[1].unlink()
    with pytest.raises(UsageError, match="00002-of"):
        identify(names[0])


# ---------------------------------------------------------------- records


def test_the_one_that_promises_most_is_found(target: Path) -> None:
    assert find(target) == (None, "")
    _made(target, "slow.gguf", speedup=1.1)
    fast = _made(target, "fast.gguf", speedup=1.6)
    _made(target, "mid.gguf", speedup=1.4)
    assert find(target) == (fast, "")


def test_a_draft_of_another_target_is_not_taken(target: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUFother")
    _made(other)
    assert find(target) == (None, "")


def test_a_target_that_changed_has_no_draft(target: Path) -> None:
    _made(target)
    target.write_bytes(b"GGUFnew" + bytes(MIB))
    made, why = find(target)
    assert made is None
    assert "has changed" in why


@pytest.mark.parametrize("how", ["gone", "other"])
def test_a_draft_that_is_not_what_was_made(target: Path, how: str) -> None:
    made = _made(target)
    made.path.unlink() if how == "gone" else made.path.write_bytes(b"GGUFshorter or longer")
    found, why = find(target)
    assert found is None
    assert "draft.gguf" in why


def test_damaged_records_are_passed_over(target: Path) -> None:
    good = _made(target)
    (record,) = drafts.folder().glob("*.specctl.json")
    data = json.loads(record.read_text())
    broken: list[str] = ["", "[]", "{}", "null", '{"file": 1}']
    broken += [
        json.dumps({**data, key: value})
        for key, value in (("speedup", "9"), ("k", None), ("speedup", float("nan")))
    ]
    broken += [json.dumps({**data, "more": 1}), json.dumps({**data, "schema": 99, "speedup": 9.0})]
    for index, text in enumerate(broken):
        (drafts.folder() / f"{index}.specctl.json").write_text(text)
    assert list(drafts.records()) == [good]


def test_the_store_lists_the_draft_and_not_its_record(target: Path) -> None:
    _made(target)
    assert [entry.name for entry in store.entries()] == ["self-drafts/draft.gguf"]


# ---------------------------------------------------------------- draft-self


def _spec(*types: str, **changes: Any) -> SpecSettings:
    return SpecSettings(types=types, **changes)


def test_without_a_draft_it_is_context_history(target: Path) -> None:
    became = become(_spec(ALIAS), target)
    assert became.spec == _spec("ngram-map-k")
    assert became.draft is None
    assert "specctl make-draft" in became.note
    assert become(_spec("ngram-mod", ALIAS), target).spec.types == ("ngram-mod", "ngram-map-k")
    assert become(_spec("ngram-map-k", ALIAS), target).spec.types == ("ngram-map-k",)


def test_with_one_it_is_that_draft_at_its_length(target: Path) -> None:
    made = _made(target)
    became = become(_spec("ngram-suffix", ALIAS), target)
    assert became.spec.types == ("ngram-suffix", "draft-simple")
    assert became.spec.draft.n_max == 2
    assert became.draft == made.path
    assert "draft.gguf" in became.note
    assert "1.30×" in became.note
    assert "does not pay" not in became.note


def test_what_the_user_said_of_the_length_holds(target: Path) -> None:
    _made(target)
    assert become(_spec(ALIAS, k=5), target).spec == _spec("draft-simple", k=5)
    own = DraftSettings(n_max=6)
    assert become(_spec(ALIAS, draft=own), target).spec.draft == own
    drawn = DraftSettings(sampling="sampled")
    assert become(_spec(ALIAS, draft=drawn), target).spec.draft == DraftSettings(
        n_max=2, sampling="sampled"
    )


def test_a_draft_that_does_not_pay_says_so(target: Path) -> None:
    _made(target, pays=False, speedup=0.8)
    assert "does not pay" in become(_spec(ALIAS), target).note


def test_another_named_draft_contradicts_it(target: Path, tmp_path: Path) -> None:
    made = _made(target)
    with pytest.raises(UsageError, match="another draft is named"):
        become(_spec(ALIAS), target, tmp_path / "other.gguf")
    assert become(_spec(ALIAS), target, made.path).draft == made.path


def test_a_target_is_read_once_for_all_specs(
    target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = _made(target)
    read: list[Path] = []

    def counted(path: Path) -> drafts.Identity:
        read.append(path)
        return identify(path)

    monkeypatch.setattr(drafts, "identify", counted)
    specs = [_spec("ngram-mod"), _spec(ALIAS), _spec("ngram-suffix", ALIAS)]
    settled, files = aliases.settle(specs, Resolved(target), None)
    assert [one.types for one in settled] == [
        ("ngram-mod",),
        ("draft-simple",),
        ("ngram-suffix", "draft-simple"),
    ]
    assert files.draft == made.path
    assert read == [target]
    assert capsys.readouterr().err.count("note:") == 1
    aliases.settle(specs[:1], Resolved(target), None)
    assert read == [target]  # nothing is read where no spec says draft-self
