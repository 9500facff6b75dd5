"""What memory has to hold for a selection: the target, and what drafts beside it."""

from __future__ import annotations

from dataclasses import replace

from specctl.enginefacts import ASSISTANT_TARGET, BLOCK_BATCH, EAGLE3_BATCH
from specctl.gguf.shape import Shape
from specctl.plan.budget import Held
from specctl.plan.catalog import Selection
from specctl.plan.outlook import (
    BLOCK_DRAFTERS,
    block_layers,
    draft_length,
    expert_bytes,
    loads_heads,
)

ENCODERS = BLOCK_DRAFTERS | {"draft-eagle3"}


def held_parts(selection: Selection) -> tuple[Held, Held | None]:
    """What memory has to hold: the target, and the draft with a context of its own."""
    model, size = selection.model, selection.file.size or 0
    shape = model.shape_of(selection.file)
    assert shape is not None  # candidates.py saw to it
    k = draft_length(selection)
    target = Held(
        shape=shape,
        weights=size,
        experts=expert_bytes(model, size),
        rows=k + 1,
        snapshots=k if shape.is_hybrid else 0,
        mtp=loads_heads(selection),
    )
    file = selection.draft_file
    if file is None or file.size is None:
        return target, None
    if selection.draft_model is not None:
        small = selection.draft_model.shape_of(file)
        assert small is not None  # candidates.py saw to it
        return target, Held(small, file.size)  # opened for one row: it keeps no snapshots
    block = selection.method in BLOCK_DRAFTERS
    head = head_shape(shape, block_layers(selection) if block else 1)
    if not selection.in_process:
        encoder = selection.method in ENCODERS
        return target, Held(head, file.size, rows=k, encoder=encoder)
    if selection.method == "draft-mtp" and shape.arch == ASSISTANT_TARGET:
        return target, Held(assistant_shape(shape), file.size, mtp=True, ubatch=1)
    if selection.method == "draft-mtp":
        return target, Held(mtp_shape(shape), file.size, rows=k + 1, mtp=True)
    ubatch = max(BLOCK_BATCH, k + 1) if block else EAGLE3_BATCH
    return target, Held(head, file.size, encoder=True, ubatch=ubatch)


def mtp_shape(shape: Shape) -> Shape:
    """An MTP head in a file of its own: the target's dimensions with no trunk, as in its header."""
    return replace(
        shape,
        n_layer=0,
        n_attention=0,
        n_swa=0,
        n_recurrent=0,
        recurrent_bytes=0,
        n_nextn=1,
        layers=(),
    )


def assistant_shape(shape: Shape) -> Shape:
    """A Gemma 4 assistant: as such a head, but the KV cache that it reads is the target's."""
    return replace(mtp_shape(shape), kv_width_k=0, kv_width_v=0)


def head_shape(shape: Shape, layers: int = 1) -> Shape:
    """A head in a file of its own, priced as attention layers of the target's (an estimate)."""
    return replace(
        shape,
        n_layer=layers,
        n_attention=layers,
        n_swa=0,
        n_recurrent=0,
        recurrent_bytes=0,
        n_expert=0,
        n_nextn=0,
        layers=(),
    )
