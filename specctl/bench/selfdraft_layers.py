"""Layers that a draft of the model itself may leave out, and why not."""

from __future__ import annotations

import re

from specctl.errors import UsageError
from specctl.gguf.facts import ModelFacts

# Architectures whose graph treats every layer alike (llama.cpp 0c1e570, src/models): elsewhere the
# number of a layer decides what it does (windows, positions, experts), and dropping one moves them.
UNIFORM = frozenset(("llama", "qwen2", "qwen3"))
_LAYER = re.compile(r"blk\.(\d+)\.")


def layer_of(tensor: str) -> int | None:
    """The layer of a tensor's name."""
    match = _LAYER.match(tensor)
    return int(match[1]) if match else None


def layers_to_drop(facts: ModelFacts, count: int) -> tuple[int, ...]:
    """`count` layers in the middle, ascending; the first and the last stay.

    Raises:
        UsageError: too many, or layers of this model are not alike.
    """
    total = facts.shape.n_layer
    if not 1 <= count <= total - 2:
        raise UsageError(
            f"--drop-layers {count}: {total} layers are there, and the first and the last stay",
            f"1 … {total - 2}" if total > 2 else "re-quantising works: leave the flag out",
        )
    why = _unlike(facts)
    if why:
        raise UsageError(
            f"--drop-layers: {why}", "re-quantising works on every model: leave the flag out"
        )
    first = (total - count) // 2
    return tuple(range(first, first + count))


def _unlike(facts: ModelFacts) -> str:
    """Why its layers are not alike, as far as header and architecture tell; else empty."""
    assert facts.header is not None
    arch = facts.arch
    if arch not in UNIFORM:
        known = ", ".join(sorted(UNIFORM))
        return f"{arch} is not known to treat its layers alike, as {known} do"
    layers = [one for one in facts.shape.layers if one != facts.shape.layers[0]]
    if layers or facts.shape.n_nextn or facts.shape.is_moe:
        return "what its layers hold differs from layer to layer"
    for key, value in facts.header.metadata.items():
        if key.startswith(f"{arch}.") and isinstance(value, list | tuple):
            return f"{key} is a list, one value a layer, which llama.cpp would not cut"
    shapes: dict[int, set[tuple[str, tuple[int, ...]]]] = {}
    for tensor in facts.header.tensors:
        layer = layer_of(tensor.name)
        if layer is not None:
            name = tensor.name.split(".", 2)[2]
            shapes.setdefault(layer, set()).add((name, tensor.shape))
    if len(facts.sources) == 1 and len({frozenset(one) for one in shapes.values()}) > 1:
        return "the tensors of its layers have different shapes"
    return ""


def dropping_words(dropped: tuple[int, ...]) -> str:
    """What is dropped, and what was measured of it."""
    which = f"{dropped[0]}" if len(dropped) == 1 else f"{dropped[0]} to {dropped[-1]}"
    return (
        f"leaves out layer{'s' * (len(dropped) > 1)} {which}, counted from 0. Of models that were "
        "not trained for it (LayerSkip) this did not pay in any of our measurements: the choices "
        "differ sooner than steps get cheaper (docs/make-draft.md)"
    )
