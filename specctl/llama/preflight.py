"""Look at a file before llama.cpp loads it: some files would abort or crash the whole process.

Uses the gguf reader inside the loaded library; 0.2 ms for a tiny file, some 100 ms for a
vocabulary of 150 000 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specctl.enginefacts import ASSISTANT, ASSISTANT_TARGET
from specctl.errors import ModelError
from specctl.llama import damage
from specctl.llama.rawheader import Reader, number, opened, text

_F64 = 28
_TRUNK = "blk.0.attn_norm.weight"
_HEAD_NEEDS = {"mimo2": ("attn_qkv", "ffn_gate")}  # else llama.cpp aborts when they are opened


def check(path: Path, *, trunk: bool = True) -> None:
    """Refuse a file that cannot be a target or draft, naming the reason.

    Without `trunk` it may hold MTP heads alone, or be an assistant.

    Raises:
        ModelError: missing, not a GGUF, a projector, only MTP heads, an assistant, or a file that
            llama.cpp would abort on (F64 tensors, a token twice in the vocabulary, more MTP layers
            than layers, counts and widths that cannot be).
    """
    with opened(path) as header:
        if header is not None:
            _check_contents(*header, path, trunk)


@dataclass(frozen=True, slots=True)
class HeadFacts:
    """MTP heads of a file: `declared` by its header, `tensors` of how many are really there; has it
    a `trunk`? `lacking` names a tensor without which llama.cpp would abort.

    An assistant is its own head, with as many layers as are declared, and has no trunk.
    """

    arch: str
    declared: int
    tensors: int
    trunk: bool
    lacking: str = ""


def heads(path: Path) -> HeadFacts | None:
    """Of all parts of a split file. None where this build has no reader: loading must tell.

    Raises:
        ModelError: missing, or no GGUF.
    """
    with opened(path) as header:
        if header is None:
            return None
        arch = text(*header, "general.architecture")
        declared = number(*header, f"{arch}.nextn_predict_layers")
        parts = number(*header, "split.count")
        names = _tensor_names(*header)
    for part in _other_parts(path, parts):
        if part.is_file():
            with opened(part) as header:
                names |= _tensor_names(*header) if header is not None else set()
    if arch == ASSISTANT:
        joins = "nextn.pre_projection.weight" in names
        return HeadFacts(arch, declared, max(1, declared) if joins else 0, trunk=False)
    ends = ".nextn.eh_proj.weight"
    blocks = sorted(name.removesuffix(ends) for name in names if name.endswith(ends))
    needed = (f"{block}.{what}.weight" for block in blocks for what in _HEAD_NEEDS.get(arch, ()))
    lacking = next((name for name in needed if name not in names), "")
    return HeadFacts(arch, declared, len(blocks), _TRUNK in names, lacking)


def _tensor_names(reader: Reader, handle: Any) -> set[str]:
    count = reader.n_tensors(handle)
    return {reader.tensor_name(handle, index).decode("utf-8", "replace") for index in range(count)}


def _other_parts(path: Path, count: int) -> list[Path]:
    first, after = f"-00001-of-{count:05}", path.name
    if first not in after:
        return []
    return [
        path.with_name(after.replace(first, f"-{n:05}-of-{count:05}")) for n in range(2, count + 1)
    ]


def _check_contents(reader: Reader, handle: Any, path: Path, trunk: bool) -> None:
    arch = text(reader, handle, "general.architecture")
    if arch == "clip":
        raise ModelError(
            f"{path.name} is a vision projector, not a language model",
            "name the model file it belongs to",
        )
    if arch == ASSISTANT and trunk:
        raise ModelError(
            f"{path.name} is a Gemma 4 assistant, which drafts from the KV cache of its target",
            f"name the {ASSISTANT_TARGET} model it is for, and this file as --draft with "
            "--spec-type draft-mtp",
        )
    wrong = damage.found(reader, handle, arch)
    if wrong:
        raise ModelError(
            f"{path.name} is damaged, and llama.cpp would abort on it: {wrong}",
            "fetch it again, or convert it again",
        )
    declared = number(reader, handle, f"{arch}.nextn_predict_layers")
    blocks = number(reader, handle, f"{arch}.block_count")
    if declared > blocks:
        raise ModelError(
            f"{path.name}: its header has {declared} MTP layers among {blocks}, which llama.cpp "
            "aborts on",
            "convert the model again",
        )
    heads_only = (
        reader.find_tensor(handle, b"token_embd.weight") >= 0
        and reader.find_tensor(handle, _TRUNK.encode()) < 0
        and reader.find_key(handle, f"{arch}.nextn_predict_layers".encode()) >= 0
    )
    if heads_only and trunk:
        raise ModelError(
            f"{path.name} holds only MTP heads, not a whole model",
            "name the trunk's file, and this one as --draft with --spec-type draft-mtp",
        )
    for index in range(reader.n_tensors(handle)):
        if reader.tensor_type(handle, index) == _F64:
            name = reader.tensor_name(handle, index).decode("utf-8", "replace")
            raise ModelError(f"{path.name}: tensor {name} is F64, which llama.cpp aborts on")
    _check_tokens(reader, handle, path)


def _check_tokens(reader: Reader, handle: Any, path: Path) -> None:
    key = reader.find_key(handle, b"tokenizer.ggml.tokens")
    if key < 0:
        return
    count = reader.arr_n(handle, key)
    read = reader.arr_str
    seen = {read(handle, key, index) for index in range(count)}
    if len(seen) != count:
        raise ModelError(
            f"{path.name}: {count - len(seen)} tokens are in its vocabulary twice, "
            "which llama.cpp aborts on",
            "convert the model again",
        )
