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
_LAYER_SWITCH = (
    "llama_set_embeddings_layer_inp",
    "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
    "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
)
_LAYER_ROWS = (
    "llama_get_embeddings_layer_inp",
    "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
    "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
)
_LAYER = (
    "llama_set_nextn_layer_offset",
    "_Z28llama_set_nextn_layer_offsetP13llama_contexti",
    "?llama_set_nextn_layer_offset@@YAXPEAUllama_context@@H@Z",
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


@functools.cache
def nextn_layer() -> Callable[[Any, int], None] | None:
    """Chooses the MTP head of the next passes of a context, from 0; one that is not there aborts
    the process. None: this build runs the first one only.
    """
    found: Callable[[Any, int], None] | None = _first(_LAYER, None, ctypes.c_void_p, ctypes.c_int32)
    return found


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """What a target's layers read, row by row: EAGLE-3 heads and block drafts live on it.

    `switch(context, layer, on)` aborts the process at the next decode on architectures that do not
    record it, and at once for a layer beyond the last one. `rows(context, layer)` is the address of
    float32 rows of the last pass, one per token, as wide as the model; it aborts where nothing was
    recorded yet.
    """

    switch: Callable[[Any, int, bool], None]
    rows: Callable[[Any, int], int | None]


@functools.cache
def layer_inputs() -> LayerInputs | None:
    """The two functions, or None: then this build can run no drafts that read a target's layers."""
    pointer, layer = ctypes.c_void_p, ctypes.c_uint32
    switch = _first(_LAYER_SWITCH, None, pointer, layer, ctypes.c_bool)
    rows = _first(_LAYER_ROWS, pointer, pointer, layer)
    if switch is None or rows is None or not shares_context():
        return None
    return LayerInputs(switch, rows)


def shares_context() -> bool:
    """Can a context be opened beside another one, whose tensors or memory it uses?"""
    return hasattr(library().llama_context_default_params(), "ctx_other")


def _first(names: tuple[str, ...], result: Any, *arguments: Any) -> Any | None:
    found = (symbol(name, result, *arguments) for name in names)
    return next((function for function in found if function is not None), None)
