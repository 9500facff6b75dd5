"""What the losslessness tests share: specs of every drafter, plain references, a chi-square."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tiny
from hypothesis import strategies as st

from specctl.drafters.base import Drafter
from specctl.drafters.registry import SPEC_TYPES, Resources, build
from specctl.engine import loop
from specctl.engine.session import Session, open_session
from specctl.engine.steptime import StepTime
from specctl.engine.text import Assembler
from specctl.events import Cycle, Finished
from specctl.metrics import Totals, fold
from specctl.sampling import Stream, law, uniform
from specctl.settings import (
    DraftSettings,
    EngineSettings,
    NgramModSettings,
    NgramSettings,
    Request,
    Sampling,
    SpecSettings,
    limit_drafts,
)

PLAIN = SpecSettings()
K_MAX = 12
# Rounding may differ between a pass of one row and one of several (seen: 0.0007 logits on jitter
# and jitter-qwen3, 0.003 on jitter-swa, none on the clocks). Two logits, or a random number and the
# border it is compared with, that are closer than this may change places. A wrong cache moves
# logits by whole units.
TIE_LOGIT = 8e-3
TIE_NUMBER = 3e-3


def spec_of(*types: str, n: int = 2, k: int = 6, hits: int = 1, **changes: object) -> SpecSettings:
    """Short n-grams, so that every drafter finds something in texts of a hundred tokens."""
    ngram = NgramSettings(size_n=n, size_m=k, min_hits=hits)
    values = {
        "ngram_simple": ngram,
        "ngram_map_k": ngram,
        "ngram_map_k4v": ngram,
        "ngram_mod": NgramModSettings(n_match=n, n_max=k, n_min=0),
        "draft": DraftSettings(n_max=k),
    }
    return SpecSettings(types=types, k=k, **{**values, **changes})


CHAINS = (
    ("ngram-simple", "draft-simple"),
    ("draft-simple", "ngram-mod"),
    ("ngram-mod", "ngram-map-k", "ngram-simple"),
)
ALL_TYPES = (*((name,) for name, kind in SPEC_TYPES.items() if not kind.heads), *CHAINS)


@st.composite
def specs(draw, names: Sequence[tuple[str, ...]] = ALL_TYPES) -> SpecSettings:
    """Any drafter or chain, with any lengths."""
    k = draw(st.integers(1, K_MAX))
    minimum = draw(st.integers(0, k))
    n = draw(st.integers(1, 4))
    p_min = draw(st.sampled_from([0.0, 0.5, 0.9]))
    return spec_of(
        *draw(st.sampled_from(names)),
        n=n,
        k=k,
        hits=draw(st.integers(1, 2)),
        compat=draw(st.booleans()),
        min_accept=draw(st.sampled_from([0.0, 0.0, 0.6])),
        ngram_mod=NgramModSettings(n_match=n, n_max=k, n_min=minimum),
        draft=DraftSettings(n_max=k, n_min=draw(st.sampled_from([0, minimum])), p_min=p_min),
    )


def start(model: Path, draft: Path | None = None, n_ctx: int = 1024) -> Session:
    """A session on one thread with room for every spec of these tests."""
    widest = spec_of(*(["draft-simple"] if draft else ["ngram-simple"]), k=K_MAX)
    return open_session(model, draft, (PLAIN, widest), EngineSettings(n_ctx=n_ctx, threads=1))


@dataclass(frozen=True)
class Run:
    """One generation, folded."""

    tokens: tuple[int, ...]
    totals: Totals
    cycles: tuple[Cycle, ...]
    finished: Finished
    text: str


def run(
    session: Session,
    spec: SpecSettings,
    prompt: Sequence[int],
    n: int | None,
    sampling: Sampling | None = None,
    *,
    stop: tuple[str, ...] = (),
    ignore_eog: bool = True,
) -> Run:
    """Generate `n` tokens after `prompt` and collect what happened."""
    session.use(spec)
    request = Request(tuple(prompt), n, sampling or Sampling(), stop, ignore_eog)
    return collect(session.generate(request))


def collect(records: Iterable[object]) -> Run:
    """All of one generation's records."""
    records = list(records)
    cycles = tuple(r for r in records if isinstance(r, Cycle))
    finished = records[-1]
    assert isinstance(finished, Finished)
    tokens = tuple(token for cycle in cycles for token in cycle.emitted)
    text = "".join(cycle.text for cycle in cycles) + finished.text
    return Run(tokens, fold(records), cycles, finished, text)


def differs(
    reference: Session,
    prompt: Sequence[int],
    plain: Sequence[int],
    other: Sequence[int],
    sampling: Sampling | None = None,
) -> str:
    """Where and how `other` is not `plain`; "" if it is, or if a tie explains the first difference.

    The tie is judged by the reference's own logits in single steps, from a context that never saw
    a rejected token.
    """
    if tuple(plain) == tuple(other):
        return ""
    pairs = enumerate(zip(plain, other, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(plain), len(other)))
    before = [*prompt, *plain[:at]]
    found = f"token {at} of {len(plain)} is {other[at : at + 1]}, plain has {plain[at : at + 1]}"
    if at >= min(len(plain), len(other)):
        return found
    row = reference.replay(before, len(prompt))
    if sampling is None or sampling.greedy:
        best, second = np.sort(row)[::-1][:2]
        return "" if best - second < TIE_LOGIT else f"{found}; logits {best} and {second}"
    number = uniform(sampling.seed, len(before), Stream.TARGET)
    borders = law(row, before, sampling).probs.cumsum()
    distance = float(np.abs(borders - number).min())
    return "" if distance < TIE_NUMBER else f"{found}; drawn {distance} from the nearest border"


# ---------------------------------------------------------------- the loop without a model


class Table:
    """A clock as target or draft, by look-up: the engine's own code at a tenth of the time.

    Gives what `engine.target.Target` and `drafters.small_model.DraftContext` ask for.
    """

    n_ctx = 1 << 20
    n_vocab = tiny.SIZE
    native_seconds = 0.0

    def __init__(self, clock: tiny.Clock) -> None:
        self.rows = np.log(clock.laws()).astype(np.float32)
        self.tokens: list[int] = []

    def follow(self, tokens: Sequence[int]) -> int:
        self.tokens = list(tokens)
        return 0

    def verify(self, tokens: Sequence[int]) -> np.ndarray:
        self.tokens += tokens
        return self.rows[list(tokens)]

    def extend(self, tokens: Sequence[int]) -> np.ndarray:
        return self.verify(tokens)[-1]

    def cut(self, length: int) -> None:
        del self.tokens[length:]


def run_tables(
    target: tiny.Clock,
    draft: tiny.Clock,
    spec: SpecSettings,
    prompt: Sequence[int],
    n: int,
    sampling: Sampling,
    drafter: Drafter | None = None,
) -> Run:
    """As `run`, with the real loop, judge and drafters, and tables for the two models.

    `drafter` takes the place of the one that `spec` names.
    """
    resources = Resources(tiny.SIZE, Table(draft))
    work = loop.Run(
        target=Table(target),
        drafter=drafter or build(limit_drafts(spec)[0], resources),
        request=Request(tuple(prompt), n, sampling, ignore_eog=True),
        assembler=Assembler(lambda token: b""),
        is_eog=lambda token: False,
        step_time=StepTime(),
        started=time.perf_counter(),
    )
    return collect(loop.generate(work))


# ---------------------------------------------------------------- statistics


def chi_square_tail(x: float, freedom: int) -> float:
    """P(chi-square of `freedom` degrees > x): the regularised upper incomplete gamma function.

    Series below, Lentz's continued fraction above the mean (Numerical Recipes, 6.2).
    """
    a, x = freedom / 2, x / 2
    if x <= 0:
        return 1.0
    scale = math.exp(-x + a * math.log(x) - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = a
        while term > total * 1e-15:
            n += 1
            term *= x / n
            total += term
        return 1 - total * scale
    tiny = 1e-300
    b = x + 1 - a
    c, d = 1 / tiny, 1 / b
    h = d
    for i in range(1, 10_000):
        an = -i * (i - a)
        b += 2
        d = 1 / (an * d + b or tiny)
        c = b + an / c or tiny
        h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return scale * h


def transition_tail(
    pairs: Sequence[tuple[int, int]], laws: dict[int, np.ndarray], least: float = 5.0
) -> float:
    """How likely `pairs` (last token, next token) are under `laws`: the chi-square tail.

    Per last token, the cells are the next tokens from the likeliest down while `least` are expected
    in each; the rest is one cell, if `least` are expected there. A token of probability 0 is
    impossible, and so is the sample: 0.0.
    """
    counts: dict[int, dict[int, int]] = {}
    for last, token in pairs:
        if laws[last][token] <= 0:
            return 0.0
        row = counts.setdefault(last, {})
        row[token] = row.get(token, 0) + 1
    x, freedom = 0.0, 0
    for last, row in counts.items():
        n, probs = sum(row.values()), laws[last]
        cells = [int(t) for t in np.argsort(-probs, kind="stable") if probs[t] * n >= least]
        rest = 1 - float(probs[cells].sum())
        observed = [row.get(t, 0) for t in cells]
        expected = [float(probs[t]) * n for t in cells]
        if rest * n >= least:
            observed.append(n - sum(observed))
            expected.append(rest * n)
        if len(expected) > 1:
            # where the rest is too small for a cell of its own, it is left out: scale to what is in
            scale = sum(observed) / sum(expected)
            x += sum(
                (o - e * scale) ** 2 / (e * scale) for o, e in zip(observed, expected, strict=True)
            )
            freedom += len(expected) - 1
    return chi_square_tail(x, freedom)
