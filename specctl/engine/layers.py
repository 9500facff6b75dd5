"""Drafts that read the target's layers, as a session opens them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from specctl.drafters import registry
from specctl.errors import ModelError, PairError, UsageError
from specctl.llama.blockdraft import BlockDraft
from specctl.llama.cancel import Cancel
from specctl.llama.context import NativeClock
from specctl.llama.eagle3 import Eagle3
from specctl.llama.layerdraft import LayerDraft, read_layer_draft
from specctl.llama.model import Model
from specctl.settings import EngineSettings, SpecSettings


def find(target: Path, draft: Path | None, specs: Sequence[SpecSettings]) -> LayerDraft | None:
    """The draft, if it is one that reads layers; checked against what the specs ask for.

    Raises:
        ModelError: the target is such a file; UsageError: a spec that it, or another, is not for.
    """
    wrong = read_layer_draft(target)
    if wrong is not None:
        raise ModelError(
            f"{target.name} is {wrong.words}, not a whole model",
            f"name its target, and this file as --draft{_named(' with', wrong)}",
        )
    found = read_layer_draft(draft) if draft is not None else None
    for spec in specs:
        check(spec, found, draft)
    return found


def _named(before: str, draft: LayerDraft) -> str:
    """`before` and the spec type that drafts with the file; empty where none is run here."""
    known = draft.spec_type in registry.SPEC_TYPES
    return f"{before} --spec-type {draft.spec_type}" if known else ""


def check(spec: SpecSettings, draft: LayerDraft | None, named: Path | None = None) -> None:
    """Raises UsageError where `spec` drafts with another kind of file than `draft`, or none.

    `named` is the file the user gave, also where it is no layer draft.
    """
    names = registry.needs_layers(spec)
    for name in names:
        needed = registry.LAYER_FILES[name]
        if draft is None:
            other = f", and {named.name} is none" if named is not None else ""
            raise UsageError(
                f"{name} needs {needed} made for the target{other}",
                "name it: --draft FILE",
            )
        if draft.spec_type != name:
            hint = _named("", draft).strip() or "another --draft"
            raise UsageError(f"{name} needs {needed}, and {draft.path.name} is {draft.words}", hint)
    if draft is None:
        return
    if registry.needs_draft_model(spec):
        raise UsageError(
            f"{draft.path.name} is {draft.words}, which draft-simple cannot use",
            _named("", draft).strip() or "another --draft",
        )
    if registry.needs_heads(spec):
        raise UsageError(
            f"draft-mtp drafts with heads of the target, and {draft.path.name} is {draft.words}",
            f"leave --draft out{_named(', or', draft)}",
        )


def within_block(
    spec: SpecSettings, draft: LayerDraft | None
) -> tuple[SpecSettings, tuple[str, ...]]:
    """`spec` with drafts no longer than a block of `draft`, and what a user should know of it."""
    if draft is None or draft.block is None or draft.wrong or not registry.needs_layers(spec):
        return spec, ()
    most = draft.block.most
    if spec.draft.n_max <= most:
        return spec, ()
    n_min = min(spec.draft.n_min, most)
    limited = dataclasses.replace(spec.draft, n_max=most, n_min=n_min)
    return dataclasses.replace(spec, draft=limited), (
        f"{draft.spec_type}: drafts of at most {most} tokens, the block that {draft.path.name} was "
        "trained with",
    )


def open_follower(
    draft: LayerDraft,
    model: Model,
    target: Model,
    settings: EngineSettings,
    threads: int,
    cancel: Cancel,
    clock: NativeClock,
) -> Eagle3 | BlockDraft:
    """What follows the target's passes with `model`, the loaded draft.

    Raises:
        PairError: it would decode with a tensor of the target that has another width.
    """
    if draft.borrows_output and model.n_vocab != target.n_vocab:
        raise PairError(
            f"{model.path.name} has no output tensor, and its vocabulary has {model.n_vocab} "
            f"tokens where that of {target.path.name} has {target.n_vocab}"
        )
    kind = Eagle3 if draft.block is None else BlockDraft
    return kind(model, draft, settings, settings.draft, threads=threads, cancel=cancel, clock=clock)
