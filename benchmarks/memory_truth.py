"""What llama.cpp itself says a model needs, without loading weights: one JSON object per context.

    python benchmarks/memory_truth.py MODEL.gguf '[{"n_ctx": 4096, "n_ubatch": 512}, ...]' ...

More pairs of model and contexts may follow.

The model is opened with `no_alloc`, contexts are created normally: llama.cpp then plans every
buffer and allocates none. Weights come from llama_model_size, the rest from its memory breakdown
(a std::map by value, walked by hand: Linux with libstdc++ only) and, for the output buffer, its
log. Runs in a process of its own because llama.cpp aborts on what it does not like.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys

os.environ.setdefault("GGML_NO_BACKTRACE", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import llama_cpp.llama_cpp as lib

LINES: list[str] = []


@lib.llama_log_callback
def _log(level: int, text: bytes, data: object) -> None:
    LINES.append(text.decode("utf-8", "replace"))


class _Map(ctypes.Structure):
    _fields_ = (
        ("compare", ctypes.c_size_t),
        ("colour", ctypes.c_size_t),
        ("root", ctypes.c_void_p),
        ("left", ctypes.c_void_p),
        ("right", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
    )


def breakdown(context: object) -> dict[str, tuple[int, int, int]]:
    """Buffer type → bytes of weights, memory (KV and state), compute."""
    call = lib._lib._Z26llama_get_memory_breakdownPK13llama_context
    call.restype, call.argtypes = _Map, [ctypes.c_void_p]
    name = lib._lib.ggml_backend_buft_name
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    found: dict[str, tuple[int, int, int]] = {}

    def walk(node: int | None) -> None:
        if node:
            _, _, left, right, key, model, memory, compute = (ctypes.c_size_t * 8).from_address(
                node
            )
            walk(left)
            found[name(key).decode()] = (model, memory, compute)
            walk(right)

    table = call(context)
    walk(table.root)
    assert len(found) == table.count, "the map is not laid out as expected"
    return found


def open_model(path: str) -> object:
    params = lib.llama_model_default_params()
    params.no_alloc, params.load_mode, params.load_mtp = True, 0, True
    model = lib.llama_model_load_from_file(path.encode(), params)
    if not model:
        sys.exit("load failed: " + "".join(LINES[-6:]))
    return model


def measure(model: object, options: dict[str, int]) -> dict[str, object]:
    params = lib.llama_context_default_params()
    params.n_threads = params.n_threads_batch = 1
    for key, value in {"n_batch": 512, "n_ubatch": 512, **options}.items():
        setattr(params, key, value)
    LINES.clear()
    context = lib.llama_init_from_model(model, params)
    if not context:
        return {"error": "".join(LINES[-3:])}
    found = breakdown(context)
    text = "".join(LINES)
    output = re.findall(r"output buffer size = +([\d.]+) MiB", text)
    lib.llama_free(context)
    return {
        "weights": int(lib.llama_model_size(model)),
        "memory": sum(row[1] for row in found.values()),
        "compute": sum(row[2] for row in found.values()),
        "output": float(output[0]) * 1024**2 if output else 0.0,
    }


def main() -> None:
    lib.llama_log_set(_log, ctypes.c_void_p(0))
    lib.llama_backend_init()
    for path, contexts in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        model = open_model(path)
        for options in json.loads(contexts):
            print(json.dumps(measure(model, options)), flush=True)
        lib.llama_model_free(model)


if __name__ == "__main__":
    main()
