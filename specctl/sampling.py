"""Logits to laws, and the random numbers that draw from them.

The judge uses it for the target, drafters that sample use it for their drafts. Random numbers are
counter-based: a draw depends on (seed, position, stream) alone, so a point-mass draft is checked
with the very number plain decoding would have used there, and for one seed the text is the same.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import TYPE_CHECKING

from specctl.settings import Sampling

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Logits = NDArray[np.float32]
    Mask = Callable[[Logits, int], Logits]  # (logits, n) → a copy, right in its n largest; 0: all


_COUNTER = struct.Struct("<QQBQ")  # seed, position, stream, attempt
_NUCLEUS = 1024  # tokens that top-p sorts at first


class Stream(IntEnum):
    """Independent random numbers at one position."""

    TARGET = 0  # plain decoding, the bonus token, checks of point-mass drafts
    DRAFT = 1  # the draft's own draw
    ACCEPT = 2  # min(1, p/q)
    RESIDUAL = 3  # max(0, p - q), normalised


@dataclass(frozen=True, slots=True)
class Law:
    """A distribution over tokens: `probs[i]` (float64, sums to 1) for `ids[i]`, others have 0.

    `ids` are ascending.
    """

    ids: NDArray[np.int64]
    probs: NDArray[np.float64]

    def prob(self, token: int) -> float:
        """The probability of one token."""
        index = int(self.ids.searchsorted(token))
        if index < len(self.ids) and self.ids[index] == token:
            return float(self.probs[index])
        return 0.0

    def draw(self, number: float) -> int:
        """The token at `number` in [0, 1) of the cumulated probabilities, never one of 0."""
        cumulated = self.probs.cumsum()
        index = int(cumulated.searchsorted(number * cumulated[-1], side="right"))
        last = int(cumulated.searchsorted(cumulated[-1]))  # the last that has a probability
        return int(self.ids[min(index, last)])


def uniform(seed: int, position: int, stream: Stream, attempt: int = 0) -> float:
    """The number in [0, 1) that belongs to this seed, position and stream: 53 bits of BLAKE2b.

    A position may be drafted several times until it is verified; `attempt` tells these draws apart,
    so that no number decides twice.

    A hash and not numpy's Philox because building one of its generators per number costs 32 µs, and
    a cycle of K drafted tokens asks for up to 2 K + 1 of them; this is below 1 µs.
    """
    key = _COUNTER.pack(seed, position, stream, attempt)
    return (int.from_bytes(blake2b(key, digest_size=8).digest(), "little") >> 11) * 2.0**-53


def penalise(logits: Logits, history: Sequence[int], sampling: Sampling) -> Logits:
    """A copy of `logits` with repeat, frequency and presence penalties of the last tokens.

    As llama.cpp's penalties sampler: repeat divides positive logits and multiplies negative ones;
    frequency is taken off per occurrence, presence once. Tokens beyond the row (a draft's
    vocabulary may be shorter) are left out.
    """
    import numpy as np

    recent = history[-sampling.penalty_last_n :] if sampling.penalty_last_n else ()
    if not len(recent):
        return logits
    ids, counts = np.unique(np.asarray(recent, dtype=np.int64), return_counts=True)
    known = ids < len(logits)
    ids, counts = ids[known], counts[known]
    out = logits.copy()
    seen = out[ids]
    seen = np.where(seen > 0, seen / sampling.repeat_penalty, seen * sampling.repeat_penalty)
    out[ids] = seen - counts * sampling.frequency_penalty - sampling.presence_penalty
    return out


def best(
    logits: Logits, history: Sequence[int], sampling: Sampling, mask: Mask | None = None
) -> int:
    """The greedy token: the largest logit after penalties; the lowest id on an exact tie.

    `mask` takes away what may not come next.
    """
    if sampling.penalised:
        logits = penalise(logits, history, sampling)
    if mask is not None:
        logits = mask(logits, 1)
    return int(logits.argmax())


def law(
    logits: Logits, history: Sequence[int], sampling: Sampling, mask: Mask | None = None
) -> Law:
    """The target's law at one position after the whole chain, for temperature > 0.

    Chain: penalties, `mask`, top-k, top-p, min-p, temperature; top-p and min-p look at the
    probabilities before the temperature, as in llama.cpp. Among equal logits the lower id is kept.
    Logits that are no numbers give a law of NaN.
    """
    import numpy as np

    if sampling.penalised:
        logits = penalise(logits, history, sampling)
    if mask is not None:
        logits = mask(logits, sampling.top_k)
    peak = float(logits.max())
    if not math.isfinite(peak):
        return Law(np.zeros(1, np.int64), np.full(1, np.nan))
    ids = _largest(logits, sampling.top_k)
    order = logits[ids]
    values = order.astype(np.float64) - peak
    probs = np.exp(values)
    if sampling.top_p < 1:
        kept = _nucleus(order, probs / probs.sum(), sampling.top_p)
        ids, values, probs = ids[kept], values[kept], probs[kept]
    if sampling.min_p > 0:  # probs are still relative to the best one
        kept = np.flatnonzero(probs >= sampling.min_p)
        ids, values = ids[kept], values[kept]
    probs = np.exp(values / sampling.temperature)
    return Law(ids, probs / probs.sum())


def _largest(logits: Logits, top_k: int) -> NDArray[np.int64]:
    """Ids of the `top_k` largest logits (all when 0), ascending; never a -inf."""
    import numpy as np

    if not 0 < top_k < len(logits):
        return np.flatnonzero(logits > -np.inf)
    edge = np.partition(logits, len(logits) - top_k)[len(logits) - top_k]
    ids = np.flatnonzero(logits >= max(edge, np.finfo(np.float32).min))
    if len(ids) > top_k:  # ties at the edge: the lower ids stay
        above = np.flatnonzero(logits > edge)
        ties = ids[logits[ids] == edge][: top_k - len(above)]
        ids = np.sort(np.concatenate([above, ties]))
    return ids


def _nucleus(logits: Logits, probs: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Indices (ascending) of the fewest likeliest tokens that hold `top_p` together.

    Sorting all of a large vocabulary costs 80 ms; the likeliest thousand nearly always hold it.
    """
    import numpy as np

    likeliest = np.arange(len(logits))
    count = _NUCLEUS
    while count < len(logits):
        edge = np.partition(logits, len(logits) - count)[len(logits) - count]
        above = np.flatnonzero(logits > edge)  # without the edge: its ties might be cut apart
        if probs[above].sum() > top_p:
            likeliest = above
            break
        count *= 8
    likeliest = likeliest[np.argsort(-logits[likeliest], kind="stable")]
    count = int(probs[likeliest].cumsum().searchsorted(top_p, side="left")) + 1
    return np.sort(likeliest[:count])


def residual(target: Law, draft: Law) -> Law:
    """max(0, p - q), normalised: where a rejected sampled draft is drawn again.

    Leviathan et al. 2023 (arXiv 2211.17192). Where p and q agree everywhere nothing can be
    rejected, but for rounding: then p itself.
    """
    import numpy as np

    q = np.zeros(len(target.ids))
    index = np.minimum(draft.ids.searchsorted(target.ids), len(draft.ids) - 1)
    found = draft.ids[index] == target.ids
    q[found] = draft.probs[index[found]]
    rest = np.maximum(target.probs - q, 0.0)
    total = rest.sum()
    return Law(target.ids, rest / total) if total > 0 else target
