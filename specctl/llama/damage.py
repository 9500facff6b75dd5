"""Header values that cannot be, on which llama.cpp aborts or hangs.

Each rule is an assertion of llama.cpp 0c1e570: `load_hparams` in llama-model.cpp, and the norm and
rope of ggml-cpu/ops.cpp. A key of another type than it reads it refuses by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specctl.llama.rawheader import Reader, numbers, real, whole

MAX_LAYERS, MAX_EXPERTS = 512, 1024  # LLAMA_MAX_LAYERS, LLAMA_MAX_EXPERTS
_EPSILONS = ("layer_norm_epsilon", "layer_norm_rms_epsilon", "group_norm_epsilon")
# It takes "1 expert" in a dense model of these for none.
_ONE_IS_NONE = ("hunyuan-dense", "hunyuan_vl")
# llama_model_rope_type is NONE, or the graph adds learned positions: the width means nothing there.
_UNTURNED = frozenset(
    (
        *("gpt2", "gptj", "mpt", "refact", "bloom", "starcoder", "mamba", "mamba2", "jamba"),
        *("jina-bert-v2", "bert", "t5", "t5encoder", "jais", "rwkv6", "rwkv6qwen2", "rwkv7"),
        *("arwkv7", "wavtokenizer-dec", "nemotron_h", "nemotron_h_moe", "kimi-linear", "kimi-k3"),
        "glm5-next",
    )
)
# Each position has three coordinates, and these say which part of a head turns with which.
_SECTIONED = frozenset(
    (
        *("qwen2vl", "paddleocr", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen4exp"),
        "qwen3tts",
    )
)
_HALVES = "step35"  # its full layers turn half of the width


def found(reader: Reader, handle: Any, arch: str) -> str:
    """The first such value, with its key and limit; empty where there is none."""
    keys = _Keys(reader, handle, arch)
    for rule in (_layers, _experts, _epsilons, _rope):
        for wrong in rule(keys):
            return wrong
    return ""


class _Keys:
    """Values under `<arch>.`, typed as llama.cpp reads them."""

    def __init__(self, reader: Reader, handle: Any, arch: str) -> None:
        self._header, self.arch = (reader, handle), arch

    def count(self, name: str) -> int | None:
        return whole(*self._header, f"{self.arch}.{name}")

    def counts(self, name: str) -> tuple[int, ...]:
        """One for every layer, or one for all; empty where there is none."""
        one = self.count(name)
        return numbers(*self._header, f"{self.arch}.{name}") if one is None else (one,)

    def real(self, name: str) -> float | None:
        return real(*self._header, f"{self.arch}.{name}")

    def is_(self, name: str, value: float, limit: str) -> str:
        return f"{self.arch}.{name} is {value:g}, {limit}"


def _layers(keys: _Keys) -> Iterator[str]:
    count = keys.count("block_count")
    if count is not None and not 1 <= count <= MAX_LAYERS:
        yield keys.is_("block_count", count, f"and llama.cpp loads 1 to {MAX_LAYERS} layers")


def _experts(keys: _Keys) -> Iterator[str]:
    n = keys.count("expert_count") or 0
    used = max(keys.counts("expert_used_count"), default=0)
    groups = keys.count("expert_group_count") or 0
    groups_used = keys.count("expert_group_used_count") or 0
    if keys.arch in _ONE_IS_NONE and n <= 1:
        n = used = 0
    if n > MAX_EXPERTS:
        yield keys.is_("expert_count", n, f"and llama.cpp loads at most {MAX_EXPERTS} experts")
    if not 0 <= used <= n:
        yield keys.is_("expert_used_count", used, f"with an expert_count of {n}")
    if n and not used:
        yield keys.is_("expert_used_count", 0, f"with an expert_count of {n}")
    if groups and groups >= n:
        yield keys.is_("expert_group_count", groups, f"with an expert_count of {n}")
    if n and groups > 1 and n % groups:
        yield keys.is_("expert_group_count", groups, f"which does not divide {n} experts")
    if n and groups > 1 and not 0 < groups_used < groups:
        yield keys.is_("expert_group_used_count", groups_used, f"of {groups} groups")


def _epsilons(keys: _Keys) -> Iterator[str]:
    for name in _EPSILONS:
        value = keys.real(f"attention.{name}")
        if value is not None and not value >= 0:  # NaN is not
            yield keys.is_(f"attention.{name}", value, "and must be 0 or more")


def _rope(keys: _Keys) -> Iterator[str]:
    heads = next(iter(keys.counts("attention.head_count")), 0)  # of the first layer, as llama.cpp
    if heads <= 0 or keys.arch in _UNTURNED:
        return
    even = (keys.count("embedding_length") or 0) // heads
    width = _given(keys.count("attention.key_length"), even)
    name, turned = "rope.dimension_count", keys.count("rope.dimension_count")
    sections = keys.counts("rope.dimension_sections")
    if turned is not None:
        yield from _turned(keys, name, turned, width)
    if sum(sections) > width:
        yield f"{keys.arch}.rope.dimension_sections are {sections}, with heads {width} wide"
    if sections and keys.arch in _SECTIONED and not any(sections[:3]):
        yield f"{keys.arch}.rope.dimension_sections are all 0"
    if keys.count("attention.sliding_window"):
        width = _given(keys.count("attention.key_length_swa"), width)
        own = keys.count(f"{name}_swa")
        if own is not None:
            yield from _turned(keys, f"{name}_swa", own, width)
        elif turned is not None:
            yield from _turned(keys, name, turned, width)


def _given(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _turned(keys: _Keys, name: str, turned: int, width: int) -> Iterator[str]:
    """0 hangs: the loop over what is not turned steps back by two, and never ends."""
    step = 4 if keys.arch == _HALVES else 2
    if not 0 < turned <= width:
        yield keys.is_(name, turned, f"with heads {width} wide")
    elif turned % step:
        yield keys.is_(name, turned, f"and must be a multiple of {step}")
