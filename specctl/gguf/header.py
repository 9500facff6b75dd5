"""A bounded reader of GGUF headers: metadata and tensor list, never the weights.

The format is the GGUF specification of the ggml project (versions 2 and 3, little-endian). Every
count and length is checked against what the file can hold and against `MAX_HEADER` before a byte
is read for it, so a lying, cut or wrong file costs milliseconds. Arrays stay packed: strings are
kept as offsets into the bytes that were read and decoded when looked at.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, overload

from specctl.errors import GgufError
from specctl.units import format_bytes

MAX_HEADER = 128 * 1024**2  # bytes; the largest known (262 k tokens with merges) is below 20 MiB
MAX_STRING = 16 * 1024**2
MAX_NAME = 4096
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 18
MAX_ITEMS = 1 << 21  # of one array; a vocabulary has at most some 300 k

# type number → (name, elements in a block, bytes of a block); ggml's type traits
TENSOR_TYPES = {
    0: ("f32", 1, 4), 1: ("f16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22), 7: ("q5_1", 32, 24), 8: ("q8_0", 32, 34), 9: ("q8_1", 32, 36),
    10: ("q2_K", 256, 84), 11: ("q3_K", 256, 110), 12: ("q4_K", 256, 144), 13: ("q5_K", 256, 176),
    14: ("q6_K", 256, 210), 15: ("q8_K", 256, 292), 16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74), 18: ("iq3_xxs", 256, 98), 19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18), 21: ("iq3_s", 256, 110), 22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136), 24: ("i8", 1, 1), 25: ("i16", 1, 2), 26: ("i32", 1, 4),
    27: ("i64", 1, 8), 28: ("f64", 1, 8), 29: ("iq1_m", 256, 56), 30: ("bf16", 1, 2),
    34: ("tq1_0", 256, 54), 35: ("tq2_0", 256, 66), 39: ("mxfp4", 32, 17), 40: ("nvfp4", 64, 36),
    41: ("q1_0", 128, 18), 42: ("q2_0", 64, 18),
}  # fmt: skip

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_SCALARS[12] = "d"
_STRING, _ARRAY = 8, 9
_U64 = struct.Struct("<Q")


class Source(Protocol):
    """Where header bytes come from: a file or a server."""

    @property
    def name(self) -> str:
        """What a user calls it."""

    @property
    def size(self) -> int | None:
        """Bytes of the whole file; None while unknown."""

    @property
    def step(self) -> int:
        """How many bytes to ask for at a time."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the end of the file."""


class Strings(Sequence[str]):
    """An array of strings, decoded one at a time. Broken UTF-8 shows as backslash escapes."""

    def __init__(self, data: bytearray, starts: Sequence[int], end: int) -> None:
        self._data = data
        self._starts = starts  # of each string's eight length bytes
        self._end = end

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        start = self._starts[index]
        (length,) = _U64.unpack_from(self._data, start)
        return self._data[start + 8 : start + 8 + length].decode("utf-8", "backslashreplace")

    @property
    def sha256(self) -> str:
        """Digest of all lengths and texts as stored: equal only for equal lists."""
        start = self._starts[0] if self._starts else self._end
        return hashlib.sha256(memoryview(self._data)[start : self._end]).hexdigest()


Scalar = int | float | bool | str
Value = Scalar | Strings | Sequence[int] | Sequence[float]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the list. `shape` in ggml's order; `offset` from the start of the data."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    n_bytes: int

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Header:
    """What a GGUF file says of itself. `end` is where the last tensor ends; sizes in bytes."""

    source: str
    version: int
    metadata: dict[str, Value] = field(repr=False)
    tensors: tuple[Tensor, ...] = field(repr=False)
    data_offset: int
    end: int
    file_size: int | None

    @property
    def missing(self) -> int:
        """Bytes that the tensor list promises and the file does not hold (a cut download)."""
        return 0 if self.file_size is None else max(0, self.end - self.file_size)

    def text(self, key: str) -> str | None:
        """The string under `key`, or None."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def number(self, key: str) -> int | None:
        """The whole number under `key`, or None."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) else None

    def numbers(self, key: str) -> tuple[int, ...] | None:
        """The array of whole numbers (or flags) under `key`, or None."""
        value = self.metadata.get(key)
        if isinstance(value, str | Strings) or not isinstance(value, Sequence):
            return None
        return tuple(int(item) for item in value if isinstance(item, int))

    def strings(self, key: str) -> Strings | None:
        """The array of strings under `key`, or None."""
        value = self.metadata.get(key)
        return value if isinstance(value, Strings) else None


def read_header(source: Source) -> Header:
    """Read metadata and tensor list.

    Raises:
        GgufError: not a GGUF, a version or byte order llama.cpp cannot load, cut off, or its counts
            and lengths cannot be true.
    """
    cursor = _Cursor(source)
    _check_magic(cursor)
    version = cursor.u32()
    if version & 0xFFFF == 0:
        raise cursor.error("is a big-endian GGUF", "llama.cpp loads it only on big-endian machines")
    if version not in (2, 3):
        raise cursor.error(f"has GGUF version {version}; llama.cpp loads 2 and 3")
    n_tensors, n_keys = cursor.u64(), cursor.u64()
    if n_keys > MAX_KEYS or n_tensors > MAX_TENSORS:
        raise cursor.error(f"claims {n_keys} keys and {n_tensors} tensors, more than any model has")
    metadata: dict[str, Value] = {}
    for _ in range(n_keys):
        key = cursor.string(MAX_NAME)
        if key in metadata:
            raise cursor.error(f"has the key {key!r} twice")
        metadata[key] = _read_value(cursor, key)
    raw = [_read_tensor(cursor) for _ in range(n_tensors)]
    data_offset = _align(cursor, metadata)
    tensors = tuple(_sized(cursor, raw, data_offset))
    end = data_offset + max((t.offset + t.n_bytes for t in tensors), default=0)
    return Header(
        source=source.name,
        version=version,
        metadata=metadata,
        tensors=tensors,
        data_offset=data_offset,
        end=end,
        file_size=source.size,
    )


class _Cursor:
    """Reads forward through a source, fetching only as far as needed."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.data = bytearray()
        self.at = 0

    def error(self, what: str, hint: str | None = None) -> GgufError:
        return GgufError(f"{self.source.name} {what}", hint)

    def need(self, count: int) -> int:
        """Make `count` bytes at the cursor readable, move past them, return where they start."""
        start = self.at
        end = start + count
        if end > len(self.data):
            self._fetch(end)
        self.at = end
        return start

    def _fetch(self, end: int) -> None:
        size = self.source.size
        if size is not None and end > size:
            raise self.error(
                f"is cut off or damaged: its header needs {end} bytes or more, the file has {size}",
                "fetch it again",
            )
        if end > MAX_HEADER:
            raise self.error(
                f"claims a header of more than {format_bytes(MAX_HEADER)}; no model has one"
            )
        while len(self.data) < end:
            wanted = max(self.source.step, end - len(self.data))
            got = self.source.read(len(self.data), min(wanted, MAX_HEADER - len(self.data)))
            if not got:
                raise self.error(
                    f"ends after {len(self.data)} bytes, in the middle of its header",
                    "fetch it again",
                )
            self.data += got

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def take(self, count: int) -> bytearray:
        start = self.need(count)
        return self.data[start : start + count]

    def string(self, limit: int) -> str:
        length = self.u64()
        if length > limit:
            raise self.error(f"claims a text of {length} bytes at byte {self.at}: damaged")
        return self.take(length).decode("utf-8", "backslashreplace")

    def left(self) -> int:
        """Bytes that the header can still hold."""
        size = self.source.size
        return (MAX_HEADER if size is None else min(size, MAX_HEADER)) - self.at


def _check_magic(cursor: _Cursor) -> None:
    head = cursor.source.read(0, max(cursor.source.step, 512))
    cursor.data += head
    if head[:4] == b"GGUF":
        cursor.at = 4
        if len(head) < 24:
            raise cursor.error(f"ends after {len(head)} bytes, in the middle of its header")
        return
    start = bytes(head[:512]).lstrip().lower()
    if not head:
        raise cursor.error("is empty", "fetch it again")
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise cursor.error("is a web page, not a model", "the download was answered with a page")
    if start.startswith(b"version https://git-lfs"):
        raise cursor.error(
            "is a Git LFS pointer, not the model", "fetch the file itself: git lfs pull"
        )
    if start.startswith(b'{"error'):
        raise cursor.error(
            "is an error message, not a model", start[:200].decode("utf-8", "replace")
        )
    if head[:4] in (b"lmgg", b"tjgg", b"fmgg", b"algg"):
        raise cursor.error("is a GGML file from before GGUF", "no current llama.cpp loads it")
    if len(head) > 9 and head[8:10] == b'{"':
        raise cursor.error("looks like safetensors, not GGUF", "look for a GGUF of this model")
    raise cursor.error(f"is not a GGUF: it starts with {bytes(head[:4])!r}")


def _read_value(cursor: _Cursor, key: str) -> Value:
    kind = cursor.u32()
    if kind == _STRING:
        return cursor.string(MAX_STRING)
    if kind == _ARRAY:
        return _read_array(cursor, key)
    code = _SCALARS.get(kind)
    if code is None:
        raise cursor.error(f"has a value of unknown type {kind} under {key!r}: damaged")
    width = struct.calcsize(f"<{code}")
    start = cursor.need(width)
    value: Scalar = struct.unpack_from(f"<{code}", cursor.data, start)[0]
    return value


def _read_array(cursor: _Cursor, key: str) -> Value:
    kind, count = cursor.u32(), cursor.u64()
    if kind == _STRING:
        if count > MAX_ITEMS or count * 8 > cursor.left():
            raise cursor.error(
                f"is cut off or damaged: it claims {count} texts under {key!r}", "fetch it again"
            )
        return _read_strings(cursor, count)
    code = _SCALARS.get(kind)
    if code is None:
        raise cursor.error(f"has an array of type {kind} under {key!r}, which GGUF does not allow")
    width = struct.calcsize(f"<{code}")
    if count > MAX_ITEMS or count * width > cursor.left():
        raise cursor.error(
            f"is cut off or damaged: it claims {count} numbers under {key!r}", "fetch it again"
        )
    start = cursor.need(count * width)
    if code == "?":
        return [byte != 0 for byte in cursor.data[start : cursor.at]]
    numbers: array[int] | array[float] = array(code)
    if numbers.itemsize != width:  # C long differs between platforms; "Q" and "q" do not
        raise cursor.error(f"holds numbers of {width} bytes this Python cannot read")
    numbers.frombytes(cursor.data[start : cursor.at])
    return numbers


def _read_strings(cursor: _Cursor, count: int) -> Strings:
    """Walk the lengths only; the hot loop of a header (150 k tokens and as many merges)."""
    starts = array("Q", bytes(8 * count))
    unpack, data, at = _U64.unpack_from, cursor.data, cursor.at
    held = len(data) - 8
    for index in range(count):
        if at > held:
            cursor.at = at
            cursor.need(8)
            held = len(data) - 8
        starts[index] = at
        at += 8 + unpack(data, at)[0]
        if at > MAX_HEADER:
            raise cursor.error("claims a text beyond its end: damaged")
    cursor.at = at
    cursor.need(0)
    return Strings(data, starts, at)


_RawTensor = tuple[str, tuple[int, ...], int, int]


def _read_tensor(cursor: _Cursor) -> _RawTensor:
    name = cursor.string(MAX_NAME)
    n_dims = cursor.u32()
    if n_dims > 4:
        raise cursor.error(f"claims {n_dims} dimensions for {name!r}; ggml has at most 4")
    shape = tuple(cursor.u64() for _ in range(n_dims))
    if math.prod(shape) >= 1 << 62:
        raise cursor.error(f"claims an impossible shape {shape} for {name!r}")
    return name, shape, cursor.u32(), cursor.u64()


def _align(cursor: _Cursor, metadata: dict[str, Value]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise cursor.error(f"has alignment {alignment!r}, which is not a power of two")
    return -(-cursor.at // alignment) * alignment


def _sized(cursor: _Cursor, raw: list[_RawTensor], data_offset: int) -> list[Tensor]:
    """Bytes of each tensor: by its type, or up to the next one for types newer than this table."""
    offsets = sorted({offset for *_, offset in raw})
    following = dict(itertools.pairwise(offsets))
    size = cursor.source.size
    tensors = []
    for name, shape, kind, offset in raw:
        if kind in TENSOR_TYPES:
            label, block, width = TENSOR_TYPES[kind]
            row = shape[0] if shape else 1
            if row % block:
                raise cursor.error(f"has rows of {row} in {name!r}, not a multiple of {block}")
            n_bytes = math.prod(shape) // block * width
        else:
            label = f"type {kind}"
            rest = 0 if size is None else max(0, size - data_offset - offset)
            n_bytes = max(0, following.get(offset, offset + rest) - offset)
        tensors.append(Tensor(name, shape, label, offset, n_bytes))
    return tensors
