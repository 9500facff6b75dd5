"""Clocks: bigram laws over the tiny vocabulary, and what speculation with them must count.

A clock's next token depends on the last one alone, by a table that is known exactly. From any
prompt its greedy text runs into one cycle through all words. tiny.py writes models that compute it.

Vocabulary: ids 0–255 are the bytes (id = byte), 256–258 the specials, 259–319 the words " amber",
" anchor", …; a word with a space before it is one token, all else falls to bytes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.int64]  # token → token

WORDS = (  # noqa: SIM905 - sixty-one pairs of quotes help nobody
    "amber anchor apple arrow autumn basin beacon birch bison blade bloom border bottle branch "
    "brave bread bridge bright bronze brook bucket button cabin candle canyon carbon castle cedar "
    "chalk cherry circle cliff clover cobalt comet copper coral cotton crane creek crystal cycle "
    "dancer delta desert diamond dragon drift eagle early ember engine fabric falcon feather fern "
    "field flame flint forest fossil"
).split()

END_OF_TEXT, IM_START, IM_END = 256, 257, 258
FIRST_WORD = 259
SIZE = FIRST_WORD + len(WORDS)  # 320
EMOJI = "😀"  # F0 9F 98 80

P_FIRST, P_SECOND = 0.70, 0.20  # the target's p(f), p(g); the rest is spread evenly
Q_FIRST, Q_SECOND = 0.60, 0.30  # the same of the clock draft
DISAGREE = 0.25  # share of the words after which the clock draft bets on g

P_UNSURE = (0.40, 0.35)  # the two likeliest, where a draft is unsure


def word(text: str) -> int:
    """The token of " text"."""
    return FIRST_WORD + WORDS.index(text)


@dataclass(frozen=True)
class Clock:
    """`first[v]` is the likeliest token after v, `second[v]` the next likeliest.

    `law(v)[w]` = P(w | v): `p_first`, `p_second` (after `unsure` tokens `P_UNSURE`), and the rest
    evenly over all other tokens.
    """

    first: Table
    second: Table
    p_first: float
    p_second: float
    unsure: frozenset[int] = frozenset()

    def law(self, token: int) -> NDArray[np.float64]:
        """The exact distribution after `token`, [SIZE]."""
        first, second = P_UNSURE if token in self.unsure else (self.p_first, self.p_second)
        out = np.full(SIZE, (1 - first - second) / (SIZE - 2))
        out[self.first[token]] = first
        out[self.second[token]] = second
        return out

    def laws(self) -> NDArray[np.float64]:
        """[v, w] = P(w | v)."""
        return np.stack([self.law(v) for v in range(SIZE)])

    def greedy(self, last: int, n: int) -> list[int]:
        """The `n` tokens that greedy decoding gives after `last`."""
        out: list[int] = []
        for _ in range(n):
            last = int(self.first[last])
            out.append(last)
        return out


def _cycle(tokens: Iterable[int], rng: np.random.Generator) -> dict[int, int]:
    """One single cycle through all of `tokens`, in random order."""
    order = [int(t) for t in rng.permutation(list(tokens))]
    return dict(zip(order, order[1:] + order[:1], strict=True))


def _tables(seed: int = 1) -> tuple[Table, Table]:
    """`first` (a cycle through the words; all else leads into it) and `second`, another cycle.

    Nowhere equal, and no token follows itself: text never gets stuck.
    """
    rng = np.random.default_rng(seed)
    words = list(range(FIRST_WORD, SIZE))
    likeliest = _cycle(words, rng)
    other = _cycle(words, rng)
    while any(likeliest[w] == other[w] for w in words):
        other = _cycle(words, rng)
    first = [likeliest.get(v, words[(v * 7 + 3) % len(words)]) for v in range(SIZE)]
    second = [other.get(v, words[(v * 7 + 11) % len(words)]) for v in range(SIZE)]
    return np.array(first), np.array(second)


def clock_target() -> Clock:
    """The target of the clock pair."""
    return Clock(*_tables(), P_FIRST, P_SECOND)


def clock_draft() -> Clock:
    """Its draft: on `disagreeing()` words it takes the target's second choice for the first."""
    first, second = _tables()
    first, second = first.copy(), second.copy()
    for v in disagreeing():
        first[v], second[v] = second[v], first[v]
    return Clock(first, second, Q_FIRST, Q_SECOND)


def clock_draft_unsure() -> Clock:
    """The draft, unsure after every third word: below p-min 0.5 there, whichever it would draw."""
    draft = clock_draft()
    return dataclasses.replace(draft, unsure=frozenset(range(FIRST_WORD, SIZE, 3)))


def disagreeing() -> frozenset[int]:
    """The words after which the clock draft's greedy choice is wrong."""
    words = np.random.default_rng(2).permutation(np.arange(FIRST_WORD, SIZE))
    return frozenset(int(w) for w in words[: round(DISAGREE * len(WORDS))])


def clock_acceptance(token: int) -> float:
    """Probability that a draft sampled after `token` is accepted: Σ min(p, q), exact."""
    return float(np.minimum(clock_target().law(token), clock_draft().law(token)).sum())


def clock_through(path: Iterable[int], back_to: int) -> Clock:
    """The clock target, but its cycle takes a detour: `back_to`'s predecessor → path → back_to."""
    first, second = _tables()
    first, second = first.copy(), second.copy()
    before = int(np.flatnonzero(first[FIRST_WORD:] == back_to)[0]) + FIRST_WORD
    for a, b in itertools.pairwise([before, *path, back_to]):
        first[a] = b
        if second[a] == b:
            second[a] = word("amber") if b != word("amber") else word("anchor")
    return Clock(first, second, P_FIRST, P_SECOND)


def clock_emoji() -> Clock:
    """A clock that says an emoji in four byte tokens once per cycle, before " amber"."""
    return clock_through(EMOJI.encode(), word("amber"))


def clock_broken_utf8() -> Clock:
    """A clock that says the first two bytes of an emoji and then " amber": never valid UTF-8."""
    return clock_through(EMOJI.encode()[:2], word("amber"))


def clock_eog() -> Clock:
    """A clock that says `<|im_end|>` once per cycle, before " amber"; it goes on if not stopped."""
    return clock_through([IM_END], word("amber"))


@dataclass(frozen=True)
class Walk:
    """What greedy speculation with the clock pair must count, exactly."""

    tokens: tuple[int, ...]
    cycles: int
    drafted: int
    accepted: int


def walk(
    last: int,
    n: int,
    k: int,
    target: Clock | None = None,
    draft: Clock | Sequence[Clock] | None = None,
    *,
    calibrate: int = 0,
    refresh: int = 1 << 30,
) -> Walk:
    """Greedy speculation by table: `n` tokens after the prompt's `last`, drafts of up to `k`.

    A cycle never drafts more than the tokens still wanted less the target's own. The first
    `calibrate` cycles are plain, and one after every `refresh` drafted ones in a row. Of several
    draft clocks the i-th gives the i-th token of a draft.
    """
    target, draft = target or clock_target(), draft or clock_draft()
    clocks = [draft] * k if isinstance(draft, Clock) else list(draft)[:k]
    tokens: list[int] = []
    cycles = drafted = accepted = in_a_row = 0
    while len(tokens) < n:
        limit = min(len(clocks), n - len(tokens) - 1)
        if cycles < calibrate or in_a_row >= refresh:
            limit = 0
        proposal: list[int] = []
        for clock in clocks[:limit]:
            proposal += clock.greedy(proposal[-1] if proposal else last, 1)
        truth = target.greedy(last, len(proposal) + 1)
        stood = 0
        while stood < len(proposal) and proposal[stood] == truth[stood]:
            stood += 1
        tokens += truth[: stood + 1]
        cycles, drafted, accepted = cycles + 1, drafted + len(proposal), accepted + stood
        in_a_row = in_a_row + 1 if proposal else 0
        last = tokens[-1]
    return Walk(tuple(tokens), cycles, drafted, accepted)
