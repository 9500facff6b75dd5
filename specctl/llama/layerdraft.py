"""Drafts that read a target's layers: what such a file is, and whether it fits. Told from headers.

llama.cpp aborts the process where an architecture does not record what its layers read, where a
layer is not there, or where tensors that a draft borrows have other shapes; so all of that is
looked at before anything is loaded. Tensors that are missing or misshapen it refuses by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specctl.enginefacts import LAYER_TAPS, LAYER_TAPS_LAST
from specctl.errors import PairError
from specctl.llama import blocks, rawheader
from specctl.llama.extras import layer_inputs, nextn
from specctl.llama.header import Header
from specctl.llama.model import Model

SPEC_TYPES = {"eagle3": "draft-eagle3", "dflash": "draft-dflash", "dspark": "draft-dspark"}
_WORDS = {
    "eagle3": "an EAGLE-3 head",
    "dflash": "a DFlash draft",
    "dspark": "a DSpark draft",
    "dflash2": "a DFlash2 draft",
}
_RUN = tuple(SPEC_TYPES)  # kinds that draft here


@dataclass(frozen=True, slots=True)
class LayerDraft:
    """A file of this kind. `layers` are those of the target whose input it reads, in its order.

    `width` is that of the target it was made for. `borrows_embedding`, `borrows_output`: it decodes
    with the target's tensors. `block` is what a block draft reads at once, None for any other.
    `wrong`: why llama.cpp would abort on it.
    """

    path: Path
    kind: str
    layers: tuple[int, ...]
    width: int
    n_embd: int
    borrows_embedding: bool
    borrows_output: bool
    block: blocks.Block | None = None
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
    with rawheader.opened(path) as header:
        if header is None:
            return None
        return _read(Header(*header), path)


def _read(file: Header, path: Path) -> LayerDraft | None:
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
    block = blocks.read(file, kind) if arch == "dflash" else None
    wrong = _wrong(file, path, arch, own_output)
    if block is not None and kind in _RUN:
        wrong = wrong or blocks.wrong(file, kind, block)
    return LayerDraft(
        path=path,
        kind=kind,
        layers=file.numbers(f"{arch}.target_layers"),
        width=file.number("eagle3.target_hidden_size") if arch == "eagle3" else n_embd,
        n_embd=n_embd,
        borrows_embedding=not own_embedding,
        borrows_output=not own_output,
        block=block,
        wrong=wrong,
    )


def _wrong(file: Header, path: Path, arch: str, own_output: bool) -> str:
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
    ids = file.id_range(path)
    if ids is None:
        return "the token ids of its own vocabulary (d2t) are not 64-bit numbers"
    if ids[0] < 0 or ids[1] >= file.vocabulary():
        return f"its own vocabulary (d2t) names token {ids[1] if ids[0] >= 0 else ids[0]}"
    return ""


def _why_not_here(draft: LayerDraft) -> str:
    """Why no such draft runs here, whatever the target; empty where it does."""
    if draft.kind not in _RUN:
        return f"{draft.words} is not run here; llama-server runs it"
    if nextn() is None or layer_inputs() is None:
        return "this llama-cpp-python build does not give out what a target's layers read"
    return ""


def check_fits(draft: LayerDraft, target: Model) -> None:
    """Refuse a pair that cannot work, before the draft is loaded.

    Raises:
        PairError: the reason, and what to do.
    """
    why = _why_not_here(draft) or _unfit(draft, target)
    if why:
        raise PairError(
            f"{draft.path.name} ({draft.words}) cannot draft for {target.path.name}: {why}",
            "such a draft is made for one target; `specctl inspect FILE` shows which",
        )


def _unfit(draft: LayerDraft, target: Model) -> str:
    if draft.wrong:
        return draft.wrong
    if target.arch not in LAYER_TAPS:
        return f"llama.cpp does not give out what the layers of {target.arch} read"
    if not draft.layers:
        return "it does not say which layers of a target it reads (target_layers)"
    if draft.kind == "eagle3" and len(draft.layers) != 3:
        return f"it reads {len(draft.layers)} layers instead of three"
    for layer in draft.layers:
        if not 0 <= layer <= target.n_layer:
            return f"it reads layer {layer}, the target has {target.n_layer}"
        if layer == target.n_layer and target.arch not in LAYER_TAPS_LAST:
            return f"llama.cpp does not give out what leaves the last layer of {target.arch}"
    if draft.width != target.n_embd:
        return f"it is made for a target {draft.width} wide, this one is {target.n_embd} wide"
    if draft.borrows and draft.n_embd != target.n_embd:
        return f"it is {draft.n_embd} wide and has no embedding or output tensor of its own"
    mask = draft.block.mask if draft.block is not None else 0
    if draft.borrows_embedding and mask >= target.n_vocab:
        return f"its mask token {mask} is outside the target's vocabulary of {target.n_vocab}"
    return ""
