"""A header's tokenizer as a `Vocabulary`, with llama.cpp's defaults for keys that are absent."""

from __future__ import annotations

from dataclasses import dataclass, field

from specctl.gguf.header import Header
from specctl.vocabulary import Vocabulary

# tokenizer.ggml.model → (kind, BOS, EOS, add BOS, add EOS): llama-vocab.cpp, commit 0c1e570
_DEFAULTS: dict[str, tuple[str, int | None, int | None, bool, bool]] = {
    "gpt2": ("bpe", 11, 11, False, False),
    "hybriddna": ("bpe", 11, 11, False, False),
    "whitespace": ("bpe", 11, 11, False, False),
    "gemma4": ("bpe", None, None, True, False),
    "llama": ("spm", 1, 2, True, False),
    "bert": ("wpm", 101, None, True, False),
    "t5": ("ugm", None, 1, False, True),
    "rwkv": ("rwkv", None, None, False, False),
    "plamo2": ("plamo2", 1, 2, False, False),
}
_BOS_BY_PRE = frozenset(
    {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"}
    | {"jina-v5-nano", "tekken", "chameleon"}
)
_NO_BOS_BY_PRE = frozenset({"chatglm-bpe", "glm4", "glm5"})


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Vocabulary, pre-tokenizer name, and a digest of all token texts in order."""

    vocabulary: Vocabulary = field(repr=False)
    pre: str
    sha256: str


def tokenizer_of(header: Header) -> Tokenizer | None:
    """The tokenizer, or None where the file has none."""
    model = header.text("tokenizer.ggml.model")
    texts = header.strings("tokenizer.ggml.tokens")
    if model is None or texts is None:
        return None
    kind, bos, eos, add_bos, add_eos = _DEFAULTS.get(model, (model, None, None, False, False))
    pre = header.text("tokenizer.ggml.pre") or ""
    add_bos = add_bos or (kind == "bpe" and pre in _BOS_BY_PRE)
    if pre in _NO_BOS_BY_PRE:
        bos = None
    flag = header.number("tokenizer.ggml.add_bos_token")
    vocabulary = Vocabulary(
        kind=kind,
        texts=texts,
        bos=_special(header, "bos", bos, len(texts)),
        eos=_special(header, "eos", eos, len(texts)),
        add_bos=add_bos if flag is None or model == "gemma4" else bool(flag),
        add_eos=_flag(header, "tokenizer.ggml.add_eos_token", add_eos),
    )
    return Tokenizer(vocabulary, pre, texts.sha256)


def _flag(header: Header, key: str, default: bool) -> bool:
    value = header.number(key)
    return default if value is None else bool(value)


def _special(header: Header, which: str, default: int | None, size: int) -> int | None:
    """A special token's id; one outside the vocabulary is ignored, as llama.cpp does."""
    token = header.number(f"tokenizer.ggml.{which}_token_id")
    if token is not None and 0 <= token < size:
        return token
    return default if default is not None and default < size else None
