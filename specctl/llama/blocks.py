"""The block of a DFlash or DSpark draft, as its header tells it, and what llama.cpp aborts on.

Such a draft reads one pass of `size` rows: the last token of the text, then masks. From each of its
rows on it guesses a token: DFlash reads the masks, each row for itself; DSpark also the row of the
last token, and its Markov head leans each guess on the one before, inside the same pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from specctl.enginefacts import BLOCK_MOST, BLOCK_USUAL, room_for_chain
from specctl.llama.header import Header

_SIZE, _CAUSAL = "dflash.block_size", "dflash.attention.causal"
_ANCHOR, _STREAMS = "dflash.sample_from_anchor", "dflash.hyper_connection.count"
_MASK = "tokenizer.ggml.mask_token_id"


@dataclass(frozen=True, slots=True)
class Block:
    """`size` rows, of which those from `first` on are guesses: `most` tokens. `mask` fills them.

    `causal`: a row does not see those after it. `confident`: the file has a head that tells how
    likely each guess is to be accepted.
    """

    size: int
    mask: int
    first: int
    causal: bool
    confident: bool

    @property
    def most(self) -> int:
        """Tokens of a draft."""
        return self.size - self.first


def read(file: Header, kind: str) -> Block:
    """Of a file of this kind; -1 for a mask that it does not name."""
    spark = kind == "dspark"
    size = file.number(_SIZE) if spark or file.has_key(_SIZE) else BLOCK_USUAL
    return Block(
        size=size,
        mask=file.number(_MASK) if file.has_key(_MASK) else -1,
        first=0 if spark and file.flag(_ANCHOR, True) else 1,
        causal=file.flag(_CAUSAL, False),
        confident=spark and file.has("conf_proj.weight"),
    )


def wrong(file: Header, kind: str, block: Block) -> str:
    """Why it cannot draft whatever the target; empty where it can."""
    if file.has_key(_STREAMS):
        return "it is made of DeepSeek-V4's layers (hyper-connections), which are not run here"
    layers = file.number("dflash.block_count")
    if not layers:
        return "it has no layers"
    if block.most < 1:
        return f"its blocks are {block.size} tokens long (block_size), which leaves none to guess"
    if block.size > BLOCK_MOST:
        return f"its blocks are {block.size} tokens long, and at most {BLOCK_MOST} are run here"
    if kind == "dspark" and not room_for_chain(
        block.size, layers, file.n_tensors, mapped=file.has("d2t"), confident=block.confident
    ):
        return f"llama.cpp has no room for a chain over blocks of {block.size} tokens"
    if block.mask < 0:
        return "it does not name its mask token (tokenizer.ggml.mask_token_id)"
    if block.mask >= file.vocabulary():
        return f"its mask token {block.mask} is outside its vocabulary of {file.vocabulary()}"
    return ""
