"""May this draft's vocabulary draft for that target's? The rule on plain values, for both wings.

llama.cpp's rule (common/speculative.cpp): same tokenizer type, same BOS/EOS handling, sizes at most
128 apart, and the same text for each token from id 5 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_SIZE_DIFFERENCE = 128
FIRST_CHECKED_ID = 5


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the pair rule looks at. `texts[i]` is token i as the file stores it."""

    kind: str  # "bpe", "spm", …: tokenizer.ggml.model
    texts: Sequence[str]
    bos: int | None
    eos: int | None
    add_bos: bool
    add_eos: bool

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.texts)


@dataclass(frozen=True, slots=True)
class Difference:
    """Why two vocabularies do not fit; `token` and the two texts where one token differs."""

    reason: str
    token: int | None = None
    target_text: str | None = None
    draft_text: str | None = None


def first_difference(target: Vocabulary, draft: Vocabulary) -> Difference | None:
    """The first reason why `draft` cannot draft for `target`, or None when it can."""
    if target.kind != draft.kind:
        return Difference(f"tokenizer types differ: target {target.kind}, draft {draft.kind}")
    for what, ours, theirs in (
        ("add-BOS flag", target.add_bos, draft.add_bos),
        ("add-EOS flag", target.add_eos, draft.add_eos),
        ("BOS token", target.bos if target.add_bos else None, draft.bos if draft.add_bos else None),
        ("EOS token", target.eos if target.add_eos else None, draft.eos if draft.add_eos else None),
    ):
        if ours != theirs:
            return Difference(f"{what} differs: target {ours}, draft {theirs}")
    gap = abs(target.size - draft.size)
    if gap > MAX_SIZE_DIFFERENCE:
        return Difference(
            f"sizes differ by {gap} tokens (target {target.size}, draft {draft.size}); "
            f"at most {MAX_SIZE_DIFFERENCE} is padding"
        )
    for token in range(FIRST_CHECKED_ID, min(target.size, draft.size)):
        if target.texts[token] != draft.texts[token]:
            return Difference(
                f"token {token} differs: target {target.texts[token]!r}, "
                f"draft {draft.texts[token]!r}",
                token,
                target.texts[token],
                draft.texts[token],
            )
    return None
