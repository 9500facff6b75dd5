"""Gemma 4 assistants: does one fit a target whose KV cache it would read? Told from two headers.

llama.cpp looks at none of this: it takes a cache of another kind for one (the process crashes),
keys of another width (it aborts, or reads across them), and layers that are not there (it reads the
first one instead).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specctl.enginefacts import ASSISTANT, ASSISTANT_TARGET
from specctl.errors import PairError
from specctl.llama import rawheader
from specctl.llama.rawheader import Reader


@dataclass(frozen=True, slots=True)
class KvFacts:
    """Of a file's header: `kv_heads` and `slides` by layer, head lengths of full and sliding ones.

    `width` is that of the hidden states that it gives (a target) or reads (an assistant).
    """

    arch: str
    width: int
    kv_heads: tuple[int, ...]
    slides: tuple[bool, ...]
    full: tuple[int, int]  # keys, values
    sliding: tuple[int, int]

    def kept(self, layer: int) -> tuple[int, int, int]:
        """(KV heads, key length, value length) of a layer."""
        return (self.kv_heads[layer], *(self.sliding if self.slides[layer] else self.full))


def read_kv_facts(path: Path) -> KvFacts | None:
    """No layers where the header does not say enough of them; None where the build has no reader.

    Raises:
        ModelError: missing, or no GGUF.
    """
    with rawheader.opened(path) as header:
        return _read(*header) if header is not None else None


def _read(reader: Reader, handle: object) -> KvFacts:
    arch = rawheader.text(reader, handle, "general.architecture")

    def number(key: str) -> int:
        return rawheader.number(reader, handle, f"{arch}.{key}")

    def numbers(key: str) -> tuple[int, ...]:
        return rawheader.numbers(reader, handle, f"{arch}.{key}")

    layers = number("block_count")
    if arch != ASSISTANT:  # heads in the target's own file keep a cache of their own
        layers -= number("nextn_predict_layers")
    same = number("attention.head_count_kv")
    kv_heads = numbers("attention.head_count_kv")
    kv_heads = kv_heads or (same or number("attention.head_count"),) * layers
    slides = tuple(bool(flag) for flag in numbers("attention.sliding_window_pattern"))
    if not 0 < layers <= min(len(kv_heads), len(slides)):
        kv_heads = slides = ()
    full = (number("attention.key_length"), number("attention.value_length"))
    return KvFacts(
        arch=arch,
        width=number("embedding_length_out") or number("embedding_length"),
        kv_heads=kv_heads[:layers],
        slides=slides[:layers],
        full=full,
        sliding=(
            number("attention.key_length_swa") or full[0],
            number("attention.value_length_swa") or full[1],
        ),
    )


def check_fits(assistant: Path, target: Path) -> None:
    """Refuse a pair that llama.cpp would crash on, or draft nonsense with.

    Raises:
        PairError: the reason, and what to do.
    """
    ours, theirs = read_kv_facts(assistant), read_kv_facts(target)
    if ours is None or theirs is None:
        return  # then nothing drafts at all: `why_not` says so
    why = unfit(ours, theirs)
    if why:
        raise PairError(
            f"{assistant.name} cannot draft for {target.name}: {why}",
            "an assistant is made for one Gemma 4 model: take that one's",
        )


def unfit(assistant: KvFacts, target: KvFacts) -> str:
    """Why the pair cannot work; empty where it can."""
    if target.arch != ASSISTANT_TARGET:
        return (
            f"it reads the KV cache of a {ASSISTANT_TARGET} model, and the target is {target.arch}"
        )
    if not assistant.slides or not target.slides:
        whose = "its" if not assistant.slides else "the target's"
        return f"{whose} header does not say what each layer keeps"
    if assistant.width != target.width:
        return (
            f"it reads hidden states {assistant.width} wide, the target's are {target.width} wide"
        )
    if target.slides[-2:] != (True, False):
        return "the target's last two layers are not a sliding and a full one"
    for layer, slides in enumerate(assistant.slides):
        kind, shared = ("sliding", -2) if slides else ("full", -1)
        mine, given = assistant.kept(layer), target.kept(shared)
        if mine != given:
            return (
                f"its {kind} layers read {_words(mine)}, the target's last {kind} layer keeps "
                f"{_words(given)}"
            )
    return ""


def _words(kept: tuple[int, int, int]) -> str:
    heads, key, value = kept
    lengths = f"{key}" if key == value else f"{key} (keys) and {value} (values)"
    return f"{heads} KV head{'' if heads == 1 else 's'} of {lengths}"
