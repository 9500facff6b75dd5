"""Which model-bound drafters the files at hand allow, and that every face offers just those."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from specctl.cli import bound
from specctl.cli.bench import _default_type
from specctl.cli.desk import EngineDesk
from specctl.cli.fetching import say_unused_draft
from specctl.cli.tune import _methods
from specctl.cli.verify import _all_types
from specctl.engine.dialogue import Dialogue, Manner
from specctl.engine.session import open_session
from specctl.errors import SpecctlError
from specctl.resolve import Resolved
from specctl.settings import EngineSettings, Sampling, SpecSettings
from specctl.tui.desk import Open

pytestmark = pytest.mark.native

# target, draft, the bound types that its session can run, the one of the draft file
FILES = [
    ("clock", None, (), None),
    ("clock", "clock-draft", ("draft-simple",), "draft-simple"),
    ("clock", "eagle-draft", ("draft-eagle3",), "draft-eagle3"),
    ("mtp", None, ("draft-mtp",), None),
    ("mtp", "eagle-last", ("draft-eagle3",), "draft-eagle3"),
    ("mtp", "hybrid-draft", ("draft-simple", "draft-mtp"), "draft-simple"),
]
EVERY = {"draft-simple", "draft-mtp", "draft-eagle3"}


def files_of(models: Mapping[str, Path], target: str, draft: str | None) -> Resolved:
    return Resolved(models[target], models[draft] if draft else None)


@pytest.mark.parametrize(("target", "draft", "types", "own"), FILES)
def test_told_from_the_files(tiny_models, target, draft, types, own):
    files = files_of(tiny_models, target, draft)
    assert bound.types_of(files.model, files.draft) == types
    assert _methods(files) == (types, frozenset({own} if own else ()))
    assert EVERY & set(_all_types(files)) == set(types)
    assert "auto" in _all_types(files)


@pytest.mark.parametrize(("target", "draft", "types", "own"), FILES)
def test_a_session_runs_them(tiny_models, target, draft, types, own):
    """Each of them, together, as verify opens them; and the screen's menu offers these."""
    files = files_of(tiny_models, target, draft)
    specs = [SpecSettings(types=(name,), k=2) for name in _all_types(files)]
    settings = EngineSettings(n_ctx=256, threads=1)

    def opener(stack: contextlib.ExitStack) -> Dialogue:
        session = stack.enter_context(open_session(files.model, files.draft, specs, settings))
        return Dialogue(session, Manner(Sampling(temperature=0), 8))

    desk = EngineDesk(opener)
    with contextlib.closing(desk):
        list(desk.do(Open()))
        offered = {choice.spec_types for choice in desk.choices()}
        assert {name for (name,) in offered} & EVERY == set(types)
        refused = EVERY - set(types)
        for name in refused:
            with pytest.raises(SpecctlError):
                desk._opened.session.use(SpecSettings(types=(name,), k=2))


def test_bench_tries_the_drafts_own_type(tiny_models):
    assert _default_type(files_of(tiny_models, "clock", "eagle-draft")) == "draft-eagle3"
    assert _default_type(files_of(tiny_models, "clock", "clock-draft")) == "draft-simple"


@pytest.mark.parametrize(
    ("draft", "name", "unused"),
    [
        ("eagle-draft", "draft-eagle3", False),
        ("eagle-draft", "auto", False),
        ("eagle-draft", "ngram-mod", True),
        ("clock-draft", "draft-simple", False),
        ("clock-draft", "draft-mtp", False),  # it has no heads: an error follows
        ("clock-draft", "draft-eagle3", False),
        ("clock-draft", "draft-dspark", False),
        ("eagle-draft", "draft-simple", False),
    ],
)
def test_only_a_draft_that_nothing_uses_is_said_to_be_unused(
    tiny_models, capfd, draft, name, unused
):
    from specctl.cli import render

    render.err.cache_clear()
    say_unused_draft(files_of(tiny_models, "clock", draft), [SpecSettings(types=(name,))])
    assert ("is not used" in capfd.readouterr().err) == unused
