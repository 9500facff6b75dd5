"""Write an F16 or F32 copy of a GGUF: a target that is bound by memory, as on a GPU.

    python benchmarks/models/make_f16_target.py SOURCE.gguf TARGET.gguf [f16|f32]

Speculation pays where a pass over several tokens costs little more than a pass over one. A
quantised model on a CPU is bound by computing, which hides that; its F16 copy is bound by memory.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from specctl.errors import SpecctlError
from specctl.llama.quantise import convert


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("kind", nargs="?", choices=["f16", "f32"], default="f16")
    args = parser.parse_args()
    try:
        convert(args.source, args.target, args.kind)
    except SpecctlError as error:
        sys.exit(f"error: {error.message}")
    print(f"{args.target}: {args.target.stat().st_size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
