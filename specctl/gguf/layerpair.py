"""EAGLE-3, DFlash and DSpark drafts: why one cannot draft for a target, from two headers.

The same conditions as the engine's (`llama.layerdraft`, `llama.blocks`): most are what llama.cpp
aborts the process on. Two things no header says: the token ids inside `d2t`, which the engine reads
before it loads the file, and whether every other tensor is there with the right shape, which
llama.cpp looks at when it loads it.
"""

from __future__ import annotations

from collections.abc import Iterator

from specctl.enginefacts import LAYER_TAPS, LAYER_TAPS_LAST, room_for_chain
from specctl.gguf.facts import ModelFacts
from specctl.gguf.layers import Keys
from specctl.vocabulary import first_difference

EAGLE3_READS = 3  # layers of the target: llama.cpp fuses that many
UNSEEN_IDS = (
    "the draft has a vocabulary of its own: chat looks at its token ids (d2t) too, which no header "
    "holds"
)


def unfit(target: ModelFacts, draft: ModelFacts) -> Iterator[str]:
    """Reasons why the draft cannot serve this target; none where it can."""
    yield from _layers(target, draft)
    yield from _tensors(draft)
    yield from _one_layer(draft) if draft.kind == "eagle3" else _block(draft)
    yield from _widths(target, draft)
    yield from _vocabulary(target, draft)


def unseen(draft: ModelFacts) -> Iterator[str]:
    """What chat looks at besides, where that can still refuse the draft."""
    if draft.outer.get("d2t") == "i64":
        yield UNSEEN_IDS


def _layers(target: ModelFacts, draft: ModelFacts) -> Iterator[str]:
    if target.arch not in LAYER_TAPS:
        lacking = f"layer outputs of {target.arch}"
        yield f"llama.cpp does not hand out {lacking}, which {draft.kind} reads"
    read, there = draft.target_layers, target.shape.n_layer
    if not read:
        yield "the draft does not say which layers of a target it reads (target_layers)"
    elif draft.kind == "eagle3" and len(read) != EAGLE3_READS:
        yield f"the draft reads {len(read)} layers of a target, an EAGLE-3 head reads three"
    wrong = [layer for layer in read if not 0 <= layer <= there]
    if wrong:
        yield f"the draft reads layer {wrong[0]}, the target has {there}"
    elif there in read and target.arch in LAYER_TAPS - LAYER_TAPS_LAST:
        yield f"llama.cpp does not give out what leaves the last layer of {target.arch}"


def _tensors(draft: ModelFacts) -> Iterator[str]:
    if "fc.weight" not in draft.outer:
        yield "the draft has no tensor that fuses the target's layers (fc.weight)"
    if draft.kind == "dspark" and "markov_w2.weight" not in draft.outer:
        yield "the draft's chain lacks its second tensor (markov_w2.weight)"
    if draft.header is not None and not draft.hyper_connections:  # those have other graphs
        keys = Keys(draft.header, draft.arch)
        ours, theirs = (keys.number(f"attention.{name}_length") for name in ("key", "value"))
        if ours != theirs:
            yield f"the draft's keys are {ours} wide and its values {theirs}"
    kind = draft.outer.get("d2t")
    if kind is None:
        return
    if kind != "i64":
        yield f"the token ids of the draft's own vocabulary (d2t) are {kind}, not 64-bit numbers"
    if _borrows_output(draft):
        yield "the draft has a vocabulary of its own (d2t), but no output tensor"


def _one_layer(draft: ModelFacts) -> Iterator[str]:
    if draft.shape.n_layer != 1:
        yield f"the draft has {draft.shape.n_layer} layers, an EAGLE-3 head has one"


def _block(draft: ModelFacts) -> Iterator[str]:
    """What a draft of whole blocks says of them."""
    size, mask, spark = draft.block_size or 0, draft.mask_token, draft.kind == "dspark"
    if size < (1 if spark and draft.from_anchor else 2):
        yield f"the draft has blocks of {size} tokens (block_size), which leave none to guess"
    elif spark and not draft.hyper_connections and not _has_room(draft, size):
        yield f"llama.cpp has no room for the draft's chain over blocks of {size} tokens"
    if mask is None:
        yield "the draft names no mask token (mask_token_id)"
    elif draft.tokenizer is not None and mask >= draft.tokenizer.vocabulary.size:
        size = draft.tokenizer.vocabulary.size
        yield f"the draft's mask token {mask} is outside its vocabulary of {size}"


def _has_room(draft: ModelFacts, size: int) -> bool:
    mapped, confident = "d2t" in draft.outer, "conf_proj.weight" in draft.outer
    n_layer, n_tensors = draft.shape.n_layer, draft.n_tensors
    return room_for_chain(size, n_layer, n_tensors, mapped=mapped, confident=confident)


def _widths(target: ModelFacts, draft: ModelFacts) -> Iterator[str]:
    ours, own = target.shape.n_embd, draft.shape.n_embd
    made_for = (draft.target_n_embd or 0) if draft.kind == "eagle3" else own
    if made_for != ours:
        yield f"the draft was made for a target of width {made_for}, this one has {ours}"
    elif (not draft.own_embedding or _borrows_output(draft)) and own != ours:
        yield f"the draft is {own} wide and has no embedding or output tensor of its own"


def _vocabulary(target: ModelFacts, draft: ModelFacts) -> Iterator[str]:
    if target.tokenizer is None or draft.tokenizer is None:
        return
    ours, theirs = target.tokenizer.vocabulary, draft.tokenizer.vocabulary
    difference = first_difference(ours, theirs)
    if difference is not None:
        yield difference.reason
    elif _borrows_output(draft) and ours.size != theirs.size:
        yield (
            f"the draft has no output tensor, and a vocabulary of {theirs.size} tokens where the "
            f"target's has {ours.size}"
        )
    mask = draft.mask_token or 0
    if draft.kind != "eagle3" and not draft.own_embedding and mask >= ours.size:
        yield f"the draft's mask token {mask} is outside the target's vocabulary of {ours.size}"


def _borrows_output(draft: ModelFacts) -> bool:
    """Decodes with the target's output tensor; a block draft takes its own embedding before."""
    return not draft.own_output and (draft.kind == "eagle3" or not draft.own_embedding)
