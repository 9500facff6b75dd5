"""Drafts that read a target's layers: what such a file is, and whether it fits. Told from headers.

llama.cpp aborts the process where an architecture does not record what its layers read, where a
layer is not there, or where tensors that a draft borrows have other shapes; so all of that is
looked at before anything is loaded. Tensors that are missing or misshapen it refuses by itself.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specctl.errors import PairError
from specctl.llama import preflight
from specctl.llama.api import symbol
from specctl.llama.extras import layer_inputs, nextn
from specctl.llama.model import Model

# Architectures whose graphs record what their layers read (llama.cpp 0c1e570); others abort.
RECORDED = frozenset(
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
RECORDED_LAST = frozenset(
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
SPEC_TYPES = {"eagle3": "draft-eagle3", "dflash": "draft-dflash", "dspark": "draft-dspark"}
_WORDS = {
    "eagle3": "an EAGLE-3 head",
    "dflash": "a DFlash draft",
    "dspark": "a DSpark draft",
    "dflash2": "a DFlash2 draft",
}
_ARRAY, _INT32_KINDS, _BOOL = 9, (4, 5), 7  # enum gguf_type
_I64 = 27  # enum ggml_type
_BLOCK_SIZE = 16  # llama.cpp's, where a DFlash file does not say


@dataclass(frozen=True, slots=True)
class LayerDraft:
    """A file of this kind. `layers` are those of the target whose input it reads, in its order.

    `width` is that of the target it was made for. `borrows_embedding`, `borrows_output`: it decodes
    with the target's tensors. `block` is the most positions of one pass, 0 for an EAGLE-3 head.
    `anchor_first`: a block's first row already drafts. `wrong`: why llama.cpp would abort on it.
    """

    path: Path
    kind: str
    layers: tuple[int, ...]
    width: int
    n_embd: int
    borrows_embedding: bool
    borrows_output: bool
    block: int = 0
    mask: int = -1
    causal: bool = False
    anchor_first: bool = False
    confidence: bool = False
    wrong: str = ""

    @property
    def borrows(self) -> bool:
        """Does it decode with tensors of the target?"""
        return self.borrows_embedding or self.borrows_output

    @property
    def spec_type(self) -> str:
        """The one that drafts with it; empty where none does."""
        return SPEC_TYPES.get(self.kind, "")

    @property
    def words(self) -> str:
        """`an EAGLE-3 head`."""
        return _WORDS[self.kind]


def read_layer_draft(path: Path) -> LayerDraft | None:
    """What the file says of itself; None for any other file, or where the build has no reader.

    Raises:
        ModelError: missing, or no GGUF.
    """
    with preflight.opened(path) as header:
        if header is None:
            return None
        return _read(_File(*header), path)


class _File:
    """Typed look-ups in one header."""

    def __init__(self, reader: preflight.Reader, handle: Any) -> None:
        self._reader, self._handle = reader, handle
        c, p = ctypes, ctypes.c_void_p
        self._array_type = symbol("gguf_get_arr_type", c.c_int, p, c.c_int64)
        self._array_data = symbol("gguf_get_arr_data", p, p, c.c_int64)
        self._flag = symbol("gguf_get_val_bool", c.c_bool, p, c.c_int64)
        self._start = symbol("gguf_get_data_offset", c.c_size_t, p)
        self._offset = symbol("gguf_get_tensor_offset", c.c_size_t, p, c.c_int64)
        self._size = symbol("gguf_get_tensor_size", c.c_size_t, p, c.c_int64)

    def text(self, key: str) -> str:
        return preflight.text(self._reader, self._handle, key)

    def number(self, key: str) -> int:
        return preflight.number(self._reader, self._handle, key)

    def has_key(self, key: str) -> bool:
        return bool(self._reader.find_key(self._handle, key.encode()) >= 0)

    def flag(self, key: str, default: bool) -> bool:
        at = self._reader.find_key(self._handle, key.encode())
        if at < 0 or self._flag is None or self._reader.kv_type(self._handle, at) != _BOOL:
            return default
        return bool(self._flag(self._handle, at))

    def numbers(self, key: str) -> tuple[int, ...]:
        at = self._reader.find_key(self._handle, key.encode())
        if at < 0 or self._array_type is None or self._array_data is None:
            return ()
        if self._reader.kv_type(self._handle, at) != _ARRAY:
            return ()
        if self._array_type(self._handle, at) not in _INT32_KINDS:
            return ()
        count = self._reader.arr_n(self._handle, at)
        data = (ctypes.c_int32 * count).from_address(self._array_data(self._handle, at))
        return tuple(data)

    def has(self, tensor: str) -> bool:
        return bool(self._reader.find_tensor(self._handle, tensor.encode()) >= 0)

    def largest_id(self, path: Path) -> tuple[int, int] | None:
        """Smallest and largest entry of `d2t`; None where there is none that is int64."""
        at = self._reader.find_tensor(self._handle, b"d2t")
        if self._reader.tensor_type(self._handle, at) != _I64:
            return None
        if self._start is None or self._offset is None or self._size is None:
            return None
        with path.open("rb") as file:
            file.seek(self._start(self._handle) + self._offset(self._handle, at))
            data = file.read(self._size(self._handle, at))
        ids = struct.unpack(f"<{len(data) // 8}q", data[: len(data) // 8 * 8])
        return min(ids, default=0), max(ids, default=0)

    def vocabulary(self) -> int:
        at = self._reader.find_key(self._handle, b"tokenizer.ggml.tokens")
        return int(self._reader.arr_n(self._handle, at)) if at >= 0 else 0


def _read(file: _File, path: Path) -> LayerDraft | None:
    arch = file.text("general.architecture")
    if arch not in ("eagle3", "dflash"):
        return None
    kind = arch
    if arch == "dflash" and file.has("markov_w1.weight"):
        kind = "dspark"
    elif arch == "dflash" and file.has("selector_hidden.weight"):
        kind = "dflash2"
    n_embd = file.number(f"{arch}.embedding_length")
    own_embedding = file.has("token_embd.weight")
    own_output = file.has("output.weight") or (arch == "dflash" and own_embedding)
    block = 0
    if arch == "dflash":
        block = file.number("dflash.block_size")
        if not file.has_key("dflash.block_size") and kind != "dspark":
            block = _BLOCK_SIZE
    has_mask = file.has_key("tokenizer.ggml.mask_token_id")
    return LayerDraft(
        path=path,
        kind=kind,
        layers=file.numbers(f"{arch}.target_layers"),
        width=file.number("eagle3.target_hidden_size") if arch == "eagle3" else n_embd,
        n_embd=n_embd,
        borrows_embedding=not own_embedding,
        borrows_output=not own_output,
        block=block,
        mask=file.number("tokenizer.ggml.mask_token_id") if has_mask else -1,
        causal=file.flag("dflash.attention.causal", False),
        anchor_first=kind == "dspark" and file.flag("dflash.sample_from_anchor", True),
        confidence=kind == "dspark" and file.has("conf_proj.weight"),
        wrong=_wrong(file, path, arch, own_output),
    )


def _wrong(file: _File, path: Path, arch: str, own_output: bool) -> str:
    """Why llama.cpp would abort on the file whatever the target, empty where it would not."""
    heads_k = file.number(f"{arch}.attention.key_length")
    heads_v = file.number(f"{arch}.attention.value_length")
    if heads_k != heads_v:
        return f"its keys are {heads_k} wide and its values {heads_v}"
    if arch == "eagle3" and file.number("eagle3.block_count") != 1:
        return f"it has {file.number('eagle3.block_count')} layers instead of one"
    if not file.has("d2t"):
        return ""
    if not own_output:
        return "it has a vocabulary of its own (d2t), but no output tensor"
    ids = file.largest_id(path)
    if ids is None:
        return "the token ids of its own vocabulary (d2t) are not 64-bit numbers"
    if ids[0] < 0 or ids[1] >= file.vocabulary():
        return f"its own vocabulary (d2t) names token {ids[1] if ids[0] >= 0 else ids[0]}"
    return ""


def why_not_here(kind: str = "eagle3") -> str:
    """Why this build runs no such drafts at all; empty where it does."""
    if nextn() is None or layer_inputs() is None:
        return "this llama-cpp-python build does not give out what a target's layers read"
    if kind == "dflash2":
        return "DFlash2 drafts are not run here; llama-server runs them"
    return ""


def check_fits(draft: LayerDraft, target: Model) -> None:
    """Refuse a pair that cannot work, before the draft is loaded.

    Raises:
        PairError: the reason, and what to do.
    """
    why = why_not_here(draft.kind) or _unfit(draft, target)
    if why:
        raise PairError(
            f"{draft.path.name} ({draft.words}) cannot draft for {target.path.name}: {why}",
            "such a draft is made for one target; `specctl inspect FILE` shows which",
        )


def _unfit(draft: LayerDraft, target: Model) -> str:
    if draft.wrong:
        return draft.wrong
    if target.arch not in RECORDED:
        return f"llama.cpp does not give out what the layers of {target.arch} read"
    if not draft.layers:
        return "it does not say which layers of a target it reads (target_layers)"
    if draft.kind == "eagle3" and len(draft.layers) != 3:
        return f"it reads {len(draft.layers)} layers instead of three"
    for layer in draft.layers:
        if not 0 <= layer <= target.n_layer:
            return f"it reads layer {layer}, the target has {target.n_layer}"
        last = layer == target.n_layer
        if last and (draft.kind != "eagle3" or target.arch not in RECORDED_LAST):
            return f"llama.cpp does not give out what leaves the last layer of {target.arch}"
    if draft.width != target.n_embd:
        return f"it is made for a target {draft.width} wide, this one is {target.n_embd} wide"
    if draft.borrows and draft.n_embd != target.n_embd:
        return f"it is {draft.n_embd} wide and has no embedding or output tensor of its own"
    if draft.kind == "eagle3":
        return ""
    if draft.block < (1 if draft.anchor_first else 2):
        return f"its block size is {draft.block}"
    return "" if draft.mask >= 0 else "its vocabulary has no mask token"
