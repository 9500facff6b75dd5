"""Our own time of draft-mtp on the tests' tiny hybrid: wanted ≤ 120 µs for each emitted token.

    python benchmarks/mtp_overhead.py [--k 1 3 5] [--pair mtp-clock-draft] [--rounds 7]

Own time is a cycle without the time inside llama.cpp's decode calls (of the target and of the
heads), as in the cycle records; the sum of all cycles of a generation, divided by the tokens they
emitted. Plain cycles count too: with a head that is often wrong they are what is left of it. The
first generation of each K warms up and measures t_1. Other pairs: `chain-hy_v3-laws` (three heads),
`assistant-draft` (a Gemma 4 assistant). Needs gguf and numpy.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "0")  # one thread: none waits for another

from specctl.engine.session import open_session
from specctl.events import Cycle
from specctl.settings import EngineSettings, Request, SpecSettings

TARGETS = {"assistant-draft": "gemma4-clock"}  # of heads in a file of their own
WANTED = 120.0  # µs for each emitted token


def build(pair: str, folder: Path) -> tuple[Path, Path | None]:
    """The target and the file of its heads, if that is another."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    import tiny
    import tiny_assistant  # noqa: F401 - adds its models to tiny's
    import tiny_chain  # noqa: F401 - adds its models to tiny's
    import tiny_mtp  # noqa: F401 - adds its models to tiny's

    if pair in TARGETS:
        return tiny.build(TARGETS[pair], folder), tiny.build(pair, folder)
    return tiny.build(pair, folder), None


def rounds(
    files: tuple[Path, Path | None], k: int, tokens: int, count: int
) -> tuple[list[list[Cycle]], str]:
    """The cycles of `count` equal generations after the first, and the notes of the session."""
    spec = SpecSettings(types=("draft-mtp",), k=k)
    with open_session(*files, (spec,), EngineSettings(n_ctx=2048, threads=1)) as session:
        prompt = tuple(session.tokenize(" amber fabric eagle and more"))
        found = []
        for _ in range(count + 1):
            session.reset()
            records = session.generate(Request(prompt, max_tokens=tokens, ignore_eog=True))
            found.append([record for record in records if isinstance(record, Cycle)])
        return found[1:], "; ".join(session.notes)


def own_time(cycles: list[Cycle]) -> float:
    """µs outside llama.cpp for each emitted token."""
    return sum(cycle.t_p for cycle in cycles) / sum(len(c.emitted) for c in cycles) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", default="mtp-clock-draft")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 3, 5])
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = build(args.pair, Path(folder))
        print(f"{args.pair}, draft-mtp, {args.tokens} tokens, {args.rounds} rounds, one thread")
        for k in args.k:
            found, notes = rounds(files, k, args.tokens, args.rounds)
            ours = [own_time(cycles) for cycles in found]
            drafted = [cycle for cycles in found for cycle in cycles if cycle.drafted]
            per_cycle = statistics.median(cycle.t_p for cycle in drafted) * 1e6
            whole = statistics.median(cycle.t_c for cycle in drafted) * 1e6
            emitted = statistics.mean(len(cycle.emitted) for cycle in drafted)
            print(
                f"K {k}: {statistics.median(ours):6.1f} µs a token (median of rounds; "
                f"{min(ours):.0f} to {max(ours):.0f}; wanted ≤ {WANTED:.0f}); drafted cycle "
                f"{whole:.0f} µs, of it ours {per_cycle:.0f}; {emitted:.2f} tokens a cycle"
            )
            if "at most" in notes:
                print(f"      {notes}")


if __name__ == "__main__":
    main()
