"""From a profile's name to the files of the whole pair."""

from __future__ import annotations

from specctl.errors import UsageError
from specctl.hub.remote import Wanted
from specctl.plan.catalog import Catalog, Selection
from specctl.plan.profile import Draft, ModelFile

# What a profile's `status` must begin with for its draft to come along unasked.
_PROVEN = ("measured", "reported working", "llama.cpp preset")


def choose(catalog: Catalog, name: str, quant: str | None, draft: str | None) -> Selection:
    """`id`, `id:QUANT` or `id:QUANT+method`, with flags filling in what the name leaves open.

    `draft` is a method, `none` for the target alone, None for the first method of the profile
    that is known to work and has its file.

    Raises:
        UsageError: no such model, quant or draft; name and flag contradict each other.
    """
    target, plus, method = name.partition("+")
    model_id, colon, named_quant = target.partition(":")
    if colon and quant and quant.lower() != named_quant.lower():
        raise UsageError(f"{name} and --quant {quant} name two quants", "give one of them")
    if plus and draft and draft != method:
        raise UsageError(f"{name} and --draft {draft} name two methods", "give one of them")
    target = f"{model_id}:{named_quant or quant or ''}".rstrip(":")
    if plus or draft:
        return catalog.select(f"{target}+{method or draft}")
    plain = catalog.select(target)
    for candidate in plain.model.drafts:
        if candidate.status.startswith(_PROVEN) and _has_file(candidate):
            try:
                return catalog.select(f"{target}+{candidate.method}")
            except UsageError:  # its file is not ready in this quant
                continue
    return plain


def _has_file(draft: Draft) -> bool:
    return draft.embedded or draft.file is not None or draft.model is not None


def wanted(selection: Selection) -> tuple[Wanted, ...]:
    """The files of a configuration on the hub, target first.

    Raises:
        UsageError: they lie on this machine; there is nothing to pull.
    """
    files = [file for file in (selection.file, selection.draft_file) if file is not None]
    found = tuple(want for file in files for want in wanted_file(file))
    if not found:
        raise UsageError(f"{selection.name} describes files of this machine: nothing to pull")
    return found


def wanted_file(file: ModelFile) -> tuple[Wanted, ...]:
    """Every part of one model file; nothing where it lies in a folder of this machine."""
    if file.repo is None:
        return ()
    size = file.size if file.exact and len(file.names) == 1 else None
    hashes = file.sha256 or (None,) * len(file.names)
    return tuple(
        Wanted(file.repo, name, size, sha256, file.revision)
        for name, sha256 in zip(file.names, hashes, strict=True)
    )


def elsewhere_on_the_hub(catalog: Catalog, repo: str, files: tuple[str, ...]) -> tuple[str, ...]:
    """The same quants of the same model in other repos, for when this one is refused."""
    found: list[str] = []
    for model in catalog:
        quants = {f.quant for f in model.files if f.repo == repo and set(f.names) & set(files)}
        found += [
            f"hf:{file.repo}/{file.names[0]}"
            for file in model.files
            if file.quant in quants and file.repo not in (None, repo)
        ]
    return tuple(dict.fromkeys(found))
