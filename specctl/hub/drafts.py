"""Drafts that were made from a target of this machine: where they lie, and whose they are.

`specctl make-draft` puts a draft into `<models>/self-drafts/` (or wherever it was told to) and
writes a record beside the others there: `<draft>.<digest of the target>.specctl.json`. A target is
known by its size and by what lies in the first 16 MiB and at 64 places of each of its files, so a
file that was moved or renamed is the same target, and one that was changed is another.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from specctl import paths
from specctl.errors import UsageError
from specctl.hub.split import part_paths
from specctl.settings import DraftSettings, SpecSettings

ALIAS = "draft-self"
FALLBACK = "ngram-map-k"  # drafts from the context's history, as llama.cpp pull request 18471 does
SCHEMA = 1
_HEAD = 16 * 1024**2
_PLACES, _PLACE = 64, 4096
_ENDING = ".specctl.json"  # what the store takes for no model


@dataclass(frozen=True, slots=True)
class Identity:
    """Which model file it is, whatever it is called. `size` in bytes, of all parts."""

    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class MadeDraft:
    """A draft with its target and what was predicted of it when it was made (estimates).

    `file` is absolute, `size` its bytes. `accepted` and `break_even` are tokens per cycle at draft
    length `k`, `speedup` is against plain decoding, `noise` a share, `pays` the verdict.
    """

    file: str
    size: int
    quant: str
    target: str  # the file's path when it was read
    target_size: int
    target_digest: str
    k: int
    accepted: float
    break_even: float
    speedup: float
    noise: float
    pays: bool
    workload: str
    unix_time: float
    schema: int = SCHEMA

    @property
    def path(self) -> Path:
        """Where it lies."""
        return Path(self.file)

    @property
    def here(self) -> bool:
        """It is still there, at the size it had."""
        try:
            return self.path.stat().st_size == self.size
        except OSError:
            return False


def folder() -> Path:
    """Where drafts are kept, and the records of all of them."""
    return paths.models_dir() / "self-drafts"


def identify(path: Path) -> Identity:
    """Reads at most 17 MiB a file.

    Raises:
        UsageError: a file cannot be read.
    """
    digest, total = hashlib.sha256(), 0
    try:
        for part in part_paths(path):
            with part.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                digest.update(b"%d:" % size)
                digest.update(file.read(_HEAD))
                for place in range(_PLACES if size > _HEAD else 0):
                    file.seek(_HEAD + (size - _HEAD) * place // _PLACES)
                    digest.update(file.read(_PLACE))
            total += size
    except OSError as error:
        raise UsageError(f"cannot read {error.filename or path}: {error.strerror}") from error
    return Identity(total, digest.hexdigest())


def keep(made: MadeDraft) -> Path:
    """Write the record of a draft; returns where. Raises SpecctlError."""
    name = f"{made.path.name}.{made.target_digest[:12]}{_ENDING}"
    record = folder() / name
    paths.write_whole(record, json.dumps(asdict(made), indent=1, ensure_ascii=False) + "\n")
    return record


def records() -> Iterator[MadeDraft]:
    """Every record that can be read."""
    known = {field.name: field.type for field in dataclasses.fields(MadeDraft)}
    for file in sorted(folder().glob(f"*{_ENDING}")):
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            made = MadeDraft(**data)
            wrong = [name for name in known if not _fits(getattr(made, name), known[name])]
        except (OSError, ValueError, TypeError):
            continue
        if not wrong and made.schema == SCHEMA:
            yield made


def _fits(value: object, kind: object) -> bool:
    kinds: dict[object, tuple[type, ...]] = {"float": (int, float), "int": (int,), "str": (str,)}
    odd = isinstance(value, float) and not math.isfinite(value)
    return isinstance(value, kinds.get(kind, (bool,))) and not odd


def find(target: Path) -> tuple[MadeDraft | None, str]:
    """The draft of this target with the largest predicted speed-up; or none, and why.

    The reason is empty where nothing was ever made for it.
    """
    kept = list(records())
    if not kept:
        return None, ""
    identity = identify(target)
    own = [one for one in kept if Identity(one.target_size, one.target_digest) == identity]
    here = [one for one in own if one.here]
    if here:
        return max(here, key=lambda one: one.speedup), ""
    if own:
        return None, f"{own[0].file} is gone, or is not what was made"
    where = str(target.resolve())
    if any(one.target == where for one in kept):
        return None, f"{target.name} has changed since a draft was made from it"
    return None, ""


@dataclass(frozen=True, slots=True)
class Became:
    """What `draft-self` stands for with one target. `draft` is the file, where it is one."""

    spec: SpecSettings
    draft: Path | None
    note: str


def has_alias(spec: SpecSettings) -> bool:
    """Does it say `draft-self`, alone or in a chain?"""
    return ALIAS in spec.types


def become(
    spec: SpecSettings,
    target: Path,
    beside: Path | None = None,
    found: tuple[MadeDraft | None, str] | None = None,
) -> Became:
    """`spec` without `draft-self`: a draft that was made from the target, else context history.

    `beside` is a draft that was named: then the name and `draft-self` mean two. `found` is what
    `find(target)` said, where it was asked already: it reads the target.
    The draft length is that of the prediction, unless n-max was changed or K was given.

    Raises:
        UsageError: another draft was named, or the target cannot be read.
    """
    made, why = find(target) if found is None else found
    if made is None:
        why = why or f"no draft was made from {target.name}"
        note = f"{ALIAS} is {FALLBACK} here: {why} (specctl make-draft TARGET)"
        return Became(_put(spec, FALLBACK), None, note)
    if beside is not None and beside.resolve() != made.path.resolve():
        raise UsageError(
            f"{ALIAS} is {made.path.name}, and another draft is named: {beside.name}",
            "leave out --draft, or say draft-simple instead of draft-self",
        )
    own = spec.draft == dataclasses.replace(DraftSettings(), sampling=spec.draft.sampling)
    if own and spec.k is None:
        spec = dataclasses.replace(spec, draft=dataclasses.replace(spec.draft, n_max=made.k))
    note = (
        f"{ALIAS} is draft-simple with {made.path.name}, K {spec.k or spec.draft.n_max}; "
        f"predicted when it was made: ≈ {made.speedup:.2f}×"
        + ("" if made.pays else ", which does not pay")
    )
    return Became(_put(spec, "draft-simple"), made.path, note)


def without(spec: SpecSettings) -> SpecSettings:
    """`draft-self` as context history, whatever was made."""
    return _put(spec, FALLBACK)


def _put(spec: SpecSettings, name: str) -> SpecSettings:
    types = [name if one == ALIAS else one for one in spec.types]
    return dataclasses.replace(spec, types=tuple(dict.fromkeys(types)))
