"""What the installed engine is, as a plain value: the knowing wing never loads llama.cpp itself."""

from __future__ import annotations

from dataclasses import dataclass

# Architectures of llama.cpp 0c1e570 with a graph for an MTP head that takes the target's hidden
# states as they are handed over here. (deepseek4 hands over other rows; glm5-next has no graph.)
MTP_ARCHES = frozenset(
    (
        "bailingmoe3",
        "cohere2moe",
        "deepseek2",
        "deepseek32",
        "glm-dsa",
        "glm4moe",
        "hy_v3",
        "mimo2",
        "nemotron_h_moe",
        "qwen35",
        "qwen35moe",
        "qwen3next",
        "step35",
    )
)
# Of these, the ones whose graph runs each of several heads; the rest abort where there are two.
MTP_CHAINS = frozenset(("hy_v3", "mimo2", "step35"))
# A model of this architecture drafts from the KV cache of a target of that one.
ASSISTANT, ASSISTANT_TARGET = "gemma4-assistant", "gemma4"
# Architectures whose graphs record what their layers read (llama.cpp 0c1e570); others abort.
LAYER_TAPS = frozenset(
    (
        "bailingmoe3",
        "deepseek4",
        "gemma4",
        "gpt-oss",
        "hunyuan-dense",
        "hunyuan_vl",
        "lfm2",
        "lfm2moe",
        "llama",
        "mimo2",
        "minimax-01",
        "minimax-m2",
        "muse-glimmer",
        "nanbeige",
        "nemotron_h",
        "nemotron_h_moe",
        "qwen3",
        "qwen35",
        "qwen35moe",
        "qwen3moe",
        "qwen3next",
        "qwen4exp",
    )
)
# Of these, the ones that also give what leaves the last layer; the rest would give zeros.
LAYER_TAPS_LAST = frozenset(
    (
        "bailingmoe3",
        "gemma4",
        "gpt-oss",
        "mimo2",
        "nemotron_h",
        "nemotron_h_moe",
        "qwen35",
        "qwen35moe",
        "qwen3next",
    )
)
AUTO_K_MAX = 48  # most tokens that `auto` drafts, where no --k is given
EAGLE3_BATCH = 32  # rows of a pass of an EAGLE-3 head: llama.cpp reserves logits for all of them
BLOCK_BATCH = 32  # the same of a block draft, or its block where that is longer
BLOCK_MOST = 128  # rows of a block that is run: logits of all of them are reserved
BLOCK_USUAL = 16  # tokens of a block, llama.cpp's, where a DFlash file does not say
# llama.cpp gives a graph max(1024, 8 for each tensor) nodes, and aborts where it has more. Counted
# in its source: what a pass takes besides its layers, each layer, each position of a Markov chain,
# with a vocabulary of its own, with confidences. (One layer with confidences: 64 ran, 80 aborted.)
_NODES, _NODES_A_TENSOR = 1024, 8
_OTHER_NODES, _LAYER_NODES, _CHAIN_NODES, _MAPPED_NODES, _SURE_NODES = 64, 60, 7, 5, 8
_SHARE, _LEAST = 1 / 8, 256 << 20  # of the weights' bytes; bytes


def most_snapshots(weights: int, state: float) -> int:
    """Snapshots of a recurrent state worth their memory: an eighth of the weights' bytes, at least
    256 MiB, hold them and the state itself.

    Args:
        weights: bytes of all tensors.
        state: bytes of one state.
    """
    return int(max(_LEAST, _SHARE * weights) / max(state, 1.0)) - 1


def room_for_chain(
    size: int, n_layer: int, n_tensors: int, *, mapped: bool, confident: bool
) -> bool:
    """Has llama.cpp's graph the nodes for a DSpark draft's chain over a block of `size` rows?

    Args:
        size: rows, all of the block.
        n_layer: layers of the draft.
        n_tensors: tensors of its file.
        mapped: it has a vocabulary of its own (d2t).
        confident: it has a confidence head.
    """
    chain = _CHAIN_NODES + _MAPPED_NODES * mapped + _SURE_NODES * confident
    nodes = _OTHER_NODES + _LAYER_NODES * n_layer + chain * size
    return nodes <= max(_NODES, _NODES_A_TENSOR * n_tensors)


@dataclass(frozen=True, slots=True)
class EngineDevice:
    """One device as llama.cpp lists it. `kind`: cpu, gpu, igpu, accel. Memory in bytes."""

    name: str
    description: str
    kind: str
    memory_free: int
    memory_total: int
    device_id: str | None  # PCI id, where the backend tells


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The installed llama-cpp-python build. `backends` are its registries: CPU, CUDA, Vulkan, …"""

    version: str
    backends: tuple[str, ...]
    devices: tuple[EngineDevice, ...]
    architectures: frozenset[str] | None  # None where the build does not tell
    gpu_offload: bool
    system_info: str
