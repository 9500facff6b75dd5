"""Which spec types the files at hand allow, beside the look-ups: told before anything is loaded."""

from __future__ import annotations

from pathlib import Path


def type_of(draft: Path) -> str:
    """The spec type that drafts with this file; it may be one that is not run here.

    Raises:
        ModelError: missing, or no GGUF.
    """
    from specctl.llama import layerdraft, preflight

    layers = layerdraft.read_layer_draft(draft)
    if layers is not None:
        return layers.spec_type
    heads = preflight.heads(draft)
    return "draft-mtp" if heads is not None and not heads.trunk else "draft-simple"


def types_of(model: Path, draft: Path | None) -> tuple[str, ...]:
    """Every model-bound spec type that one session can run, that of the draft file first.

    Beside a draft that reads the target's layers, the target's own heads cannot be opened.

    Raises:
        ModelError: a file is missing, or no GGUF.
    """
    named = (type_of(draft),) if draft is not None else ()
    if named and named[0] != "draft-simple":
        return named
    return (*named, *(("draft-mtp",) if has_heads(model) else ()))


def has_heads(model: Path) -> bool:
    """Does the target's own file hold MTP heads that run here? Raises ModelError: no GGUF."""
    from specctl.llama import mtp

    return mtp.why_not(model) is None
