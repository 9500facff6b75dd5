"""`python gbnf_child.py LIBRARY < GRAMMAR`: exit code 0 if llama.cpp's parser takes the grammar.

A program of its own that imports nothing of ours: the parser may hang, exhaust memory or overflow
its stack. What it says is on stderr.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys

_MEMORY = 1 << 30  # bytes of data; the parser needs a few MB


def main() -> int:
    """Parse stdin without a vocabulary."""
    text = sys.stdin.buffer.read()
    library = ctypes.CDLL(sys.argv[1])
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    start = library.llama_sampler_init_grammar
    start.restype = ctypes.c_void_p
    start.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    return 0 if start(None, text, b"root") else 1


if __name__ == "__main__":
    sys.exit(main())
