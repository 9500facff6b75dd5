"""A GGUF header, read by the reader inside the loaded library; what is no GGUF is refused."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specctl.errors import ModelError
from specctl.llama import log
from specctl.llama.api import library, symbol
from specctl.llama.interrupt import deferred

_MAGIC = b"GGUF"
_UINT16, _UINT32, _INT32, _FLOAT32 = 2, 4, 5, 6  # enum gguf_type
_BOOL, _STRING, _ARRAY = 7, 8, 9
_IN_ARRAYS = {_UINT32: ctypes.c_uint32, _INT32: ctypes.c_int32, _BOOL: ctypes.c_int8}


class _InitParams(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


@dataclass(frozen=True, slots=True)
class Reader:
    """The gguf functions this build exports."""

    open: Callable[..., Any]
    free: Callable[..., Any]
    find_key: Callable[..., Any]
    find_tensor: Callable[..., Any]
    n_tensors: Callable[..., Any]
    tensor_type: Callable[..., Any]
    tensor_name: Callable[..., Any]
    val_str: Callable[..., Any]
    arr_n: Callable[..., Any]
    arr_str: Callable[..., Any]
    kv_type: Callable[..., Any]
    val_u16: Callable[..., Any]
    val_u32: Callable[..., Any]


@contextmanager
def opened(path: Path) -> Iterator[tuple[Reader, Any] | None]:
    """The library's gguf functions and a header read by them; None where it exports none.

    Raises:
        ModelError: missing, or no GGUF.
    """
    _check_magic(path)
    reader = _reader()
    if reader is None:  # a build without these symbols: loading itself must tell
        yield None
        return
    log.forget()
    with deferred():
        handle = reader.open(str(path).encode(), _InitParams(True, None))
    if not handle:
        raise ModelError(f"{path.name} is not a readable GGUF: {log.reason() or 'no reason given'}")
    try:
        yield reader, handle
    finally:
        reader.free(handle)


def _check_magic(path: Path) -> None:
    if not path.is_file():
        raise ModelError(f"no model file at {path}", "check the path; `demo` needs no file")
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    if start.startswith(b"version https://git-lfs"):
        raise ModelError(f"{path.name} is a Git LFS pointer, not a model", "download the real file")
    if start.lstrip().lower().startswith((b"<!doctype", b"<html")):
        raise ModelError(f"{path.name} is a web page, not a model", "use the file's download link")
    if not start.startswith(_MAGIC):
        raise ModelError(f"{path.name} is not a GGUF file (it starts with {start[:4]!r})")


def _reader() -> Reader | None:
    library()
    c, p = ctypes, ctypes.c_void_p
    functions = [
        symbol("gguf_init_from_file", p, c.c_char_p, _InitParams),
        symbol("gguf_free", None, p),
        symbol("gguf_find_key", c.c_int64, p, c.c_char_p),
        symbol("gguf_find_tensor", c.c_int64, p, c.c_char_p),
        symbol("gguf_get_n_tensors", c.c_int64, p),
        symbol("gguf_get_tensor_type", c.c_int, p, c.c_int64),
        symbol("gguf_get_tensor_name", c.c_char_p, p, c.c_int64),
        symbol("gguf_get_val_str", c.c_char_p, p, c.c_int64),
        symbol("gguf_get_arr_n", c.c_size_t, p, c.c_int64),
        symbol("gguf_get_arr_str", c.c_char_p, p, c.c_int64, c.c_size_t),
        symbol("gguf_get_kv_type", c.c_int, p, c.c_int64),
        symbol("gguf_get_val_u16", c.c_uint16, p, c.c_int64),
        symbol("gguf_get_val_u32", c.c_uint32, p, c.c_int64),
    ]
    return None if None in functions else Reader(*functions)  # type: ignore[arg-type]


def text(reader: Reader, handle: Any, name: str) -> str:
    """A string of the header, empty where there is none."""
    key = reader.find_key(handle, name.encode())
    is_text = key >= 0 and reader.kv_type(handle, key) == _STRING
    return reader.val_str(handle, key).decode("utf-8", "replace") if is_text else ""


def number(reader: Reader, handle: Any, name: str) -> int:
    """An unsigned number of 16 or 32 bits, 0 where there is none."""
    key = reader.find_key(handle, name.encode())
    kind = reader.kv_type(handle, key) if key >= 0 else -1
    if kind == _UINT16:
        return int(reader.val_u16(handle, key))
    return int(reader.val_u32(handle, key)) if kind == _UINT32 else 0


def numbers(reader: Reader, handle: Any, name: str) -> tuple[int, ...]:
    """An array of numbers of 32 bits or of flags, empty where there is none."""
    kind = symbol("gguf_get_arr_type", ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
    data = symbol("gguf_get_arr_data", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    key = reader.find_key(handle, name.encode())
    if key < 0 or kind is None or data is None or reader.kv_type(handle, key) != _ARRAY:
        return ()
    held = _IN_ARRAYS.get(kind(handle, key))
    count = reader.arr_n(handle, key)
    if held is None or not count:
        return ()
    return tuple((held * count).from_address(data(handle, key)))


def whole(reader: Reader, handle: Any, name: str) -> int | None:
    """What llama.cpp reads as a count: an unsigned number of 32 bits; None for others."""
    key = reader.find_key(handle, name.encode())
    if key < 0 or reader.kv_type(handle, key) != _UINT32:
        return None
    return int(reader.val_u32(handle, key))


def real(reader: Reader, handle: Any, name: str) -> float | None:
    """A float of 32 bits, None where there is none."""
    value = symbol("gguf_get_val_f32", ctypes.c_float, ctypes.c_void_p, ctypes.c_int64)
    key = reader.find_key(handle, name.encode())
    if key < 0 or value is None or reader.kv_type(handle, key) != _FLOAT32:
        return None
    return float(value(handle, key))
