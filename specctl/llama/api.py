"""The only import of llama_cpp. `library()` loads it once, quietly, and says what is missing."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

from specctl.errors import EngineMissingError
from specctl.llama import abort, log

SPIN_COUNT = "2000"  # iterations, some microseconds
INSTALL_HINT = (
    'install the engine, in a clone of specctl: pip install -e ".[engine]" '
    "(README: the build for a GPU)"
)


@functools.cache
def library() -> Any:
    """The low-level bindings (`llama_cpp.llama_cpp`), with logging routed, aborts heard of and
    backends started.

    Raises:
        EngineMissingError: not installed, or its shared library cannot be loaded.
    """
    calm_threads()
    try:
        import llama_cpp.llama_cpp as lib
    except ModuleNotFoundError as error:
        raise EngineMissingError(
            f"this needs the engine, and {error.name} is not installed", INSTALL_HINT
        ) from error
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise EngineMissingError(
            f"llama-cpp-python is installed but does not load: {error}", INSTALL_HINT
        ) from error
    log.route(lib)
    abort.catch(lib)
    lib.llama_backend_init()
    return lib


def calm_threads() -> None:
    """Set what must be set before the library loads; the user's own settings win.

    OpenMP threads that spin for long while waiting make decoding up to 25 times slower on a busy
    machine; threads that do not spin at all make it 2 to 3 times slower on an idle one. A short
    spin costs little in both (measured in docs/limits.md). On an abort ggml would start a debugger
    for a backtrace: seconds of delay and pages of output.
    """
    if not any(name.startswith(("OMP_", "GOMP_")) for name in os.environ):
        os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")


def symbol(name: str, result: Any, *arguments: Any) -> Any | None:
    """A C function of the loaded library or its dependencies by name, or None where it is absent.

    Looked up through the handle that is already open: opening the ggml libraries by path would load
    a second copy with globals of its own.
    """
    lib = library()
    try:
        return ctypes.CFUNCTYPE(result, *arguments)((name, lib._lib))
    except AttributeError:
        return None


def has_gpu_backend() -> bool:
    """Can this build put layers on a GPU that is here now?"""
    return bool(library().llama_supports_gpu_offload())


def amx_is_risky() -> bool:
    """Does this build carry AMX kernels? They crash the process on many machines.

    Some compilers drop the tile configuration (llama.cpp issue 20824, pull request 26954, open in
    November 2026). `SPECCTL_AMX=1` trusts them.
    """
    info = library().llama_print_system_info() or b""
    return b"AMX_INT8 = 1" in info and os.environ.get("SPECCTL_AMX") != "1"
