"""The native things of a session: models and their memories, opened as the specs need them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from specctl.drafters import registry
from specctl.drafters.costs import CostCurve
from specctl.drafters.registry import Resources
from specctl.engine import heads, layers
from specctl.errors import ModelError, PairError, UsageError
from specctl.llama import preflight
from specctl.llama.assistant import Assistant
from specctl.llama.blockdraft import BlockDraft
from specctl.llama.cancel import Cancel
from specctl.llama.context import Context, NativeClock
from specctl.llama.eagle3 import Eagle3
from specctl.llama.heads import Heads
from specctl.llama.layerdraft import LayerDraft, check_fits
from specctl.llama.model import Model
from specctl.llama.mtp import why_not
from specctl.settings import EngineSettings, SpecSettings, limit_drafts
from specctl.units import format_bytes
from specctl.vocabulary import first_difference


def check_files(model: Path, draft: Path | None, specs: Sequence[SpecSettings]) -> None:
    """What the headers alone can refuse, before anything is loaded.

    Raises:
        ModelError: the target is none, or cannot be run; PairError: an assistant for another one.
        UsageError: a spec type that is none, or that these files have no draft for.
    """
    for spec in specs:
        registry.check_types(spec)
    layer_draft = layers.find(model, draft, specs)
    preflight.check(model)
    head_file = None if layer_draft else heads.find(model, draft, specs)
    small = draft is not None and layer_draft is None and head_file != draft
    if not small and any(registry.needs_draft_model(spec) for spec in specs):
        raise _no_draft_model()


def _no_draft_model() -> UsageError:
    return UsageError(
        "draft-simple needs a draft model", "name one of the same family: --draft FILE"
    )


class Opened:
    """A target, and what its drafters decode with. `use_for` opens the rest; `close` frees all.

    Raises:
        ModelError: a model does not load; PairError: the draft does not fit the target.
        UsageError: a spec type that is none, or that lacks a model.
    """

    def __init__(
        self,
        model: Path,
        draft: Path | None,
        specs: Sequence[SpecSettings],
        settings: EngineSettings,
        threads: int,
        cancel: Cancel,
    ) -> None:
        self.draft_path = draft
        self.draft_model: Model | None = None
        self.draft_context: Context | None = None
        self.heads: Heads | Assistant | Eagle3 | BlockDraft | None = None  # follows the target
        self._settings, self._threads, self._cancel = settings, threads, cancel
        self._clock = NativeClock()
        self._context: Context | None = None
        self.notes: list[str] = []
        self.layer_draft = layers.find(model, draft, specs)
        self._must = any(registry.needs_heads(spec) for spec in specs)
        self._head_file = None if self.layer_draft else heads.find(model, draft, specs)
        self._longest = heads.most(self._head_file)
        self.model = self._load_target(model)
        self.k_max = 0
        try:
            for spec in specs:
                self.check(spec)
            limited = [self.limited(spec)[0] for spec in specs]
            self.k_max = max(registry.k_max(spec) for spec in limited)
            for spec in limited:
                self.use_for(spec)
            self._context = self.new_context(self.k_max + 1)
            self._try_beside()
        except BaseException:
            self.close()
            raise

    def _load_target(self, path: Path) -> Model:
        """With its heads where they draft; `auto` does without where they do not fit."""
        placement = self._settings.target
        if self._head_file != path:
            return Model(path, placement)
        try:
            return Model(path, placement, heads=True)
        except ModelError as error:
            if self._must:
                raise
            model = Model(path, placement)
            self._without_heads(error)
            return model

    def _without_heads(self, error: ModelError) -> None:
        self._head_file = None
        self.notes.append(f"auto does without the MTP heads: {error.message}")

    @property
    def context(self) -> Context:
        """The target's memory."""
        if self._context is None:
            raise ModelError("this session is closed")
        return self._context

    @property
    def has_draft(self) -> bool:
        """A whole model was named as the draft."""
        named = self.draft_path is not None and self._head_file != self.draft_path
        return named and self.layer_draft is None

    @property
    def has_heads(self) -> bool:
        """MTP heads can draft: the target's own, or a draft file's."""
        return self._head_file is not None

    def check(self, spec: SpecSettings) -> None:
        """Raises UsageError where `spec` cannot be used here."""
        registry.check_types(spec)
        layers.check(spec, self.layer_draft, self.draft_path)
        if registry.needs_draft_model(spec) and not self.has_draft:
            raise _no_draft_model()
        if registry.needs_heads(spec) and not self.has_heads:
            heads.refuse(why_not(self.model.path))
            raise UsageError(
                "draft-mtp: the model was loaded without its MTP heads",
                "start with --spec-type draft-mtp",
            )

    def limited(self, spec: SpecSettings) -> tuple[SpecSettings, tuple[str, ...]]:
        """`spec` as it can run on this target, and what a user should know of it.

        Where tokens are taken back by snapshots of a recurrent state, their memory bounds K; a
        chain of MTP heads drafts one token with each.
        """
        limited, notes = limit_drafts(spec)
        longest = self._longest if registry.needs_heads(spec) else None
        if longest is not None and not registry.needs_draft_model(spec):
            limited, more = _capped(limited, longest)
            notes += more
        limited, bounded_by_block = layers.within_block(limited, self.layer_draft)
        notes = (*notes, *bounded_by_block)
        wanted = registry.k_max(limited)
        most = self.model.most_snapshots if wanted else None
        if most is None:
            return limited, notes
        arch, size = self.model.arch, format_bytes(self.model.snapshot_bytes)
        if not most:
            return limited, (
                *notes,
                f"{arch}: a rejected draft costs a second pass, for its recurrent state can only "
                "be put back to before the draft",
            )
        if wanted <= most:
            return limited, notes
        bounded, more = limit_drafts(dataclasses.replace(limited, k=most))
        n_max = min(limited.draft.n_max, most)
        n_min = min(limited.draft.n_min, n_max)
        draft = dataclasses.replace(limited.draft, n_max=n_max, n_min=n_min)
        return dataclasses.replace(bounded, draft=draft), (
            *notes,
            *more,
            f"drafts of at most {most} tokens: for each, {arch} keeps a snapshot of its recurrent "
            f"state, {size}",
        )

    def uses_draft_model(self, spec: SpecSettings) -> bool:
        """`auto` takes a draft model where one is named, and does without where none is."""
        optional = "auto" in spec.types and self.has_draft
        return optional or registry.needs_draft_model(spec)

    def uses_heads(self, spec: SpecSettings) -> bool:
        """Do drafts of `spec` come from MTP heads, or from a draft that reads layers?"""
        if registry.needs_layers(spec) or ("auto" in spec.types and self.layer_draft is not None):
            return True
        optional = "auto" in spec.types and self.has_heads
        return (optional and not self.uses_draft_model(spec)) or registry.needs_heads(spec)

    def resources(self, spec: SpecSettings, costs: CostCurve, own: CostCurve) -> Resources:
        """What drafters of `spec` decode with; `costs` of the target, and the draft's `own`."""
        found = Resources(self.model.n_vocab, self.draft_context, costs, own)
        follower = self.heads if self.uses_heads(spec) else None
        if isinstance(follower, BlockDraft):
            return dataclasses.replace(found, block=follower)
        return dataclasses.replace(found, heads=follower)

    def use_for(self, spec: SpecSettings) -> list[str]:
        """Open what a (limited) spec drafts with, if it is not open; says what it opened."""
        said: list[str] = []
        if self.uses_draft_model(spec) and self.draft_context is None:
            self._open_draft()
            said.append(f"opened the draft model {self.draft_path and self.draft_path.name}")
        if self.uses_heads(spec) and self.heads is None:
            try:
                if self.layer_draft is not None:
                    self._open_layers(self.layer_draft)
                else:
                    self._open_heads(spec.draft.n_max)
            except ModelError as error:
                named = self.layer_draft is not None or self._head_file == self.draft_path
                if named or registry.needs_heads(spec):
                    raise
                self._without_heads(error)
        return said

    def widen(self, k: int) -> list[str]:
        """Room for drafts of `k` tokens, in a new and empty context; says if it made one."""
        if k <= self.k_max:
            return []
        old = self.context
        self._context = self.new_context(k + 1)
        old.feed(None)
        if self.heads is not None and self.heads.borrows:
            self.heads.close()  # opened beside the old one: `start` opens it again
        old.close()
        self.k_max = k
        return [f"reopened the context for drafts of {k} tokens"]

    def new_context(self, rows: int) -> Context:
        """Another memory of the target, on the same clock; who asks for it closes it."""
        return Context(
            self.model,
            self._settings,
            self._settings.target,
            threads=self._threads,
            rows=rows,
            cancel=self._cancel,
            clock=self._clock,
        )

    def _open_heads(self, k: int) -> None:
        own = self._head_file == self.model.path
        self.heads = heads.open_heads(
            self.model if own else self._load_draft(trunk=False),
            self.model,
            self._settings,
            k,
            self._threads,
            self._cancel,
            self._clock,
        )
        self._try_beside()

    def _open_layers(self, draft: LayerDraft) -> None:
        check_fits(draft, self.model)
        self.heads = layers.open_follower(
            draft,
            self._load_draft(),
            self.model,
            self._settings,
            self._threads,
            self._cancel,
            self._clock,
        )
        self._try_beside()

    def _try_beside(self) -> None:
        """Where its native context is opened beside the target's: what keeps it from that is told
        now.
        """
        beside = self.layer_draft is not None or isinstance(self.heads, Assistant)
        if self._context is not None and self.heads is not None and beside:
            self._context.feed(self.heads)
            self._context.feed(None)

    def _load_draft(self, *, trunk: bool = True) -> Model:
        assert self.draft_path is not None
        model = Model(self.draft_path, self._settings.draft, heads=not trunk, trunk=trunk)
        difference = first_difference(self.model.vocabulary(), model.vocabulary())
        if difference is not None:
            model.close()
            raise PairError(
                f"{model.path.name} cannot draft for {self.model.path.name}: {difference.reason}",
                "a draft must share the target's vocabulary: take one of the same family",
            )
        self.draft_model = model
        return model

    def _open_draft(self) -> None:
        self.draft_context = Context(
            self._load_draft(),
            self._settings,
            self._settings.draft,
            threads=self._threads,
            rows=1,
            lazy=True,
            cancel=self._cancel,
            clock=self._clock,
        )

    def clear(self) -> None:
        """Forget every text."""
        self.context.clear()
        if self.draft_context is not None:
            self.draft_context.clear()

    def close(self) -> None:
        """Contexts before their models; may be called twice."""
        for memory in (self.heads, self._context, self.draft_context):
            if memory is not None:
                memory.close()
        self.heads = self._context = self.draft_context = None
        for model in (self.draft_model, self.model):
            if model is not None:
                model.close()


def _capped(spec: SpecSettings, longest: int) -> tuple[SpecSettings, tuple[str, ...]]:
    """Drafts of heads no longer than there are heads, and the note that says so."""
    draft = spec.draft
    if draft.n_max <= longest:
        return spec, ()
    draft = dataclasses.replace(draft, n_max=longest, n_min=min(draft.n_min, longest))
    note = f"draft-mtp drafts at most {longest} tokens, one with each of the MTP heads"
    return dataclasses.replace(spec, draft=draft), (note,)
