"""The bounded reader: what it reads, what it refuses, and what a refusal costs."""

from __future__ import annotations

import contextlib
import random
import struct
import time
import tracemalloc
from pathlib import Path

import gguf_headers as headers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.errors import GgufError
from specctl.gguf.header import TENSOR_TYPES, Header, read_header


class Bytes:
    """A source in memory; counts what is asked of it."""

    name = "memory.gguf"

    def __init__(self, data: bytes, size: int | None = -1, step: int = 1 << 16) -> None:
        self.data, self.step, self.asked = data, step, 0
        self.size = len(data) if size == -1 else size

    def read(self, offset: int, size: int) -> bytes:
        self.asked += size
        return self.data[offset : offset + size]


class Endless(Bytes):
    """A huge file of one repeated byte after a given start; never allocates it."""

    def __init__(self, start: bytes, fill: int) -> None:
        super().__init__(start, size=100 * 1024**3, step=1 << 20)
        self.fill = fill

    def read(self, offset: int, size: int) -> bytes:
        assert size <= 64 * 1024**2, "one read of more than 64 MiB"
        self.asked += size
        head = self.data[offset : offset + size]
        return head + bytes([self.fill]) * (size - len(head))


METADATA = {
    "general.architecture": "llama",
    "general.name": "häßlich",
    "llama.block_count": 2,
    "llama.eps": 0.5,
    "flag": True,
    "tokenizer.ggml.tokens": ["a", "", "Ġwörd", "\U0001f600"],
    "tokenizer.ggml.token_type": [1, 2, -3],
    "scores": [0.25, -1.0],
    "flags": [True, False],
}
TENSORS: headers.Tensors = [
    ("a.weight", (256, 4), "q4_K"),
    ("b", (3,), "f32"),
    ("c", (2, 3, 4), "f16"),
]


def read(data: bytes) -> Header:
    return read_header(Bytes(data))


def whole(metadata: dict[str, object] = METADATA, tensors: headers.Tensors = TENSORS) -> bytes:
    raw, rest = headers.header_bytes(metadata, tensors)
    return raw + bytes(rest)


def test_values_come_back_as_written() -> None:
    header = read(whole())
    for key, value in METADATA.items():
        found = header.metadata[key]
        assert (list(found) if isinstance(value, list) else found) == value, key
    assert header.strings("tokenizer.ggml.tokens")[-1] == "\U0001f600"
    assert header.strings("tokenizer.ggml.tokens")[1:3] == ["", "Ġwörd"]
    assert header.numbers("tokenizer.ggml.token_type") == (1, 2, -3)
    assert header.numbers("flags") == (1, 0)
    assert header.numbers("general.name") is None


def test_tensors_have_exact_sizes_and_the_end_is_known() -> None:
    data = whole()
    header = read(data)
    assert [(t.name, t.shape, t.type, t.n_bytes) for t in header.tensors] == [
        ("a.weight", (256, 4), "q4_K", 4 * 144),
        ("b", (3,), "f32", 12),
        ("c", (2, 3, 4), "f16", 48),
    ]
    assert header.data_offset % 32 == 0
    assert header.missing == 0
    cut = read_header(Bytes(data[:-40]))
    assert cut.missing == cut.end - (len(data) - 40) > 0


def test_the_type_table_is_ggml_s() -> None:
    gguf = pytest.importorskip("gguf")
    sizes = {kind.value: pair for kind, pair in gguf.constants.GGML_QUANT_SIZES.items()}
    del sizes[9]  # q8_1: gguf-py still has the width of 2023, ggml's block is 36 bytes
    for number, pair in sizes.items():
        assert TENSOR_TYPES[number][1:] == tuple(pair), number


def test_a_real_writer_s_file_reads_the_same(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    np = pytest.importorskip("numpy")
    path = tmp_path / "w.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint64("big", 1 << 40)
    writer.add_array("words", ["x", "yy"])
    writer.add_tensor("t", np.zeros((4, 64), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read(path.read_bytes())
    assert header.number("big") == 1 << 40
    assert list(header.strings("words") or []) == ["x", "yy"]
    assert [(t.shape, t.n_bytes) for t in header.tensors] == [((64, 4), 512)]


def test_types_newer_than_the_table_are_sized_by_what_follows() -> None:
    raw, rest = headers.header_bytes(METADATA, TENSORS)
    at = raw.index(b"a.weight") + 8 + 4 + 16
    strange = raw[:at] + struct.pack("<I", 99) + raw[at + 4 :]
    tensor = read(strange + bytes(rest)).tensors[0]
    assert (tensor.type, tensor.n_bytes) == ("type 99", 576)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>" + b" " * 600, "is a web page"),
        (b"\n  <html><body>404" + b" " * 600, "is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 130\n", "LFS pointer"),
        (b'{"error":"Repository not found"}', "is an error message"),
        (b"lmgg" + bytes(100), "from before GGUF"),
        (struct.pack("<Q", 99) + b'{"__metadata__":{}}' + bytes(80), "looks like safetensors"),
        (b"PK\x03\x04" + bytes(100), "is not a GGUF"),
        (b"GGUF", "ends after 4 bytes"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1"),
        (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "GGUF version 4"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "more than any model has"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "more than any model has"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 50), "claims a text of"),
    ],
)
def test_what_is_no_model_is_named(data: bytes, said: str) -> None:
    with pytest.raises(GgufError) as caught:
        read(data)
    assert said in caught.value.message
    assert "memory.gguf" in caught.value.message


def lying(key: str, kind: int, body: bytes) -> bytes:
    return (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + headers.text(key) + struct.pack("<I", kind) + body
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lying("k", 8, struct.pack("<Q", 1 << 40)), "claims a text of"),
        (lying("k", 9, struct.pack("<IQ", 8, 1 << 40)), "texts under 'k'"),
        (lying("k", 9, struct.pack("<IQ", 6, 1 << 40)), "numbers under 'k'"),
        (lying("k", 9, struct.pack("<IQ", 9, 1)), "array of type 9"),
        (lying("k", 77, b""), "unknown type 77"),
        (lying("k", 9, struct.pack("<IQ", 8, 1000)) + b"\xff" * 16, "beyond its end"),
    ],
)
@pytest.mark.parametrize("fill", [0, 0xFF])
def test_lies_in_a_huge_file_cost_little(data: bytes, said: str, fill: int) -> None:
    source = Endless(data, fill)
    tracemalloc.start()
    try:
        with pytest.raises(GgufError) as caught:
            read_header(source)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert said in caught.value.message
    assert source.asked < 8 * 1024**2
    assert peak < 32 * 1024**2


def test_a_file_of_empty_texts_ends_at_the_limit() -> None:
    """Two million texts of length 0 are possible; they must not read the file to its end."""
    data = lying("k", 9, struct.pack("<IQ", 8, 2_000_000))
    source = Endless(data, 0)
    header = read_header(source)
    assert len(header.strings("k") or []) == 2_000_000
    assert source.asked < 32 * 1024**2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"general.alignment": 24}, "not a power of two"),
        ({"general.alignment": 0}, "not a power of two"),
        ({"general.alignment": "x"}, "not a power of two"),
    ],
)
def test_impossible_alignment(change: dict[str, object], said: str) -> None:
    with pytest.raises(GgufError, match=said):
        read(whole({**METADATA, **change}))


def test_impossible_tensors() -> None:
    with pytest.raises(GgufError, match="not a multiple of 256"):
        read(headers.header_bytes(METADATA, [("a", (100, 2), "q4_K")])[0])
    raw, _ = headers.header_bytes(METADATA, [("a", (1 << 40, 1 << 40), "f32")])
    with pytest.raises(GgufError, match="impossible shape"):
        read(raw)
    raw, _ = headers.header_bytes(METADATA, [("five", (1, 1, 1, 1, 1), "f32")])
    with pytest.raises(GgufError, match="5 dimensions"):
        read(raw)


def test_a_key_twice_is_refused() -> None:
    raw, _ = headers.header_bytes({"ab": 1, "ac": 2})
    with pytest.raises(GgufError, match="twice"):
        read(raw.replace(b"ac", b"ab"))


def test_cut_at_every_byte() -> None:
    raw, _ = headers.header_bytes(METADATA, TENSORS)
    padding = 32
    for end in range(len(raw) - padding):
        with pytest.raises(GgufError):
            read(raw[:end])
        with pytest.raises(GgufError):  # the same from a server that does not tell the size
            read_header(Bytes(raw[:end], size=None, step=7))
    assert read_header(Bytes(raw, size=None, step=7)).tensors[0].name == "a.weight"


@given(st.binary(max_size=400))
def test_noise_after_the_magic_never_crashes(noise: bytes) -> None:
    with contextlib.suppress(GgufError):
        read(b"GGUF" + struct.pack("<I", 3) + noise)


@given(st.integers(0, 1 << 32), st.integers(1, 12))
def test_damaged_headers_are_read_or_refused(seed: int, count: int) -> None:
    """Flipped bytes of a valid header: any answer but a crash, and never much memory."""
    rng = random.Random(seed)
    data = bytearray(whole())
    for _ in range(count):
        data[rng.randrange(4, len(data))] = rng.randrange(256)
    source = Bytes(bytes(data))
    try:
        header = read_header(source)
    except GgufError:
        return
    for value in header.metadata.values():
        repr(value)
    assert all(tensor.n_bytes >= 0 for tensor in header.tensors)


def test_150_thousand_tokens_in_150_ms() -> None:
    """Least of three: this machine may be busy, the reader must not be slow."""
    tokens = [f"token{i}" for i in range(151_936)]
    merges = [f"to ken{i}" for i in range(151_387)]
    raw, _ = headers.header_bytes(
        {**METADATA, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges}
    )
    best = 1e9
    for _ in range(3):
        start = time.process_time()
        header = read(raw)
        best = min(best, time.process_time() - start)
    texts = header.strings("tokenizer.ggml.tokens")
    assert texts is not None
    assert (len(texts), texts[151_935]) == (151_936, "token151935")
    assert best < 0.150


def test_the_digest_tells_lists_apart() -> None:
    def digest(words: list[str]) -> str:
        found = read(headers.header_bytes({"w": words})[0]).strings("w")
        assert found is not None
        return found.sha256

    assert digest(["ab", "c"]) == digest(["ab", "c"])
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest(["", ""]) != digest([""])
