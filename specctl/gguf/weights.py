"""Bytes of a model's weights by the places llama.cpp can put them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes. `layers[i]` is block i with its routed experts, MTP blocks last.

    `experts[i]` is the part of `layers[i]` that `n_cpu_moe` moves to RAM; `embedding` stays in RAM
    always; `output` goes with the last layer. `tied` models have no output matrix of their own:
    llama.cpp keeps a second copy of the embedding on the GPU for it. `exact` is False where a total
    was spread evenly over the layers.
    """

    layers: tuple[int, ...]
    experts: tuple[int, ...]
    embedding: int
    output: int
    tied: bool = False
    exact: bool = True

    @property
    def total(self) -> int:
        """Bytes in the file."""
        return sum(self.layers) + self.embedding + self.output


def spread_evenly(
    total: int, n_layer: int, n_embd: int, n_vocab: int, expert_share: float = 0.0
) -> Weights:
    """Weights of which only the total is known, as ≈ equal layers.

    Embedding and output matrix together are taken as 2 x n_embd x n_vocab weights of 4.8 bits, at
    most half of the file. `expert_share` of each layer is routed experts.

    Raises:
        ValueError: no layers.
    """
    if n_layer < 1:
        raise ValueError("a model has at least one layer")
    matrix = n_embd * n_vocab
    ends = min(total // 2, round(matrix * 2 * 0.6))  # about 4.8 bits a weight
    per_layer, rest = divmod(total - ends, n_layer)
    layers = (per_layer + rest, *(per_layer,) * (n_layer - 1))
    return Weights(
        layers=layers,
        experts=tuple(int(layer * expert_share) for layer in layers),
        embedding=ends // 2,
        output=ends - ends // 2,
        exact=False,
    )
