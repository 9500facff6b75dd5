"""t_p, our own share of a drafting cycle: wanted ≤ 3 % on a real pair, ≤ 200 µs on a tiny model.

    python benchmarks/cycle_overhead.py --model TARGET.gguf --draft DRAFT.gguf [--k 4]
    python benchmarks/cycle_overhead.py --tiny      (the tests' clock pair; needs gguf and numpy)

t_p is t_c without the time inside llama.cpp's calls, from the cycle records. The first cycles of a
session (t_1 is being measured) have no draft and do not count.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from specctl.engine.session import open_session
from specctl.events import Cycle
from specctl.resolve import resolve_model
from specctl.settings import EngineSettings, Request, SpecSettings

CODE = """Add type hints and print the whole file again.

def area(width, height):
    return width * height


def volume(width, height, depth):
    return area(width, height) * depth
"""


def tiny_pair(folder: Path) -> tuple[Path, Path]:
    """The clock pair of the tests, written into `folder`."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    import tiny

    return tiny.build("clock", folder), tiny.build("clock-draft", folder)


def cycles(target: Path, draft: Path, k: int, tokens: int, threads: int | None) -> list[Cycle]:
    """The drafted cycles of the second of two equal generations."""
    spec = SpecSettings(types=("draft-simple",), k=k)
    settings = EngineSettings(n_ctx=1024, threads=threads)
    with open_session(target, draft, (spec,), settings) as session:
        prompt = session.chat([{"role": "user", "content": CODE}])
        for _ in range(2):
            session.reset()
            records = session.generate(Request(prompt, max_tokens=tokens, ignore_eog=True))
            found = [r for r in records if isinstance(r, Cycle) and r.drafted]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model")
    parser.add_argument("--draft")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    if not args.tiny and not (args.model and args.draft):
        parser.error("name --model and --draft, or --tiny")
    with tempfile.TemporaryDirectory() as folder:
        if args.tiny:
            target, draft = tiny_pair(Path(folder))
        else:
            target, draft = resolve_model(args.model), resolve_model(args.draft)
        found = cycles(target, draft, args.k, args.tokens, args.threads)
    ours = [cycle.t_p * 1e6 for cycle in found]
    share = sum(cycle.t_p for cycle in found) / sum(cycle.t_c for cycle in found)
    print(f"{target.name} + {draft.name}, draft-simple, K = {args.k}: {len(found)} drafted cycles")
    print(f"cycle  {statistics.median(cycle.t_c for cycle in found) * 1e3:9.3f} ms (median)")
    print(f"t_p    {statistics.median(ours):9.1f} µs (median; {min(ours):.0f} to {max(ours):.0f})")
    print(f"share  {share:9.2%} of the cycle time")


if __name__ == "__main__":
    main()
