"""Can this file draft with its own MTP heads in this build? Told before anything is loaded.

llama.cpp aborts the process where a context for MTP heads is opened that cannot work.
"""

from __future__ import annotations

from pathlib import Path

from specctl.enginefacts import ASSISTANT, ASSISTANT_TARGET, MTP_ARCHES, MTP_CHAINS
from specctl.llama import preflight
from specctl.llama.extras import nextn, nextn_layer, shares_context


def why_not(path: Path) -> str | None:
    """What keeps the MTP heads of `path` from drafting; None: nothing does.

    An assistant counts as heads in a file of their own; whether it fits a target is told elsewhere
    (sharedkv.py).

    Raises:
        ModelError: the file is missing or no GGUF.
    """
    if nextn() is None:
        return "this llama-cpp-python build does not give out hidden states"
    facts = preflight.heads(path)
    if facts is None:
        return "this llama-cpp-python build cannot tell which tensors a file has"
    return _not_there(facts, path.name) or _not_run(facts, path.name)


def _not_there(facts: preflight.HeadFacts, name: str) -> str | None:
    """What the file lacks."""
    if not facts.declared and not facts.tensors:
        if facts.arch == ASSISTANT_TARGET:
            return f"{name} has none; its assistant, a file of its own, has: --draft FILE"
        return f"{name} has no MTP heads"
    if not facts.tensors:
        return f"{name} declares {_heads(facts.declared)}, but their tensors were left out"
    if not facts.declared:
        return (
            f"{name} has tensors of MTP heads, but its header does not declare them "
            f"({facts.arch}.nextn_predict_layers)"
        )
    return None


def _not_run(facts: preflight.HeadFacts, name: str) -> str | None:
    """What llama.cpp does not run."""
    if facts.arch == ASSISTANT:
        known = shares_context()
        return None if known else "this llama-cpp-python build shares no KV cache with a draft"
    if facts.arch not in MTP_ARCHES:
        return f"llama.cpp runs no MTP heads of {facts.arch}"
    if facts.declared > 1 and facts.arch not in MTP_CHAINS:
        return f"{name} has {_heads(facts.declared)} in a chain; of {facts.arch} llama.cpp runs one"
    if facts.declared > 1 and nextn_layer() is None:
        return f"this llama-cpp-python build cannot choose between {_heads(facts.declared)}"
    if facts.tensors < facts.declared:
        return f"{name} declares {_heads(facts.declared)} and holds the tensors of {facts.tensors}"
    if facts.lacking:
        return f"{name} has no tensor {facts.lacking}, without which llama.cpp would abort"
    return None


def _heads(count: int) -> str:
    return f"{count} MTP head" + ("s" if count > 1 else "")
