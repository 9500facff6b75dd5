"""Models that do not write token by token are refused, not decoded."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny

from specctl.engine.session import open_session
from specctl.errors import ModelError
from specctl.settings import EngineSettings

pytestmark = pytest.mark.native


def test_a_diffusion_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "masked.gguf"
    tiny.write_dense(path, tiny._jitter_head(), arch="llada")
    with pytest.raises(ModelError, match=r"masked\.gguf \(llada\).*diffusion"):
        open_session(path, settings=EngineSettings(n_ctx=256, threads=1))
