"""From a header to a `Shape`: what each layer keeps, by llama.cpp's rules for its architecture."""

from __future__ import annotations

import re
from dataclasses import dataclass

from specctl.enginefacts import ASSISTANT
from specctl.errors import GgufError
from specctl.gguf import arches
from specctl.gguf.header import Header
from specctl.gguf.shape import LayerMemory, Shape

MAX_LAYERS = 512  # llama.cpp's LLAMA_MAX_LAYERS
_NEXTN = re.compile(r"blk\.(\d+)\.nextn\.eh_proj\.weight")


@dataclass(frozen=True, slots=True)
class Keys:
    """A header's metadata under `<arch>.`."""

    header: Header
    arch: str

    def number(self, name: str, default: int = 0) -> int:
        """A whole number, or the first of an array of them."""
        value = self.header.number(f"{self.arch}.{name}")
        if value is None:
            many = self.header.numbers(f"{self.arch}.{name}")
            value = many[0] if many else default
        if not 0 <= value < 1 << 40:
            raise GgufError(f"{self.header.source} has {self.arch}.{name} = {value}: damaged")
        return value

    def per_layer(self, name: str, count: int, default: int = 0) -> tuple[int, ...]:
        """One number per layer; a single number is repeated."""
        many = self.header.numbers(f"{self.arch}.{name}")
        if many is None:
            return (self.number(name, default),) * count
        return (many + (many[-1] if many else default,) * count)[:count]

    def flags(self, name: str) -> tuple[int, ...] | None:
        """An array, or None where the key is absent or a single number."""
        return self.header.numbers(f"{self.arch}.{name}")


def shape_of(header: Header) -> tuple[Shape, tuple[str, ...]]:
    """The dimensions, and sentences about what was assumed.

    Raises:
        GgufError: the keys that every model has are missing or cannot be.
    """
    arch = header.text("general.architecture")
    if arch is None:
        raise GgufError(f"{header.source} names no architecture: not a language model's GGUF")
    keys = Keys(header, arch)
    n_all = keys.number("block_count")
    if not 1 <= n_all <= MAX_LAYERS:
        raise GgufError(f"{header.source} has {n_all} layers; llama.cpp loads 1 to {MAX_LAYERS}")
    n_layer = n_all - keys.number("nextn_predict_layers")
    if n_layer < 0:
        raise GgufError(f"{header.source} has more MTP layers than layers")
    notes = []
    if arch not in arches.KNOWN:
        notes.append(f"architecture {arch!r} is not in our list: generic rules are used, ≈")
    if arch in arches.INDEXED:
        notes.append(f"{arch} keeps a sparse-attention index of its own; it is not counted")
    layers = _layers(keys, n_all)
    trunk, mtp = layers[:n_layer], layers[n_layer:]
    n_nextn = len({m[1] for t in header.tensors if (m := _NEXTN.fullmatch(t.name))})
    has_trunk = any(t.name.startswith("blk.0.") for t in header.tensors)
    if n_nextn and not has_trunk:
        trunk = []  # an MTP head in a file of its own
    return _shape(keys, trunk, mtp, n_nextn), tuple(notes)


def _shape(keys: Keys, trunk: list[LayerMemory], mtp: list[LayerMemory], n_nextn: int) -> Shape:
    full = [layer for layer in trunk if layer.kv_k and not layer.sliding]
    swa = [layer for layer in trunk if layer.kv_k and layer.sliding]
    recurrent = [layer for layer in trunk if layer.recurrent_bytes]
    widest = max(full or mtp or [LayerMemory()], key=lambda layer: layer.kv_k)
    widest_swa = max(swa or [LayerMemory()], key=lambda layer: layer.kv_k)
    return Shape(
        arch=keys.arch,
        n_layer=len(trunk),
        n_embd=keys.number("embedding_length"),
        n_head=max(keys.per_layer("attention.head_count", len(trunk) or 1)),
        n_vocab=_vocabulary_size(keys),
        context_length=keys.number("context_length"),
        kv_width_k=widest.kv_k,
        kv_width_v=widest.kv_v,
        n_attention=len(full),
        n_swa=len(swa),
        window=_window(keys) if swa else 0,
        swa_width_k=widest_swa.kv_k,
        swa_width_v=widest_swa.kv_v,
        n_recurrent=len(recurrent),
        recurrent_bytes=sum(layer.recurrent_bytes for layer in recurrent),
        n_ff=max(keys.per_layer("feed_forward_length", len(trunk) or 1)),
        n_expert=keys.number("expert_count"),
        n_expert_used=max(keys.per_layer("expert_used_count", len(trunk) or 1)),
        n_nextn=n_nextn,
        layers=tuple(trunk),
        n_ff_exp=max(keys.per_layer("expert_feed_forward_length", len(trunk) or 1)),
        n_ff_shared=_shared_width(keys),
        head_dim=_head_dims(keys)[0],
        kv_lora=keys.number("attention.kv_lora_rank"),
        ssm_inner=keys.number("ssm.inner_size"),
        ssm_conv=keys.number("ssm.inner_size")
        + 2 * keys.number("ssm.group_count") * keys.number("ssm.state_size"),
    )


def _vocabulary_size(keys: Keys) -> int:
    texts = keys.header.strings("tokenizer.ggml.tokens")
    return len(texts) if texts is not None else keys.number("vocab_size")


def _shared_width(keys: Keys) -> int:
    """All shared experts together: the key, or count x one expert's width (llama.cpp)."""
    own = keys.number("expert_shared_feed_forward_length")
    return own or keys.number("expert_shared_count") * keys.number("expert_feed_forward_length")


def _head_dims(keys: Keys) -> tuple[int, int]:
    n_head = max(keys.per_layer("attention.head_count", 1))
    even = keys.number("embedding_length") // n_head if n_head else 0
    return keys.number("attention.key_length", even), keys.number("attention.value_length", even)


def _layers(keys: Keys, n_all: int) -> list[LayerMemory]:
    """What every block keeps, MTP blocks included."""
    if keys.arch in arches.NO_MEMORY:
        return [LayerMemory()] * n_all
    heads = keys.per_layer("attention.head_count", n_all)
    kv_heads = (
        keys.per_layer("attention.head_count_kv", n_all)
        if f"{keys.arch}.attention.head_count_kv" in keys.header.metadata
        else heads
    )
    recurrent = _recurrent(keys, n_all, kv_heads)
    attends = _attends(keys, n_all, recurrent)
    slides = _slides(keys, n_all, recurrent)
    head_k, head_v = _head_dims(keys)
    swa_k = keys.number("attention.key_length_swa", head_k)
    swa_v = keys.number("attention.value_length_swa", head_v)
    latent = bool(
        keys.number("attention.key_length_mla") and keys.number("attention.value_length_mla")
    )
    state = _state_bytes(keys, max(heads, default=0))
    return [
        LayerMemory(
            kv_k=kv_heads[i] * (swa_k if slides[i] else head_k) if attends[i] else 0,
            kv_v=kv_heads[i] * (swa_v if slides[i] else head_v) if attends[i] and not latent else 0,
            sliding=attends[i] and slides[i],
            recurrent_bytes=state if recurrent[i] else 0,
        )
        for i in range(n_all)
    ]


def _recurrent(keys: Keys, n_all: int, kv_heads: tuple[int, ...]) -> list[bool]:
    arch, n_layer = keys.arch, n_all - keys.number("nextn_predict_layers")
    given = keys.flags("attention.recurrent_layers")
    has_state = f"{arch}.ssm.conv_kernel" in keys.header.metadata
    unknown = arch not in arches.KNOWN and has_state
    if arch in arches.RECURRENT or arch in arches.PARALLEL_HYBRID:
        return [True] * n_all
    if arch in arches.INTERVAL_HYBRID or (
        unknown and f"{arch}.full_attention_interval" in keys.header.metadata
    ):
        if given is not None:
            return [bool(flag) for flag in (given + (0,) * n_all)[:n_all]]
        interval = keys.number("full_attention_interval", 4) or 1
        return [i < n_layer and (i + 1) % interval != 0 for i in range(n_all)]
    if arch in arches.HEADLESS_HYBRID or unknown:
        return [i < n_layer and kv_heads[i] == 0 for i in range(n_all)]
    if arch in arches.MIXED_HYBRID:
        n_ff = keys.per_layer("feed_forward_length", n_all)
        return [i < n_layer and kv_heads[i] == 0 and n_ff[i] == 0 for i in range(n_all)]
    return [False] * n_all


def _attends(keys: Keys, n_all: int, recurrent: list[bool]) -> list[bool]:
    """Which layers own a KV cache: not the recurrent ones, nor those that reuse another's."""
    if keys.arch in arches.PARALLEL_HYBRID:
        return [True] * n_all
    if keys.arch in arches.MIXED_HYBRID:
        n_ff = keys.per_layer("feed_forward_length", n_all)
        return [not recurrent[i] and n_ff[i] == 0 for i in range(n_all)]
    own = n_all
    if keys.arch == "gemma3n":
        own = 20
    elif keys.arch == ASSISTANT:
        own = 0  # its layers read the cache of the target's last two
    elif keys.arch == "gemma4":
        own = n_all - keys.number("attention.shared_kv_layers")
    return [not recurrent[i] and i < own for i in range(n_all)]


def _window(keys: Keys) -> int:
    rule = arches.SLIDING.get(keys.arch)
    if keys.arch not in arches.KNOWN:
        return keys.number("attention.sliding_window")
    if rule is None:
        return 0
    if rule.fixed and rule.window is not None:
        given = keys.header.number(f"{keys.arch}.attention.sliding_window")
        off = given == 0 or (given is None and keys.arch == "smallthinker")
        return 0 if off else rule.window
    return keys.number("attention.sliding_window", rule.window or 0)


def _slides(keys: Keys, n_all: int, recurrent: list[bool]) -> list[bool]:
    rule = arches.SLIDING.get(keys.arch)
    n_layer = n_all - keys.number("nextn_predict_layers")
    pattern = keys.flags("attention.sliding_window_pattern")
    if not _window(keys) or (keys.arch == "exaone4" and n_layer != 64):
        return [False] * n_all
    if pattern is not None:
        return [bool(flag) for flag in (pattern + (0,) * n_all)[:n_all]]
    if rule is None or rule.period is None:
        return [False] * n_all
    period = keys.number("attention.sliding_window_pattern", rule.period)
    if not period:
        return [i < n_layer and not recurrent[i] for i in range(n_all)]
    last = 0 if rule.dense_first else period - 1
    return [i < n_layer and i % period != last for i in range(n_all)]


def _state_bytes(keys: Keys, n_head: int) -> int:
    """One recurrent layer's f32 state for one sequence: `n_embd_r` + `n_embd_s` of llama.cpp."""
    n_embd = keys.number("embedding_length")
    conv = max(0, keys.number("ssm.conv_kernel") - 1)
    if wkv := keys.number("wkv.head_size"):
        return 4 * n_embd * (keys.number("token_shift_count", 2) + wkv)
    if short := keys.number("shortconv.l_cache"):
        return 4 * n_embd * (short - 1)
    if kda := keys.number("kda.head_dim"):
        return 4 * n_head * kda * (3 * (conv or 3) + kda)
    if keys.arch == "minimax-01":
        return 4 * n_head * _head_dims(keys)[0] ** 2
    inner, state = keys.number("ssm.inner_size"), keys.number("ssm.state_size")
    return 4 * (conv * (inner + 2 * keys.number("ssm.group_count") * state) + state * inner)
