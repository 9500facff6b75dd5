"""MTP heads as a session opens them: in the target's file, in one of their own, an assistant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specctl.drafters import registry
from specctl.enginefacts import ASSISTANT
from specctl.errors import PairError, UsageError
from specctl.llama import preflight, sharedkv
from specctl.llama.assistant import Assistant
from specctl.llama.cancel import Cancel
from specctl.llama.chained import ChainedHeads
from specctl.llama.context import NativeClock
from specctl.llama.heads import Heads
from specctl.llama.model import Model
from specctl.llama.mtp import why_not
from specctl.settings import EngineSettings, SpecSettings


def find(model: Path, draft: Path | None, specs: Sequence[SpecSettings]) -> Path | None:
    """The file with the MTP heads that drafts come from: a draft that is one, or the target's.

    `auto` takes the target's own where no draft is named, and does without where it has none.

    Raises:
        UsageError: `draft-mtp` is wanted, and there are none; PairError: an assistant that is not
            for this target.
    """
    needed = any(registry.needs_heads(spec) for spec in specs)
    if not needed and not any("auto" in spec.types for spec in specs):
        return None
    file = model
    if draft is not None:
        facts = preflight.heads(draft)
        if facts is not None and not facts.trunk:
            file = draft
            if facts.arch == ASSISTANT:
                sharedkv.check_fits(draft, model)
        elif not needed:
            return None
    why = why_not(file)
    if needed:
        refuse(why)
    return file if why is None else None


def refuse(why: str | None) -> None:
    """Raises UsageError where there is a reason."""
    if why is not None:
        raise UsageError(
            f"draft-mtp needs MTP heads: {why}", "`specctl inspect FILE` shows what a file has"
        )


def most(file: Path | None) -> int | None:
    """The longest draft of the heads of `file`, tokens; None where one head goes on from itself."""
    facts = preflight.heads(file) if file is not None else None
    chained = facts is not None and facts.arch != ASSISTANT and facts.declared > 1
    return facts.declared if facts is not None and chained else None


def open_heads(
    model: Model,
    target: Model,
    settings: EngineSettings,
    k: int,
    threads: int,
    cancel: Cancel,
    clock: NativeClock,
) -> Heads | Assistant:
    """What follows the target's passes with the heads of `model`, which may be the target itself.

    Raises:
        PairError: heads of another architecture or width than the target's.
    """
    if model.arch == ASSISTANT:
        return Assistant(model, settings, threads=threads, cancel=cancel, clock=clock)
    if (model.arch, model.n_embd_out) != (target.arch, target.n_embd_out):
        raise PairError(
            f"the MTP heads of {model.path.name} ({model.arch}, {model.n_embd_out} wide) are not "
            f"for {target.path.name} ({target.arch}, {target.n_embd_out} wide)"
        )
    placement = settings.target if model is target else settings.draft
    count = most(model.path)
    if count is None:
        return Heads(model, settings, placement, threads=threads, k=k, cancel=cancel, clock=clock)
    return ChainedHeads(
        model, settings, placement, count, threads=threads, k=k, cancel=cancel, clock=clock
    )
