"""Copies of a model in another precision, by the library's own quantiser."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

from specctl.errors import ModelError
from specctl.llama import log
from specctl.llama.api import library
from specctl.llama.interrupt import deferred

_FTYPES = {"f32": 0, "f16": 1}


def convert(source: Path, target: Path, precision: str) -> None:
    """Write `source` as `f16` or `f32` to `target`, which appears only when it is whole.

    Raises:
        ModelError: the source cannot be read or the copy cannot be written.
    """
    lib = library()
    params = lib.llama_model_quantize_default_params()
    params.allow_requantize = True
    params.ftype = _FTYPES[precision]
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        log.forget()
        with deferred():
            status = lib.llama_model_quantize(
                str(source).encode(), str(part).encode(), ctypes.byref(params)
            )
        if status:
            raise ModelError(f"could not write {target}: {log.reason() or f'status {status}'}")
        part.replace(target)
    except OSError as error:
        raise ModelError(f"could not write {target}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
