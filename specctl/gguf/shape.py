"""What memory and speed formulas need to know of a model, from a header or from a profile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """What one layer keeps per sequence: KV elements per token, and bytes of recurrent state.

    `sliding` layers keep only the window. A layer can keep KV, a state, both, or nothing.
    """

    kv_k: int = 0
    kv_v: int = 0
    sliding: bool = False
    recurrent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's dimensions. Counts are of the trunk; the MTP layers (`n_nextn`) come on top.

    `n_attention` full-attention layers, `n_swa` sliding-window ones (`window` tokens), and
    `n_recurrent` recurrent ones add up to `n_layer` in most models. `kv_width_k`/`kv_width_v` are
    elements per token and full-attention layer (n_head_kv x head_dim; the latent width for MLA,
    whose value width is 0 where llama.cpp keeps no V cache); `swa_width_*` the same for
    sliding-window layers. `recurrent_bytes` is the f32 state of all recurrent layers for one
    sequence, bytes. `layers`, where known (from a header), says it layer by layer and overrides
    these totals; MTP layers are not in it.
    """

    arch: str
    n_layer: int
    n_embd: int
    n_head: int
    n_vocab: int
    context_length: int
    kv_width_k: int
    kv_width_v: int
    n_attention: int
    n_swa: int = 0
    window: int = 0
    swa_width_k: int = 0
    swa_width_v: int = 0
    n_recurrent: int = 0
    recurrent_bytes: int = 0
    n_ff: int = 0
    n_expert: int = 0
    n_expert_used: int = 0
    n_nextn: int = 0  # MTP layers present in the file (their tensors, not only the key)
    layers: tuple[LayerMemory, ...] = ()
    n_ff_exp: int = 0  # width of one routed expert
    n_ff_shared: int = 0  # width of the shared experts together
    head_dim: int = 0  # of queries and keys; 0: n_embd / n_head
    kv_lora: int = 0  # MLA: the latent rank
    ssm_inner: int = 0  # recurrent layers: width of the inner state
    ssm_conv: int = 0  # recurrent layers: channels of the convolution

    @property
    def is_moe(self) -> bool:
        """Has routed experts."""
        return self.n_expert > 0

    @property
    def is_hybrid(self) -> bool:
        """Keeps a recurrent state, which cannot be cut like a KV cache."""
        return self.n_recurrent > 0
