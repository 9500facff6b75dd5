"""Functions of llama.cpp outside its public header, found by name; None where a build lacks them.

They are C++ symbols: plain, as Itanium's rules write them (Linux, macOS), as Microsoft's do
(untested).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specctl.llama.api import library, symbol

_SWITCH = (
    "llama_set_embeddings_nextn",
    "_Z26llama_set_embeddings_nextnP13llama_contextbb",
    "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
)
_ROWS = (
    "llama_get_embeddings_nextn",
    "_Z26llama_get_embeddings_nextnP13llama_context",
    "?llama_get_embeddings_nextn@@YAPEAMPEAUllama_context@@@Z",
)


@dataclass(frozen=True, slots=True)
class NextN:
    """Hidden states before the head, which MTP heads read.

    `switch(context, on, masked)`: masked keeps the rows of outputs only. `rows(context)` is the
    address of float32 rows as wide as the model's output embedding; it moves, so it is asked for
    after every decode.
    """

    switch: Callable[[Any, bool, bool], None]
    rows: Callable[[Any], int | None]


@functools.cache
def nextn() -> NextN | None:
    """The two functions, or None: then this build can run no MTP heads."""
    pointer, flag = ctypes.c_void_p, ctypes.c_bool
    switch = _first(_SWITCH, None, pointer, flag, flag)
    rows = _first(_ROWS, pointer, pointer)
    lib = library()
    known = hasattr(lib.llama_context_default_params(), "ctx_type") and hasattr(
        lib.llama_model_default_params(), "load_mtp"
    )
    return NextN(switch, rows) if switch is not None and rows is not None and known else None


def _first(names: tuple[str, ...], result: Any, *arguments: Any) -> Any | None:
    found = (symbol(name, result, *arguments) for name in names)
    return next((function for function in found if function is not None), None)
