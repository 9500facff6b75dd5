"""Spec types by name: what users write after `--spec-type`, and how each drafter is made."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

from specctl.drafters.auto import K_MAX as AUTO_K_MAX
from specctl.drafters.auto import PATH_FLOOR, Auto
from specctl.drafters.base import Drafter
from specctl.drafters.block_draft import DFLASH, DSPARK, BlockContext, BlockModel
from specctl.drafters.chain import Chain
from specctl.drafters.costs import CostCurve
from specctl.drafters.guard import Guard
from specctl.drafters.heads_model import HeadsContext, HeadsModel
from specctl.drafters.model_source import BlockSource, ModelSource
from specctl.drafters.ngram_cache import NgramCache
from specctl.drafters.ngram_map import NgramMapK, NgramMapK4V
from specctl.drafters.ngram_mod import NgramMod
from specctl.drafters.ngram_simple import NgramSimple
from specctl.drafters.small_model import (
    EAGLE3,
    MTP,
    NAME,
    DraftContext,
    LayerDraftModel,
    SmallModel,
)
from specctl.drafters.suffix import NgramSuffix
from specctl.errors import UsageError
from specctl.settings import DraftSettings, SpecSettings

LAYER_FILES = {  # what drafts with a file that reads the target's layers, in words
    EAGLE3: "an EAGLE-3 head",
    DFLASH: "a DFlash draft",
    DSPARK: "a DSpark draft",
}
_CACHE_K_MAX = 8  # llama.cpp's fixed draft length
SUFFIX_K_MAX = 48


@dataclass(frozen=True, slots=True)
class Resources:
    """What the session can hand to a drafter. `n_vocab` is the target's.

    The cost curves, of the target and of the draft model, are about the machine: they outlive the
    drafters.
    """

    n_vocab: int
    draft_context: DraftContext | None = None
    costs: CostCurve = field(default_factory=CostCurve)
    draft_costs: CostCurve = field(default_factory=CostCurve)
    heads: DraftContext | None = None  # of the target, or a draft that reads its layers
    block: BlockContext | None = None  # such a draft that guesses a block at once

    @property
    def heads_type(self) -> str:
        """The spec type that drafts with `heads` or `block`."""
        return str(getattr(self.heads or self.block, "spec_type", MTP))


@dataclass(frozen=True, slots=True)
class SpecType:
    """One method. `k_max` is its largest draft under these settings, tokens.

    `heads`: it lives on the target's own passes, by MTP heads, or as `layers` by a draft file of
    that kind, which reads what the target's layers read.
    """

    name: str
    summary: str
    k_max: Callable[[SpecSettings], int]
    make: Callable[[SpecSettings, Resources], Drafter]
    draft_model: bool = False
    heads: bool = False
    layers: str = ""


def _small_model(spec: SpecSettings, resources: Resources) -> Drafter:
    assert resources.draft_context is not None  # the session opens it where one is needed
    return SmallModel(resources.draft_context, spec.draft, resources.n_vocab)


def _mtp(spec: SpecSettings, resources: Resources) -> Drafter:
    assert resources.heads is not None
    return _stepwise(MTP, resources.heads, spec.draft, resources.n_vocab)


def _eagle3(spec: SpecSettings, resources: Resources) -> Drafter:
    assert resources.heads is not None
    return LayerDraftModel(resources.heads, spec.draft, resources.n_vocab, EAGLE3)


def _block(spec: SpecSettings, resources: Resources) -> Drafter:
    assert resources.block is not None
    return BlockModel(resources.block, spec.draft, resources.n_vocab, resources.heads_type)


def _auto(spec: SpecSettings, resources: Resources) -> Drafter:
    k = spec.k or AUTO_K_MAX
    model: ModelSource | None = None
    context = resources.draft_context or resources.heads
    settings = replace(spec.draft, n_max=k, n_min=0, p_min=0.0)
    if context is None and resources.block is not None:
        block = BlockModel(resources.block, settings, resources.n_vocab, resources.heads_type)
        model = BlockSource(block, resources.draft_costs)
    elif context is not None:
        name = NAME if context is resources.draft_context else resources.heads_type
        small = _stepwise(name, context, settings, resources.n_vocab)
        model = ModelSource(small, resources.draft_costs)
    return Auto(NgramSuffix(k, PATH_FLOOR, shortest=1), model, resources.costs, k)


def _stepwise(name: str, context: DraftContext, draft: DraftSettings, n_vocab: int) -> SmallModel:
    """What drafts by steps of `context` under the spec type `name`."""
    if name == MTP:
        return HeadsModel(cast("HeadsContext", context), draft, n_vocab)
    kind = LayerDraftModel if name == EAGLE3 else SmallModel
    return kind(context, draft, n_vocab, name)


SPEC_TYPES = {
    spec_type.name: spec_type
    for spec_type in (
        SpecType(
            "ngram-simple",
            "what followed the last n tokens the last time they were seen",
            lambda spec: spec.ngram_simple.size_m,
            lambda spec, _: NgramSimple(spec.ngram_simple, spec.compat),
        ),
        SpecType(
            "ngram-map-k",
            "as ngram-simple, for n-grams that recur, with what each of them brought",
            lambda spec: spec.ngram_map_k.size_m,
            lambda spec, _: NgramMapK(spec.ngram_map_k, spec.compat),
        ),
        SpecType(
            "ngram-map-k4v",
            "up to four continuations an n-gram, the dominant one drafts",
            lambda spec: spec.ngram_map_k4v.size_m,
            lambda spec, _: NgramMapK4V(spec.ngram_map_k4v, spec.compat),
        ),
        SpecType(
            "ngram-mod",
            "a hash of the last n tokens to the next one, kept across prompts",
            lambda spec: spec.ngram_mod.n_max,
            lambda spec, _: NgramMod(spec.ngram_mod, spec.compat),
        ),
        SpecType(
            "ngram-cache",
            "counts of what followed the last four, three, two, one tokens",
            lambda spec: spec.k or _CACHE_K_MAX,
            lambda spec, _: NgramCache(spec.k or _CACHE_K_MAX, spec.compat),
        ),
        SpecType(
            "ngram-suffix",
            "the longest match of any length, by frequency and recency of what followed",
            lambda spec: spec.k or SUFFIX_K_MAX,
            lambda spec, _: NgramSuffix(spec.k or SUFFIX_K_MAX),
        ),
        SpecType(
            "draft-simple",
            "a small model of the same vocabulary drafts token by token",
            lambda spec: spec.draft.n_max,
            _small_model,
            draft_model=True,
        ),
        SpecType(
            MTP,
            "the target's own heads for the tokens after the next one",
            lambda spec: spec.draft.n_max,
            _mtp,
            heads=True,
        ),
        SpecType(
            EAGLE3,
            "a head of one layer that reads three layers of the target",
            lambda spec: spec.draft.n_max,
            _eagle3,
            heads=True,
            layers="eagle3",
        ),
        SpecType(
            DFLASH,
            "a draft that reads layers of the target guesses a block in one pass",
            lambda spec: spec.draft.n_max,
            _block,
            heads=True,
            layers="dflash",
        ),
        SpecType(
            DSPARK,
            "the same, each guess leaning on the one before it",
            lambda spec: spec.draft.n_max,
            _block,
            heads=True,
            layers="dspark",
        ),
        SpecType(
            "auto",
            "per cycle the drafter and length that pay, or none; with a draft model too",
            lambda spec: spec.k or AUTO_K_MAX,
            _auto,
        ),
    )
}


def check_types(spec: SpecSettings) -> None:
    """Raises UsageError for a name that is no spec type, with the nearest one that is."""
    for name in spec.types:
        if name != "none" and name not in SPEC_TYPES:
            near = difflib.get_close_matches(name, SPEC_TYPES, 1)
            raise UsageError(
                f"{name!r} is not a spec type" + (f"; did you mean {near[0]}?" if near else ""),
                "there is: none, " + ", ".join(SPEC_TYPES),
            )


def k_max(spec: SpecSettings) -> int:
    """The largest draft any member of the chain may make, tokens; 0 for `none`."""
    return max((SPEC_TYPES[name].k_max(spec) for name in spec.types if name != "none"), default=0)


def needs_draft_model(spec: SpecSettings) -> bool:
    """Does any member of the chain decode with a model of its own?"""
    return any(SPEC_TYPES[name].draft_model for name in spec.types if name != "none")


def needs_heads(spec: SpecSettings) -> bool:
    """Does any member of the chain decode with MTP heads of the target?"""
    kinds = [SPEC_TYPES[name] for name in spec.types if name in SPEC_TYPES]
    return any(kind.heads and not kind.layers for kind in kinds)


def needs_layers(spec: SpecSettings) -> tuple[str, ...]:
    """The members of the chain that draft with a file that reads the target's layers."""
    return tuple(name for name in spec.types if name in SPEC_TYPES and SPEC_TYPES[name].layers)


def build(spec: SpecSettings, resources: Resources) -> Drafter | None:
    """The drafter of these settings, a chain where several are named; None for plain decoding."""
    members = [SPEC_TYPES[name].make(spec, resources) for name in spec.types if name != "none"]
    if not members:
        return None
    drafter = members[0] if len(members) == 1 else Chain(members)
    guarded = spec.min_accept > 0 and "auto" not in spec.types
    return Guard(drafter, spec.min_accept) if guarded else drafter
