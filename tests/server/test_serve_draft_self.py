"""`draft-self` is a name for the server too."""

from __future__ import annotations

import signal
import sys

import pytest

pytestmark = [pytest.mark.native, pytest.mark.skipif(sys.platform == "win32", reason="signals")]


def test_it_says_what_it_became(serve, tiny_models):
    server = serve("-m", str(tiny_models["clock"]), "-s", "draft-self", "--ctx", "512")
    said = " ".join(" ".join(server.lines).split())
    assert "draft-self is ngram-map-k here: no draft was made from clock.gguf" in said
    assert " is ready" in server.lines[-1]
    assert server.stop(signal.SIGINT) == 0


def test_a_wrong_name_is_still_refused(serve, tiny_models):
    server = serve("-m", str(tiny_models["clock"]), "-s", "draft-selfish")
    assert server.process.wait(20) == 2
    assert "'draft-selfish' is not a spec type" in " ".join(server.lines)
