"""llama.cpp's devices by name, and placing tensors on them."""

from __future__ import annotations

import ctypes
from typing import Any

from specctl.errors import SettingsError
from specctl.llama.api import library, symbol
from specctl.settings import ModelSettings


class _Override(ctypes.Structure):
    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def names() -> tuple[str, ...]:
    """The devices of this build, as `--devices` takes them: CPU, CUDA0, Vulkan1, …"""
    count = symbol("ggml_backend_dev_count", ctypes.c_size_t)
    get = symbol("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    name = symbol("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)
    if count is None or get is None or name is None:
        return ()
    return tuple(name(get(index)).decode() for index in range(count()))


def described(settings: ModelSettings) -> str:
    """Where a model of these settings computes: `CPU`, `CUDA0`, `CPU + CUDA0`."""
    wanted = settings.devices or names()
    gpus = [name for name in wanted if name not in ("CPU", "BLAS")]
    if not gpus or not settings.gpu_layers:
        return "CPU"
    shared = settings.gpu_layers > 0 or settings.n_cpu_moe or settings.tensor_overrides
    return " + ".join((["CPU"] if shared else []) + gpus)


def _device(name: str) -> int:
    find = symbol("ggml_backend_dev_by_name", ctypes.c_void_p, ctypes.c_char_p)
    handle = find(name.encode()) if find is not None else None
    if not handle:
        raise SettingsError(f"no device {name!r} in this build", "there is: " + ", ".join(names()))
    return int(handle)


def device_list(wanted: tuple[str, ...]) -> Any | None:
    """A NULL-terminated array for `llama_model_params.devices`, or None for llama.cpp's choice.

    Raises:
        SettingsError: a device that this build does not have.
    """
    if not wanted:
        return None
    return (ctypes.c_void_p * (len(wanted) + 1))(*[_device(name) for name in wanted], None)


def override_list(settings: ModelSettings) -> Any | None:
    """A terminated array for `tensor_buft_overrides`, or None when nothing is overridden.

    `n_cpu_moe` keeps the routed experts of the first N layers in RAM (llama.cpp's own pattern).

    Raises:
        SettingsError: more overrides than llama.cpp takes, or a buffer type it does not have.
    """
    patterns = [
        (rf"blk\.{layer}\.ffn_(up|down|gate|gate_up)_(ch|)exps", "CPU")
        for layer in range(settings.n_cpu_moe)
    ] + list(settings.tensor_overrides)
    if not patterns:
        return None
    most = int(library().llama_max_tensor_buft_overrides())
    if len(patterns) >= most:
        raise SettingsError(f"{len(patterns)} tensor overrides, llama.cpp takes {most - 1}")
    entries = [_Override(pattern.encode(), _buffer_type(name)) for pattern, name in patterns]
    return (_Override * (len(entries) + 1))(*entries, _Override(None, None))


def _buffer_type(device: str) -> int:
    if device == "CPU":
        cpu = symbol("ggml_backend_cpu_buffer_type", ctypes.c_void_p)
        if cpu is not None:
            return int(cpu())
    of = symbol("ggml_backend_dev_buffer_type", ctypes.c_void_p, ctypes.c_void_p)
    if of is None:
        raise SettingsError("this build cannot place tensors by device")
    return int(of(_device(device)))
