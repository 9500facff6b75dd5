"""One resolver for every name of a model: which file here, or what to fetch.

A name is a path, `demo`, `demo-f16`, `hf:owner/repo/file.gguf`, a profile's `id`, `id:QUANT` or
`id:QUANT+METHOD` (built in, or the user's own), a profile that `specctl tune` wrote, or a file of
the store by its name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specctl.demo import DEMO, DEMO_F16, demo_f16_model, demo_model
from specctl.errors import ModelError, UsageError

if TYPE_CHECKING:
    from specctl.hub.remote import Wanted
    from specctl.plan.catalog import Catalog, Selection
    from specctl.plan.profile import ModelFile
    from specctl.plan.tuned import Tuned
    from specctl.plan.tuned_names import Meant

FORMS = (
    "a name is a .gguf file, demo, hf:owner/repo/file.gguf, or a profile "
    "(`specctl recommend` lists some)"
)
_PATH = re.compile(r"[/\\]|\.gguf$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Resolved:
    """Files of this machine, and what the name says of how to run them; None: it says nothing.

    `k` is the profile's advice for the draft model or head, most tokens per cycle. `kv_type`
    and `n_cpu_moe` are those with which a proposal fits this machine. `tuned`: how to run it was
    measured here, and is all in there.
    """

    model: Path
    draft: Path | None = None
    spec_types: tuple[str, ...] | None = None
    k: int | None = None
    kv_type: str | None = None
    n_cpu_moe: int = 0
    notes: tuple[str, ...] = ()
    tuned: Tuned | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """Not on this machine, or not all of it: what to fetch, bytes, and how.

    `files` are all parts of what is not complete. `bytes` None: nobody has told the size; `exact`:
    it is a listed byte count. `pull` holds the arguments of `specctl pull`.
    """

    name: str
    files: tuple[Wanted, ...]
    bytes: int | None
    exact: bool
    pull: str


Placed = Mapping[tuple[str, str], Path]  # (repo, file) → where it was just put
_NOTHING: Placed = {}


def resolve(name: str, draft: str | None = None, placed: Placed = _NOTHING) -> Resolved | Missing:
    """What a target's name means, with the draft of the same name or the one named beside it.

    Raises:
        ModelError: no such file or name, or a local profile's file is gone.
        UsageError: no such quant or draft, or a method that specctl does not run itself.
    """
    own = _resolve_one(name, placed, alone=draft is not None)
    if draft is None:
        return own
    if "+" in draft and not Path(draft).is_file():
        raise UsageError(f"--draft {draft}: a draft is one model", "leave out what follows the +")
    beside = _resolve_one(draft, placed, alone=True)
    if isinstance(own, Resolved) and isinstance(beside, Resolved):
        return replace(own, draft=beside.model, notes=own.notes + beside.notes)
    return _joined([one for one in (own, beside) if isinstance(one, Missing)])


def header_places(name: str) -> tuple[str, str | None]:
    """Where to read the header of a name's target, and of its draft: a path, or `hf:…`.

    Nothing is fetched for this: a header can be read on the hub. Of every method, also of those
    that specctl does not run.

    Raises:
        ModelError, UsageError: as `resolve`.
    """
    meant = _meant(name)
    if meant is not None:
        beside = _header_places(meant.draft)[0] if meant.draft else None
        return _header_places(meant.model)[0], beside
    return _header_places(name)


def _header_places(name: str) -> tuple[str, str | None]:
    """The same of a name that is no tuned profile."""
    if name.startswith("hf:"):
        found = None if "@" in name else _reference(name, _NOTHING)
        return (str(found.model) if isinstance(found, Resolved) else name), None
    path = _plain_file(name)
    selection = None if path else _selection(name)
    if selection is None:
        return str(path or _stored(name)), None
    draft = selection.draft_file
    beside = _header_place(selection, draft) if draft else None
    return _header_place(selection, selection.file), beside


def resolve_selection(
    selection: Selection, placed: Placed = _NOTHING, alone: bool = False
) -> Resolved | Missing:
    """The files of a configuration. `alone`: its target only.

    Raises:
        ModelError: a local profile's file is gone.
    """
    draft_file = None if alone else selection.draft_file
    target = _file(selection, selection.file, placed)
    small = _file(selection, draft_file, placed) if draft_file else None
    lacking = [one for one in (target, small) if isinstance(one, Missing)]
    if lacking:
        whole = selection.target_name if alone or not selection.draft_file else selection.name
        pull = selection.pull_name if not alone else f"{selection.target_name}+none"
        return replace(_joined(lacking), name=whole, pull=pull)
    assert isinstance(target, Path)
    assert not isinstance(small, Missing)
    method = None if alone or selection.method == "none" else (selection.method,)
    mtp = selection.method == "draft-mtp" and not alone
    from specctl.plan.outlook import default_k

    advice = default_k(selection)[0] if small or mtp else None
    return Resolved(target, small, method, advice, notes=_notes(selection, alone, placed))


# ---------------------------------------------------------------- names


def _resolve_one(name: str, placed: Placed, alone: bool) -> Resolved | Missing:
    meant = _meant(name)
    if meant is None:
        return _untuned(name, placed, alone)
    return _untuned(meant.model, placed, alone=True) if alone else _as_tuned(meant, placed)


def _untuned(name: str, placed: Placed, alone: bool) -> Resolved | Missing:
    """What a name means that is no tuned profile, or stands behind one."""
    if name.startswith("hf:"):
        return _reference(name, placed)
    path = _plain_file(name)
    if path is not None:
        return Resolved(path)
    selection = _selection(name)
    if selection is None:
        return Resolved(_stored(name))
    if not alone:
        _check_method(selection)
    return resolve_selection(selection, placed, alone)


def _meant(name: str) -> Meant | None:
    """What `specctl tune` kept under this name. A path or a method that is named is meant so."""
    if _PATH.search(name) or name.startswith("hf:") or "+" in name or Path(name).is_file():
        return None
    from specctl.plan import tuned_names

    return tuned_names.meant(name)


def _as_tuned(meant: Meant, placed: Placed) -> Resolved | Missing:
    tuned = meant.tuned
    try:
        own = _untuned(meant.model, placed, alone=True)
        beside = _untuned(meant.draft, placed, alone=True) if meant.draft else None
    except ModelError as error:
        raise ModelError(error.message, f"the profile {tuned.origin} names it") from error
    lacking = [one for one in (own, beside) if isinstance(one, Missing)]
    if lacking:
        return _joined(lacking)
    assert isinstance(own, Resolved)
    assert not isinstance(beside, Missing)
    notes = []
    if own.model.stat().st_size != tuned.evidence.target_bytes:
        notes.append(f"{own.model.name} is not the file that was tuned: tune it again")
    draft = beside.model if beside else None
    return replace(
        own, draft=draft, spec_types=tuned.types, k=tuned.k, notes=tuple(notes), tuned=tuned
    )


def _plain_file(name: str) -> Path | None:
    """The file of `demo`, `demo-f16` or a path; None where the name is neither."""
    if name == DEMO:
        return demo_model()
    if name == DEMO_F16:
        return demo_f16_model()
    path = Path(name).expanduser()
    if path.is_dir() and _PATH.search(name):
        raise ModelError(f"{path} is a folder", "name the .gguf file in it")
    return path if path.exists() and not path.is_dir() else None


def _selection(name: str) -> Selection | None:
    """The configuration of a profile, or None where no profile has that id."""
    from specctl.plan import catalog

    models = catalog.load()
    if models.get(re.split(r"[:+]", name, maxsplit=1)[0]) is None:
        return None
    return models.select(name)


def _stored(name: str) -> Path:
    """A file of the store by name; an error with the nearest names where there is none."""
    from specctl.hub import store

    found = [one for one in store.entries() if name in (one.name, one.path.name)]
    if len(found) == 1:
        return found[0].path
    if found:
        names = ", ".join(one.name for one in found[:5])
        raise ModelError(f"several files are called {name!r}", f"name one of: {names}")
    if _PATH.search(name):
        raise ModelError(f"no model {name!r}: there is no such file", FORMS)
    near = _near(name)
    hint = f"did you mean {', '.join(near)}? {FORMS}" if near else FORMS
    raise ModelError(f"no model {name!r}: neither a file nor a known name", hint)


def _near(name: str) -> list[str]:
    from specctl.plan import catalog

    given = re.split(r"[:+]", name.lower(), maxsplit=1)[0]
    ids = [DEMO, DEMO_F16, *(model.id for model in catalog.load())]
    inside = [one for one in ids if len(given) > 2 and given.replace("_", "-") in one]
    return list(dict.fromkeys([*difflib.get_close_matches(given, ids, 4, 0.6), *inside]))[:5]


def _check_method(selection: Selection) -> None:
    """Raises UsageError for what only another engine runs, with the nearest that specctl does."""
    if selection.in_process:
        return
    from specctl.plan import catalog

    small = with_small_model(catalog.load(), selection)
    nearest = small.name if small else selection.target_name
    raise UsageError(
        f"{selection.name}: {selection.method} of this model runs in llama-server, not in specctl "
        "yet",
        f"the nearest that specctl runs: {nearest}; for llama-server, fetch the files: "
        f"specctl pull {selection.pull_name}",
    )


def with_small_model(models: Catalog, selection: Selection) -> Selection | None:
    """The same target with its small draft model, where a profile has one that specctl runs."""
    for draft in selection.model.drafts:
        if draft.method == "draft-simple":
            found = models.drafted(selection.model, selection.file, draft)
            if found is not None and found.in_process:
                return found
    return None


# ---------------------------------------------------------------- files


def _reference(name: str, placed: Placed) -> Resolved | Missing:
    from specctl.hub.lookup import expand, parse_reference

    want = parse_reference(name)
    repo, at, revision = want.repo.partition("@")
    if at:  # files of the store are found by repo and name, whatever their revision
        raise UsageError(
            f"{name} names a revision, which only inspect, plan and check read",
            f"specctl pull hf:{repo}/{want.file} --revision {revision}, then name the file",
        )
    wanted = expand([want])
    found, _ = _here(wanted, placed)
    return Resolved(found) if found else Missing(name, wanted, None, False, name)


def _file(selection: Selection, file: ModelFile, placed: Placed) -> Path | Missing:
    if file.folder is not None:
        path = file.folder / file.names[0]
        gone = [name for name in file.names if not (file.folder / name).is_file()]
        if gone:
            raise ModelError(
                f"{selection.name}: there is no file {file.folder / gone[0]}",
                f"the profile {selection.model.origin} names it",
            )
        return path
    from specctl.hub.lookup import expand
    from specctl.hub.profiles import wanted_file

    wanted = expand(wanted_file(file))
    found, lacking = _here(wanted, placed)
    if found is not None:
        return found
    size = None if file.size is None else file.size * lacking // len(wanted)
    exact = file.exact and lacking == len(wanted)
    return Missing(selection.name, wanted, size, exact, selection.pull_name)


def _here(wanted: tuple[Wanted, ...], placed: Placed) -> tuple[Path | None, int]:
    """The path of the first part when all are here, and how many parts are not."""
    from specctl.hub.lookup import find

    places = {
        want: placed.get((want.repo, want.file))
        or find(want.repo, want.file, want.size, want.sha256)
        for want in wanted
    }
    lacking = sum(path is None for path in places.values())
    return (None if lacking else places[wanted[0]]), lacking


def _joined(missing: list[Missing]) -> Missing:
    known = [one.bytes for one in missing if one.bytes is not None]
    return Missing(
        " and ".join(one.name for one in missing),
        tuple(dict.fromkeys(want for one in missing for want in one.files)),
        sum(known) if len(known) == len(missing) else None,
        all(one.exact for one in missing),
        " ".join(one.pull for one in missing),
    )


def _notes(selection: Selection, alone: bool, placed: Placed) -> tuple[str, ...]:
    """A draft that is here already and was not asked for is worth a line."""
    if alone or selection.method != "none" or not selection.in_process:
        return ()
    from specctl.plan import catalog

    small = with_small_model(catalog.load(), selection)
    if small is None or small.draft_file is None:
        return ()
    if not isinstance(_file(small, small.draft_file, placed), Path):
        return ()
    return (f"its draft model is here too: --model {small.name} uses it",)


def _header_place(selection: Selection, file: ModelFile) -> str:
    found = _file(selection, file, _NOTHING)
    return str(found) if isinstance(found, Path) else f"hf:{file.repo}/{file.names[0]}"
