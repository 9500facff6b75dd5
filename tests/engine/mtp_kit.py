"""What the tests of draft-mtp share: targets with their heads, and drafts of fresh heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import tiny
from lossless_kit import PLAIN, TIE_LOGIT, Run, differs, run, spec_of

from specctl.engine.session import Session, open_session
from specctl.settings import EngineSettings, SpecSettings

# one head of a hybrid, one beside a KV cache, three in a chain, an assistant: target, file of heads
PAIRS = {
    "mtp": ("mtp", None),
    "mtp-glm": ("mtp-glm", None),
    "chain": ("chain-hy_v3", None),
    "assistant": ("gemma4", "assistant"),
}
MTP = spec_of("draft-mtp", k=4)
CHAIN = spec_of("ngram-suffix", "draft-mtp", n=1, k=4)
Trio = tuple[Session, Session, Session]


def prompt_of(seed: int, length: int = 24) -> list[int]:
    return [
        int(t) for t in np.random.default_rng(seed).integers(tiny.FIRST_WORD, tiny.SIZE, length)
    ]


def begin(
    models: Mapping[str, Path],
    pair: str,
    *specs: SpecSettings,
    n_ctx: int = 1024,
    **how: int | str,
) -> Session:
    """A session with heads: of a pair's name, or of any target's that has them in its file."""
    target, draft = PAIRS.get(pair, (pair, None))
    chosen = EngineSettings(n_ctx=n_ctx, threads=1, **how)  # type: ignore[arg-type]
    file = models[draft] if draft is not None else None
    return open_session(models[target], file, specs or (MTP,), chosen)


def stale(fresh: Session, prompt: Sequence[int], got: Run, least: int = 3) -> int:
    """In how many cycles the draft is not that of heads that have just read the text."""
    whole = [*prompt, *got.tokens]
    fresh._feed()
    heads = fresh._opened.heads
    assert heads is not None
    found = seen = 0
    for cycle in got.cycles:
        if cycle.source != "draft-mtp":
            continue
        fresh.context.clear()
        fresh.context.follow(whole[: cycle.n_past])
        heads.follow(whole[: cycle.n_past])
        unread = whole[len(heads.tokens) : cycle.n_past + 1]
        for token in cycle.drafted:
            row = heads.extend(unread)
            if row.max() - row[token] > TIE_LOGIT:
                found += 1
                break
            unread = [token]
        seen += 1
    assert seen >= least
    return found


def drafts_are_fresh(trio: Trio, spec: SpecSettings = MTP, length: int = 24) -> bool:
    """Is every draft that of fresh heads, and the text plain decoding's?

    `length` is half of the prompt's.
    """
    plain, tried, fresh = trio
    wrong = 0
    for seed in range(3):
        prompt = prompt_of(seed, length) * 2
        got = run(tried, spec, prompt, 80)
        assert differs(plain, prompt, run(plain, PLAIN, prompt, 80).tokens, got.tokens) == ""
        wrong += stale(fresh, prompt, got)
    return wrong == 0


def noticed(
    tried: Session,
    fresh: Session,
    breaks: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> int:
    """Of four texts, in how many a draft is not that of fresh heads, or an error is raised."""
    wrong = 0
    for seed in range(4):
        prompt = prompt_of(seed)
        tried.reset()
        fresh.reset()
        with monkeypatch.context() as patch:
            breaks(patch)
            try:
                got = run(tried, MTP, prompt, 60)
            except Exception:  # also noticed
                wrong += 1
                tried._opened.heads.clear()
                continue
        wrong += stale(fresh, prompt, got) > 0
    return wrong
