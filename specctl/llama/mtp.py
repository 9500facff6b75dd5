"""Can this file draft with its own MTP heads in this build? Told before anything is loaded.

llama.cpp aborts the process where a context for MTP heads is opened that cannot work.
"""

from __future__ import annotations

from pathlib import Path

from specctl.enginefacts import MTP_ARCHES
from specctl.llama import preflight
from specctl.llama.extras import nextn


def why_not(path: Path) -> str | None:
    """What keeps the MTP heads of `path` from drafting; None: nothing does.

    Raises:
        ModelError: the file is missing or no GGUF.
    """
    if nextn() is None:
        return "this llama-cpp-python build does not give out hidden states"
    facts = preflight.heads(path)
    if facts is None:
        return "this llama-cpp-python build cannot tell which tensors a file has"
    if not facts.declared and not facts.tensors:
        return f"{path.name} has no MTP heads"
    if not facts.tensors:
        return f"{path.name} declares {_heads(facts.declared)}, but their tensors were left out"
    if not facts.declared:
        return (
            f"{path.name} has tensors of MTP heads, but its header does not declare them "
            f"({facts.arch}.nextn_predict_layers)"
        )
    if facts.arch not in MTP_ARCHES:
        return f"llama.cpp runs no MTP heads of {facts.arch}"
    if facts.declared > 1:
        return f"{path.name} has {_heads(facts.declared)} in a chain, of which only one would run"
    return None


def _heads(count: int) -> str:
    return f"{count} MTP head" + ("s" if count > 1 else "")
