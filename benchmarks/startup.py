"""How long `specctl --version` takes, whole process: wanted ≤ 0.25 s.

    python benchmarks/startup.py [--rounds 15]

The first start fills the disk cache and the byte-code cache and is thrown away.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

COMMANDS = (("--version",), ("--help",), ("bench", "--help"))


def seconds(arguments: tuple[str, ...]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "specctl", *arguments], check=True, capture_output=True)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    for command in COMMANDS:
        seconds(command)
        taken = [seconds(command) for _ in range(rounds)]
        print(
            f"specctl {' '.join(command):14} median {statistics.median(taken):.3f} s "
            f"({min(taken):.3f} to {max(taken):.3f}, {rounds} starts)"
        )


if __name__ == "__main__":
    main()
