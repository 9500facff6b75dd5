"""The speed of one configuration: what its passes read, and where its acceptance is from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specctl.enginefacts import BLOCK_USUAL
from specctl.plan.acceptance import expected_acceptance, expected_gain
from specctl.plan.budget import Budget, Fit
from specctl.plan.catalog import Catalog, Selection
from specctl.plan.memory import most_kept
from specctl.plan.profile import LOOKUPS, Model, ModelFile
from specctl.plan.quality import is_low_bit
from specctl.plan.speed import Load, Pace, Parts, Prediction, from_speedup, predict

BLOCK_DRAFTERS = frozenset({"draft-dflash", "draft-dspark"})
NGRAM_K = 8  # rows priced for an n-gram draft; hits are longer only on copied text
MODEL_K_MAX = 8
MOST_BLOCK_LAYERS = 8
OUTPUT_HEAD_BYTES = 210 / 256  # a weight of an output head in Q6_K, as llama.cpp's quants keep it


@dataclass(frozen=True, slots=True)
class Outlook:
    """The estimate, and the sentence that says what acceptance or gain it rests on. `best_k` is K*
    of the same estimate, 0 where drafting does not pay; None where no formula gives it.
    """

    prediction: Prediction
    source: str
    best_k: int | None = None


def expert_bytes(model: Model, size: int) -> int:
    """Bytes of a file that are routed experts.

    From the tensor sizes where a profile has them; else from the parameter counts: total P and
    active A with e of E experts used give X = (P - A) / (1 - e/E) expert parameters.
    """
    shape = model.shape
    if shape is None or not shape.n_expert:
        return 0
    if model.expert_share is not None:
        return round(size * model.expert_share)
    used = shape.n_expert_used / shape.n_expert
    share = (model.params - model.params_active) / (1 - used) / model.params
    return round(size * min(share, 1.0))


def default_k(selection: Selection) -> tuple[int | None, str]:
    """Most tokens per cycle for a configuration where nobody says it, and what that rests on.

    The one source for `recommend`, chat, bench and the commands of other engines; None where the
    drafter's own default holds.
    """
    if selection.method == "none":
        return 0, "nothing is drafted"
    if selection.k is not None:
        return selection.k, "what was asked for"
    draft = selection.draft
    if draft is None or draft.k is None:
        return None, "the profile has no advice: the drafter's own default"
    return draft.k, f"the profile's advice for {selection.method}"


def draft_length(selection: Selection) -> int:
    """Tokens a draft may have, for which memory and speed are priced; 0 for none.

    In specctl no more than the snapshots of a recurrent state that the engine would keep.
    """
    if selection.method == "none":
        return 0
    k, _ = default_k(selection)
    k = NGRAM_K if k is None else k
    most = snapshot_limit(selection) if selection.in_process else None
    return k if most is None else min(k, most)


def snapshot_limit(selection: Selection) -> int | None:
    """Snapshots that the engine would keep of the target's state; None where it keeps none."""
    shape = selection.model.shape_of(selection.file)
    if shape is None:
        return None
    return most_kept(shape, selection.file.size or 0, loads_heads(selection)) or None


def loads_heads(selection: Selection) -> bool:
    """Are the MTP layers of the target's file loaded? By `auto`, too, where it can run them."""
    if selection.method in (*LOOKUPS, "auto"):
        return selection.own_heads
    return selection.draft is not None and selection.draft.embedded


def outlook(
    catalog: Catalog, selection: Selection, budget: Budget, use: str, found: Fit
) -> Outlook | None:
    """The speed of a configuration at its place; None where nothing was measured to go by."""
    target = target_loads(selection.model, selection.file, budget, found)
    method = selection.method
    if method == "none":
        return Outlook(predict(target, (), (0.0, 0.0), 0), "no draft")
    k = draft_length(selection)
    draft, block = draft_loads(selection, budget, found), block_rows(selection, k)
    gain = expected_gain(catalog, selection.model, method, device_class(budget, found), use)
    if gain is not None:
        return Outlook(from_speedup(target, gain.span, k, draft, block), gain.source)
    acceptance = expected_acceptance(catalog, selection.model, method, use)
    if acceptance is None:
        return None
    prediction = predict(target, draft, acceptance.span, k, block)
    best = predict(target, draft, acceptance.span, None, block, MODEL_K_MAX).k
    return Outlook(prediction, acceptance.source, best)


def device_class(budget: Budget, found: Fit) -> str:
    """Which evidence rows compare: cpu, offload, apple or gpu."""
    if found.place == "CPU":
        return "cpu"
    if found.place != "GPU":
        return "offload"
    return "apple" if budget.gpu_pace is not None and budget.gpu_pace.kind == "apple" else "gpu"


def _pace(budget: Budget, found: Fit) -> Pace:
    if found.place == "CPU" or budget.gpu_pace is None:
        return budget.cpu_pace
    return budget.gpu_pace


def target_loads(model: Model, file: ModelFile, budget: Budget, found: Fit) -> Parts:
    """What a pass of the target reads, at each place; no more than the active parameters."""
    shape, size = model.shape, file.size or 0
    assert shape is not None
    experts = expert_bytes(model, size)
    dense = float(size - experts)
    if not experts and model.params_active < model.params:
        dense = size * model.params_active / model.params  # embeddings that are only looked up
    low_bit = is_low_bit(file.quant)
    pace = _pace(budget, found)
    in_ram = experts * found.cpu_moe / shape.n_layer
    whole = Load(
        dense=dense,
        kv=found.kv_read,
        experts=experts - in_ram,
        n_expert=shape.n_expert,
        n_expert_used=shape.n_expert_used,
        n_layer=shape.n_layer,
        low_bit=low_bit,
        hybrid=shape.is_hybrid,
    )
    if not in_ram:
        return ((whole, pace),)
    apart = Load(0.0, 0.0, in_ram, shape.n_expert, shape.n_expert_used, 0, low_bit)
    return (whole, pace), (apart, budget.cpu_pace)


def draft_loads(selection: Selection, budget: Budget, found: Fit) -> Parts:
    """What one pass of the drafter reads; n-grams read nothing that counts.

    A block draft: all of its file, and (an assumption) the target's output tensor: a file without
    one of its own decodes with that, and no profile tells.
    """
    pace = _pace(budget, found)
    shape = selection.model.shape
    if selection.draft_model is not None and selection.draft_file is not None:
        small = selection.draft_model
        return target_loads(small, selection.draft_file, budget, found.alone())
    head = shape.n_vocab * shape.n_embd * OUTPUT_HEAD_BYTES if shape is not None else 0.0
    if selection.draft_file is not None and selection.draft_file.size is not None:
        size = float(selection.draft_file.size)
        if selection.method in BLOCK_DRAFTERS:
            return ((Load(size + head, n_layer=block_layers(selection)), pace),)
        return ((Load(size, n_layer=1), pace),)
    if selection.method == "draft-mtp" and shape is not None:
        layer = (selection.file.size or 0) / max(1, shape.n_layer + shape.n_nextn)
        share = shape.n_expert_used / shape.n_expert if shape.n_expert else 1.0
        return ((Load(layer * share + head, n_layer=1), pace),)
    return ()


def block_rows(selection: Selection, k: int) -> Callable[[int], int] | None:
    """Rows of a block draft's pass by draft length, for drafts of at most `k`; None of any other.

    The engine runs a whole block, whatever is drafted of it: no profile tells its size, so
    llama.cpp's default, or more where `k` needs it. llama-server runs what it drafts and one more.
    """
    if selection.method not in BLOCK_DRAFTERS:
        return None
    whole = max(BLOCK_USUAL, k + 1)
    return (lambda _: whole) if selection.in_process else (lambda n: n + 1)


def block_layers(selection: Selection) -> int:
    """Layers of a block draft, an estimate: its file is so many layers of the target's, 8 at most.

    An output tensor of its own, or fewer bits, make it a layer or two off.
    """
    model, size = selection.model, selection.file.size or 0
    shape, file = model.shape_of(selection.file), selection.draft_file
    if shape is None or file is None or not file.size or not size:
        return 1
    layer = (size - expert_bytes(model, size)) / max(1, shape.n_layer)
    return min(MOST_BLOCK_LAYERS, max(1, round(file.size / max(layer, 1.0))))
