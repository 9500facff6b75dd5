"""Parameters of a native context, and making one: what every kind of context shares."""

from __future__ import annotations

from typing import Any

from specctl.errors import ModelError, SettingsError
from specctl.llama import log
from specctl.llama.api import library
from specctl.llama.interrupt import deferred
from specctl.llama.model import Model
from specctl.settings import EngineSettings, ModelSettings

_KV_TYPES = {
    "f32": "GGML_TYPE_F32",
    "f16": "GGML_TYPE_F16",
    "bf16": "GGML_TYPE_BF16",
    "q8_0": "GGML_TYPE_Q8_0",
    "q5_1": "GGML_TYPE_Q5_1",
    "q5_0": "GGML_TYPE_Q5_0",
    "q4_1": "GGML_TYPE_Q4_1",
    "q4_0": "GGML_TYPE_Q4_0",
    "iq4_nl": "GGML_TYPE_IQ4_NL",
}
_FLASH = {"auto": -1, "off": 0, "on": 1}


def context_params(
    settings: EngineSettings, placement: ModelSettings, threads: int, rows: int
) -> Any:
    """For one sequence of which at most `rows` logit rows are wanted at once.

    Raises:
        SettingsError: a KV type that this build does not have.
    """
    params = library().llama_context_default_params()
    params.n_ctx = settings.n_ctx
    params.n_batch = max(settings.n_batch, rows)
    params.n_ubatch = settings.n_ubatch
    params.n_seq_max = 1
    params.n_outputs_max = rows
    params.n_threads = params.n_threads_batch = threads
    params.flash_attn_type = _FLASH[settings.flash_attn]
    params.type_k = _kv_type(placement.kv_type_k)
    params.type_v = _kv_type(placement.kv_type_v)
    params.no_perf = True
    # A full-size cache for sliding-window layers: a window-sized one would accept a cut past
    # what it still holds, and silently compute nonsense.
    params.swa_full = True
    return params


def open_context(model: Model, params: Any, what: str = "context") -> Any:
    """The handle of a new native context; who gets it frees it.

    Raises:
        ModelError: llama.cpp could not create it (memory, KV type); gives its reason.
    """
    lib = library()
    log.forget()
    handle: Any = None
    try:
        with deferred():
            handle = lib.llama_init_from_model(model.handle, params)
    except KeyboardInterrupt:
        if handle:
            lib.llama_free(handle)
        raise
    if not handle:
        raise ModelError(
            f"no {what} of {params.n_ctx} tokens for {model.path.name}: "
            f"{log.reason() or 'probably not enough memory'}",
            "try a smaller --ctx, or --kv-type f16",
        )
    return handle


def _kv_type(name: str) -> int:
    value = getattr(library(), _KV_TYPES[name], None)
    if value is None:
        raise SettingsError(f"this llama-cpp-python has no KV type {name}")
    return int(value)
