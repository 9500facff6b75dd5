"""Stopped while a follower reads the prompt beside the target: the next text is as if it never was.

The target has decoded its pass by then, so what both hold would not fit together any more.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny
from lossless_kit import PLAIN, collect, differs, run, spec_of

from specctl.engine.session import Session, open_session
from specctl.errors import ModelError
from specctl.settings import EngineSettings, ModelSettings, Request, SpecSettings

pytestmark = pytest.mark.native

F32 = ModelSettings(kv_type_k="f32", kv_type_v="f32")
SETTINGS = EngineSettings(
    n_ctx=1024, threads=1, n_batch=128, n_ubatch=128, flash_attn="off", target=F32, draft=F32
)
KINDS = [
    ("jitter", "dflash-loud", "draft-dflash"),
    ("jitter", "eagle-loud", "draft-eagle3"),
    ("hybrid", "dflash-loud", "draft-dflash"),
    ("mtp", None, "draft-mtp"),
    ("chain-hy_v3-laws", None, "draft-mtp"),
]


def prompt_of(seed: int, length: int) -> list[int]:
    rng = np.random.default_rng(seed)
    return [int(token) for token in rng.integers(tiny.FIRST_WORD, tiny.SIZE, length)]


def stop_in_pass(session: Session, spec: SpecSettings, nth: int, prompt: list[int]) -> None:
    """Begin `prompt`, and ask to stop when the follower comes to its `nth` native call."""
    session.use(spec)
    session._feed()
    follower = session._opened.heads
    assert follower is not None
    calls = 0
    run_it = follower._run

    def stopping(call: object, batch: object) -> None:
        nonlocal calls
        calls += 1
        if calls == nth:
            session.cancel.set()
        run_it(call, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower, "_run", stopping)
        got = collect(session.generate(Request(tuple(prompt), 30, ignore_eog=True)))
    assert got.finished.reason == "cancelled"
    assert calls == nth


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize(("target", "draft", "spec_type"), KINDS)
def test_then_gone_on_with(
    tiny_models: dict[str, Path], target: str, draft: str | None, spec_type: str, nth: int
) -> None:
    spec = spec_of(spec_type, n=1, k=3)
    prompt = prompt_of(3, 600)
    texts = [prompt, prompt[:400] + prompt_of(4, 40), prompt + prompt_of(5, 20)]
    path, beside = tiny_models[target], tiny_models[draft] if draft else None
    with (
        open_session(path, None, (PLAIN,), SETTINGS) as plain,
        open_session(path, beside, (spec,), SETTINGS) as tried,
    ):
        stop_in_pass(tried, spec, nth, prompt)
        drafted = 0
        for text in texts:
            wanted = run(plain, PLAIN, text, 20).tokens
            got = run(tried, spec, text, 20)
            assert differs(plain, text, wanted, got.tokens) == ""
            drafted += got.totals.drafted
        assert drafted > 0


def test_a_follower_that_cannot_start_leaves_nothing_recorded(
    tiny_models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every plain pass would copy rows for nobody."""
    few, many = (spec_of("draft-dflash", n=1, k=k) for k in (2, 5))
    prompt = prompt_of(1, 40)
    path, draft = tiny_models["clock"], tiny_models["dflash-borrow"]
    with open_session(path, draft, (few,), EngineSettings(n_ctx=1024, threads=1)) as session:
        run(session, few, prompt, 20)
        session.use(many)

        def no_room(*_: object) -> None:
            raise ModelError("no room")

        switched: list[bool] = []
        give = session.context._give
        with monkeypatch.context() as patch:
            patch.setattr("specctl.llama.blockdraft.open_context", no_room)
            patch.setattr(
                session.context,
                "_give",
                lambda tap, on: (switched.append(on), give(tap, on)) if tap else None,
            )
            with pytest.raises(ModelError, match="no room"):
                run(session, many, prompt, 20)
        assert switched == [True, False]
        again = run(session, many, prompt, 20)
        assert again.totals.drafted > 0
