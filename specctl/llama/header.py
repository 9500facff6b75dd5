"""Typed look-ups in one GGUF header, by the reader inside the loaded library."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any

from specctl.llama import rawheader
from specctl.llama.api import symbol

_BOOL, _ARRAY, _INT32_KINDS = 7, 9, (4, 5)  # enum gguf_type
_I64 = 27  # enum ggml_type


class Header:
    """What `rawheader.opened` gives, while it is open."""

    def __init__(self, reader: rawheader.Reader, handle: Any) -> None:
        self._reader, self._handle = reader, handle
        c, p = ctypes, ctypes.c_void_p
        self._array_type = symbol("gguf_get_arr_type", c.c_int, p, c.c_int64)
        self._array_data = symbol("gguf_get_arr_data", p, p, c.c_int64)
        self._start = symbol("gguf_get_data_offset", c.c_size_t, p)
        self._offset = symbol("gguf_get_tensor_offset", c.c_size_t, p, c.c_int64)
        self._size = symbol("gguf_get_tensor_size", c.c_size_t, p, c.c_int64)
        self._bool = symbol("gguf_get_val_bool", c.c_bool, p, c.c_int64)

    def has_key(self, key: str) -> bool:
        """Is it there, of whatever type?"""
        return self._key(key) >= 0

    def text(self, key: str) -> str:
        """A string, empty where there is none."""
        return rawheader.text(self._reader, self._handle, key)

    def number(self, key: str) -> int:
        """An unsigned number, 0 where there is none."""
        return rawheader.number(self._reader, self._handle, key)

    def flag(self, key: str, default: bool) -> bool:
        """A bool, read as llama.cpp's drafters do: what is there and is not true is false."""
        at = self._key(key)
        if at < 0:
            return default
        if self._bool is None or self._reader.kv_type(self._handle, at) != _BOOL:
            return self.text(key) == "true"
        return bool(self._bool(self._handle, at))

    def numbers(self, key: str) -> tuple[int, ...]:
        """An array of 32-bit numbers, empty where there is none."""
        at = self._key(key)
        if at < 0 or self._array_type is None or self._array_data is None:
            return ()
        if self._reader.kv_type(self._handle, at) != _ARRAY:
            return ()
        if self._array_type(self._handle, at) not in _INT32_KINDS:
            return ()
        count = self._reader.arr_n(self._handle, at)
        data = (ctypes.c_int32 * count).from_address(self._array_data(self._handle, at))
        return tuple(data)

    def has(self, tensor: str) -> bool:
        """Is there a tensor of this name?"""
        return bool(self._reader.find_tensor(self._handle, tensor.encode()) >= 0)

    @property
    def n_tensors(self) -> int:
        """Of this file."""
        return int(self._reader.n_tensors(self._handle))

    def id_range(self, path: Path) -> tuple[int, int] | None:
        """Smallest and largest entry of `d2t`; None where there is none that is int64."""
        at = self._reader.find_tensor(self._handle, b"d2t")
        if self._reader.tensor_type(self._handle, at) != _I64:
            return None
        if self._start is None or self._offset is None or self._size is None:
            return None
        with path.open("rb") as file:
            file.seek(self._start(self._handle) + self._offset(self._handle, at))
            data = file.read(self._size(self._handle, at))
        ids = struct.unpack(f"<{len(data) // 8}q", data[: len(data) // 8 * 8])
        return min(ids, default=0), max(ids, default=0)

    def vocabulary(self) -> int:
        """How many tokens it has."""
        at = self._key("tokenizer.ggml.tokens")
        return int(self._reader.arr_n(self._handle, at)) if at >= 0 else 0

    def _key(self, key: str) -> int:
        return int(self._reader.find_key(self._handle, key.encode()))
