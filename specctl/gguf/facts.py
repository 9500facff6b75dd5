"""What a model is, from its header(s) alone: everything memory and pairing need."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from specctl.enginefacts import ASSISTANT, BLOCK_USUAL
from specctl.errors import GgufError
from specctl.gguf import arches
from specctl.gguf.header import Header, Tensor, read_header
from specctl.gguf.layers import Keys, shape_of
from specctl.gguf.shape import Shape
from specctl.gguf.source import LocalSource, RemoteSource, open_source
from specctl.gguf.tokens import Tokenizer, tokenizer_of
from specctl.gguf.weights import Weights
from specctl.units import format_bytes

Kind = Literal[
    "model", "mtp head", "eagle3", "dflash", "dspark", "dflash2", "projector", "encoder", "adapter"
]
Mtp = Literal["none", "embedded", "stripped", "head"]

FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M",
    30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4", 39: "NVFP4",
    40: "Q1_0", 41: "Q2_0",
}  # fmt: skip

_SPLIT_NAME = re.compile(r"(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf")
_BLOCK = re.compile(r"blk\.(\d+)\.")
_EXPERTS = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")  # llama.cpp's --n-cpu-moe
_INPUT = re.compile(r"(token_embd|per_layer_token_embd|position_embd|token_types)\.weight")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model: `sources` its file, or all parts of a split one. Sizes in bytes.

    `quant` is the file's own label; `tensor_types` how many bytes each type really takes, largest
    first. `missing` bytes are promised by the header and not in the file. `notes` say what was
    assumed or looks wrong. `outer`: types of the tensors outside blocks, by name,
    of a draft that reads a target's layers.
    """

    sources: tuple[str, ...]
    name: str | None
    kind: Kind
    shape: Shape
    weights: Weights
    quant: str
    tensor_types: tuple[tuple[str, int], ...]
    n_params: int
    file_size: int | None
    missing: int
    tokenizer: Tokenizer | None
    chat_template: bool
    mtp: Mtp
    licence: str | None
    known_arch: bool
    mla: bool = False
    target_layers: tuple[int, ...] = ()
    target_n_embd: int | None = None
    block_size: int | None = None
    from_anchor: bool = True  # DSpark: the row of the last token guesses too
    mask_token: int | None = None
    hyper_connections: bool = False  # layers of DeepSeek-V4's kind
    own_embedding: bool = True
    own_output: bool = True
    n_embd_out: int = 0  # width of the hidden states that it gives, or an assistant reads
    n_tensors: int = 0
    notes: tuple[str, ...] = ()
    outer: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    header: Header | None = field(default=None, repr=False, compare=False)

    @property
    def arch(self) -> str:
        """general.architecture."""
        return self.shape.arch

    @property
    def can_roll_back(self) -> bool:
        """Rejected tokens can be taken out of its memory without a checkpoint."""
        return not self.shape.is_hybrid or self.arch in arches.ROLLBACK


def read_facts(text: str) -> ModelFacts:
    """Facts of a local file or `hf:owner/repo/file.gguf`, with all its parts if it is split.

    Raises:
        GgufError: not readable, or parts are missing.
        HubError: the remote file cannot be reached.
    """
    with open_source(text) as source:
        return facts_of_source(source)


def facts_of_source(source: LocalSource | RemoteSource) -> ModelFacts:
    """The same from an open source, whose traffic the caller may want to see."""
    header = read_header(source)
    count = header.number("split.count") or 1
    if count == 1:
        return facts_of([header])
    return facts_of(_parts(source, header, count))


def _parts(source: LocalSource | RemoteSource, first: Header, count: int) -> list[Header]:
    match = _SPLIT_NAME.fullmatch(source.filename)
    if match is None:
        raise GgufError(
            f"{source.name} is part {(first.number('split.no') or 0) + 1} of {count}, and its name "
            "does not say where the others are",
            "keep the names …-00001-of-000NN.gguf",
        )
    if int(match["count"]) != count or count > 512:
        raise GgufError(f"{source.name} is one of {match['count']} by name, of {count} inside")
    headers, lost = [], []
    for index in range(1, count + 1):
        name = f"{match['stem']}-{index:05d}-of-{count:05d}.gguf"
        if name == source.filename:
            headers.append(first)
            continue
        try:
            with source.beside(name) as part:
                headers.append(read_header(part))
        except GgufError as error:
            if "does not exist" not in error.message:
                raise
            lost.append(name)
    if lost:
        shown = ", ".join(lost[:3]) + (" …" if len(lost) > 3 else "")
        raise GgufError(
            f"{source.name} is one of {count} parts; {len(lost)} not here: {shown}",
            "fetch the whole set into one folder",
        )
    return headers


def facts_of(headers: list[Header]) -> ModelFacts:
    """Facts of one model from the headers of all its parts, in order.

    Raises:
        GgufError: parts that do not belong together, or keys that cannot be.
    """
    first = headers[0]
    for index, part in enumerate(headers):
        if len(headers) > 1 and (part.number("split.no"), part.number("split.count")) != (
            index,
            len(headers),
        ):
            raise GgufError(f"{part.source} is not part {index + 1} of {len(headers)}")
    tensors = [tensor for part in headers for tensor in part.tensors]
    names = {tensor.name for tensor in tensors}
    if len(names) != len(tensors):
        raise GgufError(f"{first.source} holds the same tensor twice")
    promised = first.number("split.tensors.count")
    if len(headers) > 1 and promised is not None and promised != len(tensors):
        raise GgufError(f"{first.source}: {len(tensors)} tensors in all parts, {promised} promised")
    sizes = [part.file_size for part in headers]
    kind = _kind(first, names)
    shape, notes = _shape(first, kind, tensors)
    keys = Keys(first, shape.arch)
    missing = sum(part.missing for part in headers)
    mtp = _mtp(keys, shape, kind)
    return ModelFacts(
        sources=tuple(part.source for part in headers),
        name=first.text("general.name"),
        kind=kind,
        shape=shape,
        weights=weigh(tensors),
        quant=FILE_TYPES.get((first.number("general.file_type") or 0) & 1023, "unknown")
        if first.number("general.file_type") is not None
        else "unknown",
        tensor_types=_type_mix(tensors),
        n_params=sum(tensor.elements for tensor in tensors if not tensor.name.startswith("d2t")),
        file_size=None if None in sizes else sum(size or 0 for size in sizes),
        missing=missing,
        tokenizer=tokenizer_of(first),
        chat_template=first.text("tokenizer.chat_template") is not None,
        mtp=mtp,
        licence=first.text("general.license"),
        known_arch=shape.arch in arches.KNOWN,
        mla=bool(keys.number("attention.key_length_mla")),
        target_layers=keys.flags("target_layers") or (),
        target_n_embd=keys.number(_TARGET_WIDTH.get(keys.arch, "target_hidden_size")) or None,
        block_size=_block_size(keys, kind),
        from_anchor=_flag(first, f"{keys.arch}.sample_from_anchor", True),
        mask_token=first.number("tokenizer.ggml.mask_token_id"),
        hyper_connections=bool(keys.number("hyper_connection.count")),
        own_embedding="token_embd.weight" in names,
        own_output="output.weight" in names,
        n_embd_out=keys.number("embedding_length_out") or shape.n_embd,
        n_tensors=len(tensors),
        notes=tuple(notes) + _warnings(first, mtp, missing),
        outer=_outer(tensors) if kind in ("eagle3", *_BLOCK_DRAFTS) else {},
        header=first,
    )


_TARGET_WIDTH = {ASSISTANT: "embedding_length_out"}
_BLOCK_DRAFTS = ("dflash", "dspark", "dflash2")


def _block_size(keys: Keys, kind: Kind) -> int | None:
    """Where a file does not say, llama.cpp's for DFlash; DSpark must."""
    if kind not in _BLOCK_DRAFTS:
        return None
    return keys.number("block_size", 0 if kind == "dspark" else BLOCK_USUAL)


def _outer(tensors: list[Tensor]) -> dict[str, str]:
    return {one.name: one.type for one in tensors if not _BLOCK.match(one.name)}


def _flag(header: Header, key: str, default: bool) -> bool:
    """As llama.cpp's drafters read it: what is there and is not true is false."""
    value = header.metadata.get(key, default)
    return value is True or value == "true"


def _kind(header: Header, names: set[str]) -> Kind:
    arch = header.text("general.architecture") or ""
    if arch == "clip" or header.text("general.type") == "mmproj":
        return "projector"
    if header.text("general.type") == "adapter":
        return "adapter"
    if arch == "eagle3":
        return "eagle3"
    if arch == "dflash":
        if "markov_w1.weight" in names:
            return "dspark"
        return "dflash2" if "selector_hidden.weight" in names else "dflash"
    has_nextn = any(".nextn." in name for name in names)
    if arch == ASSISTANT or (has_nextn and not any(name.startswith("blk.0.") for name in names)):
        return "mtp head"
    return "encoder" if arch in arches.NO_MEMORY else "model"


def _shape(header: Header, kind: Kind, tensors: list[Tensor]) -> tuple[Shape, list[str]]:
    if kind not in ("projector", "adapter"):
        shape, notes = shape_of(header)
        return shape, list(notes)
    arch = header.text("general.architecture") or "?"
    empty = Shape(arch, 0, 0, 0, 0, 0, 0, 0, 0)
    return empty, [f"{len(tensors)} tensors; a {kind} is not a language model of its own"]


def _mtp(keys: Keys, shape: Shape, kind: Kind) -> Mtp:
    if kind == "mtp head":
        return "head"
    if shape.n_nextn:
        return "embedded"
    return "stripped" if keys.number("nextn_predict_layers") else "none"


def _warnings(header: Header, mtp: Mtp, missing: int) -> tuple[str, ...]:
    notes = []
    if mtp == "stripped":
        notes.append(
            "the header announces MTP layers whose tensors are not in the file: "
            "llama.cpp refuses to load it"
        )
    if mtp == "none" and re.search(r"\bmtp\b", _last_part(header.source), re.IGNORECASE):
        notes.append("the name says MTP, but there is no MTP head in it")
    if missing:
        notes.append(f"incomplete: {format_bytes(missing)} of the file are missing")
    return tuple(notes)


def _last_part(source: str) -> str:
    return re.split(r"[/\\]", source)[-1]


def _type_mix(tensors: list[Tensor]) -> tuple[tuple[str, int], ...]:
    mix: Counter[str] = Counter()
    for tensor in tensors:
        mix[tensor.type] += tensor.n_bytes
    return tuple(mix.most_common())


def weigh(tensors: list[Tensor]) -> Weights:
    """Bytes by the place each tensor goes to: input layer, a block, its experts, output layer."""
    layers: Counter[int] = Counter()
    experts: Counter[int] = Counter()
    embedding = output = 0
    for tensor in tensors:
        if match := _BLOCK.match(tensor.name):
            block = int(match[1])
            layers[block] += tensor.n_bytes
            if _EXPERTS.search(tensor.name):
                experts[block] += tensor.n_bytes
        elif _INPUT.fullmatch(tensor.name):
            embedding += tensor.n_bytes
        else:
            output += tensor.n_bytes
    n_blocks = min(max(layers, default=-1) + 1, 512)
    names = {tensor.name for tensor in tensors}
    return Weights(
        layers=tuple(layers[i] for i in range(n_blocks)),
        experts=tuple(experts[i] for i in range(n_blocks)),
        embedding=embedding,
        output=output,
        tied="token_embd.weight" in names and "output.weight" not in names,
    )
