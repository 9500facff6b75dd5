"""What the installed llama-cpp-python build is: `python -m specctl.llama.probe` prints JSON.

Meant for a child process: starting a GPU backend takes memory and may crash. The parent's side is
`specctl.hardware.engineprobe`. One JSON object on the last line of stdout, exit code 0: either the
fields of `EngineFacts`, or `{"reason": …}` when there is no usable engine.

Which architectures the build can load is found by asking it: every string in libllama that could be
a name is put into a GGUF header of its own, and the loader says "unknown model architecture" or
fails later on the rest of the empty file. Linkers of ELF libraries fold a string into the tail of a
longer one (`qwen2` lives inside `rwkv6qwen2`), so there tails are asked as well. Nothing is taken
from a table that could be older or newer than the build. 0.1 ms per name, below a second in all.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.metadata
import importlib.util
import json
import re
import struct
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from specctl.enginefacts import EngineDevice, EngineFacts
from specctl.errors import EngineMissingError
from specctl.llama.api import INSTALL_HINT, library, symbol

_KINDS = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accel", 4: "meta"}
_UNKNOWN = "unknown model architecture"
_NAME = re.compile(rb"(?<=\0)[a-z][a-z0-9_.-]{1,31}(?=\0)")
_BUDGET = 5.0  # seconds of CPU time, ten times what is needed; a half-asked list is no answer


class _Properties(ctypes.Structure):
    """`ggml_backend_dev_props`; the tail is room for fields of later versions."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("rest", ctypes.c_char * 64),
    )


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


def backends() -> tuple[str, ...]:
    """The registries that this build loaded: CPU, CUDA, Vulkan, MTL, …"""
    count = symbol("ggml_backend_reg_count", ctypes.c_size_t)
    get = symbol("ggml_backend_reg_get", ctypes.c_void_p, ctypes.c_size_t)
    name = symbol("ggml_backend_reg_name", ctypes.c_char_p, ctypes.c_void_p)
    if count is None or get is None or name is None:
        return ()
    return tuple(_text(name(get(index))) for index in range(count()))


def devices() -> tuple[EngineDevice, ...]:
    """llama.cpp's own device list, in its order. Asking a GPU for memory starts its backend."""
    count = symbol("ggml_backend_dev_count", ctypes.c_size_t)
    get = symbol("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    describe = symbol(
        "ggml_backend_dev_get_props", None, ctypes.c_void_p, ctypes.POINTER(_Properties)
    )
    if count is None or get is None or describe is None:
        return ()
    found = []
    for index in range(count()):
        said = _Properties()
        describe(get(index), ctypes.byref(said))
        found.append(
            EngineDevice(
                name=_text(said.name),
                description=_text(said.description).strip(),
                kind=_KINDS.get(said.type, f"type {said.type}"),
                memory_free=said.memory_free,
                memory_total=said.memory_total,
                device_id=_text(said.device_id) or None,
            )
        )
    return tuple(found)


class _Asker:
    """Loads headers that hold nothing but an architecture's name, and reads the loader's answer."""

    def __init__(self, lib: Any, folder: Path) -> None:
        self._lib = lib
        self._path = folder / "arch.gguf"
        self._said: list[bytes] = []
        self._params = lib.llama_model_default_params()
        self._params.vocab_only = True
        self._no_devices = (ctypes.c_void_p * 1)(None)
        self._params.devices = ctypes.cast(self._no_devices, ctypes.c_void_p)
        self._callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
            lambda level, text, _data: self._said.append(text) if level >= 4 else None
        )
        lib.llama_log_set(ctypes.cast(self._callback, lib.llama_log_callback), None)

    def knows(self, arch: str) -> bool:
        """Whether the loader got past the architecture; it always fails after it."""
        self._said.clear()
        self._path.write_bytes(_header(arch))
        model = self._lib.llama_model_load_from_file(str(self._path).encode(), self._params)
        if model:  # cannot be: the file holds no model
            self._lib.llama_model_free(model)
            return True
        return _UNKNOWN.encode() not in b"".join(self._said)


def _header(arch: str) -> bytes:
    key, value = b"general.architecture", arch.encode()
    return (
        b"GGUF"
        + struct.pack("<IQQ", 3, 0, 1)
        + struct.pack("<Q", len(key))
        + key
        + struct.pack("<IQ", 8, len(value))
        + value
    )


def candidates(image: bytes) -> tuple[set[str], set[str]]:
    """Strings of a shared library that could be architecture names, and for ELF also their tails.

    The second set is disjoint from the first.
    """
    whole = {match.group().decode() for match in _NAME.finditer(image)}
    if not image.startswith(b"\x7fELF"):
        return whole, set()
    tails = {name[start:] for name in whole for start in range(1, len(name) - 1)}
    return whole, {tail for tail in tails if tail[0].isalpha()} - whole


def architectures() -> frozenset[str] | None:
    """What this build loads, or None where it does not tell (its answer is checked both ways)."""
    lib = library()
    try:
        whole, tails = candidates(Path(lib._lib._name).read_bytes())
        with tempfile.TemporaryDirectory(prefix="specctl-", dir=_fast_folder()) as folder:
            asker = _Asker(lib, Path(folder))
            if not asker.knows("llama") or asker.knows("no-such-architecture"):
                return None
            return _ask(asker, [*sorted(whole), *sorted(tails)])
    except OSError:
        return None


def _ask(asker: _Asker, names: Iterable[str]) -> frozenset[str] | None:
    deadline = time.process_time() + _BUDGET
    known = set()
    for name in names:
        if asker.knows(name):
            known.add(name)
        if time.process_time() > deadline:
            return None
    return frozenset(known)


def _fast_folder() -> str | None:
    """Memory rather than disk for thousands of small writes, where there is such a folder."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def facts() -> EngineFacts:
    """Everything about the installed build.

    Raises:
        EngineMissingError: llama-cpp-python is missing or does not load.
    """
    lib = library()
    return EngineFacts(
        version=_version(),
        backends=backends(),
        devices=devices(),
        architectures=architectures(),
        gpu_offload=bool(lib.llama_supports_gpu_offload()),
        system_info=_text(lib.llama_print_system_info()).strip(),
    )


def _version() -> str:
    try:
        return importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def main() -> None:
    """Print the facts, or the reason why there are none."""
    if importlib.util.find_spec("llama_cpp") is None:
        print(json.dumps({"reason": "llama-cpp-python is not installed", "hint": INSTALL_HINT}))
        return
    try:
        answer = dataclasses.asdict(facts())
        known = answer["architectures"]
        answer["architectures"] = None if known is None else sorted(known)
    except EngineMissingError as error:
        answer = {"reason": error.message, "hint": error.hint}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
