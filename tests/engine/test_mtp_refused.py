"""draft-mtp: files and builds with which it cannot be used are refused with the reason."""

from __future__ import annotations

import pytest
from lossless_kit import PLAIN, run, spec_of
from mtp_kit import CHAIN, MTP, begin, prompt_of

import specctl.llama.mtp
from specctl.engine.session import open_session
from specctl.errors import ModelError, PairError, UsageError

pytestmark = pytest.mark.native


def test_heads_of_another_model_are_refused(tiny_models):
    for target in ("jitter-qwen3", "mtp-glm"):
        with pytest.raises(PairError, match="are not for"):
            open_session(tiny_models[target], tiny_models["mtp-only"], (MTP,))
    with pytest.raises(ModelError, match="only MTP heads"):
        begin(tiny_models, "mtp-only")
    with pytest.raises(ModelError, match="only MTP heads"):
        begin(tiny_models, "mtp-only", PLAIN)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hybrid", "has no MTP heads"),
        ("clock", "has no MTP heads"),
        ("mtp-no-tensors", "their tensors were left out"),
        ("mtp-no-key", "does not declare them"),
        ("mtp-two", "2 MTP heads in a chain"),
        ("mtp-elsewhere", "no MTP heads of llama"),
    ],
)
def test_heads_that_cannot_draft_are_refused(tiny_models, name, said):
    for spec in (MTP, CHAIN):
        with pytest.raises(UsageError, match=said):
            begin(tiny_models, name, spec)


def test_a_build_without_the_functions_is_told(tiny_models, monkeypatch):
    monkeypatch.setattr(specctl.llama.mtp, "nextn", lambda: None)
    with pytest.raises(UsageError, match="does not give out hidden states"):
        begin(tiny_models, "mtp")
    with begin(tiny_models, "mtp", spec_of("auto")) as session:  # which does without
        assert run(session, spec_of("auto"), prompt_of(1), 20).tokens


def test_auto_does_without_heads_that_do_not_fit(tiny_models, monkeypatch):
    def failing(*_: object, **__: object) -> None:
        raise ModelError("no room")

    monkeypatch.setattr("specctl.engine.heads.Heads", failing)
    with begin(tiny_models, "mtp", spec_of("auto")) as session:
        assert any("without the MTP heads: no room" in note for note in session.notes)
        assert run(session, spec_of("auto"), prompt_of(1), 20).tokens
    with pytest.raises(ModelError, match="no room"):
        begin(tiny_models, "mtp")


def test_heads_that_were_not_loaded_are_told(tiny_models):
    with begin(tiny_models, "mtp", PLAIN) as session:
        with pytest.raises(UsageError, match="loaded without its MTP heads"):
            session.use(MTP)
        assert run(session, PLAIN, prompt_of(1), 20).tokens


def test_files_that_cannot_draft_still_run_plainly(tiny_models):
    for name in ("mtp", "mtp-glm"):
        with begin(tiny_models, name, PLAIN) as session:
            assert run(session, PLAIN, prompt_of(1), 20).tokens
