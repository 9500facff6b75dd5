"""What a running chat needs beyond what llama.cpp reports: wanted ≤ 60 MB.

    python benchmarks/memory.py [--model demo] [--draft FILE] [--turns 4] [--ctx 4096]

Opens a session as `specctl chat` does, holds a conversation of a few turns with a drafter, and
compares the process's resident memory with the buffers that llama.cpp names in its own log
(weights, KV cache, compute, output). What is left over is Python, the libraries and specctl. A
buffer that llama.cpp reports but never touches is not resident, so the difference is a little too
small where the context is far from full.
"""

from __future__ import annotations

import argparse
import logging
import re
from pathlib import Path

import psutil

from specctl import metrics
from specctl.engine.session import open_session
from specctl.events import Cycle
from specctl.resolve import resolve_model
from specctl.settings import EngineSettings, Request, SpecSettings

MB = 1e6
_BUFFER = re.compile(r"^(?P<what>.*?) size\s*=\s*(?P<mib>[\d.]+) MiB")
QUESTIONS = (
    "Which tools do I need to repair a bicycle?",
    "And how do I change a tube?",
    "Write that as a numbered list.",
    "Repeat the list and add how long each step takes.",
)


class Reported(logging.Handler):
    """Buffers as llama.cpp logs them, `CPU KV buffer size = 90.00 MiB`: bytes by name."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.buffers: list[tuple[str, float]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line if it names a buffer."""
        match = _BUFFER.match(record.getMessage())
        if match and "buffer" in match["what"]:
            self.buffers.append((match["what"].strip(), float(match["mib"]) * 2**20))


def resident() -> float:
    return float(psutil.Process().memory_info().rss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--draft")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--ctx", type=int, default=4096)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    reported = Reported()
    logger = logging.getLogger("specctl.llama")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(reported)
    before = resident()
    path: Path = resolve_model(args.model)
    draft = resolve_model(args.draft) if args.draft else None
    spec = SpecSettings(types=("ngram-simple", *(("draft-simple",) if draft else ())))
    settings = EngineSettings(n_ctx=args.ctx, threads=args.threads)
    with open_session(path, draft, (spec,), settings) as session:
        messages = []
        for turn in range(args.turns):
            messages.append({"role": "user", "content": QUESTIONS[turn % len(QUESTIONS)]})
            records = list(session.generate(Request(session.chat(messages), max_tokens=96)))
            text = "".join(r.text for r in records if isinstance(r, Cycle))
            messages.append({"role": "assistant", "content": text})
        totals = metrics.fold(records)
        after = resident()
    total = sum(size for _, size in reported.buffers)
    print(
        f"{path.name}, context {args.ctx}, {args.turns} turns, {totals.emitted} tokens in the last"
    )
    for name, size in reported.buffers:
        print(f"  {size / MB:9.1f} MB  {name}")
    print(f"  {total / MB:9.1f} MB  reported by llama.cpp")
    print(f"  {after / MB:9.1f} MB  resident after the conversation ({before / MB:.1f} before)")
    print(f"  {(after - total) / MB:9.1f} MB  beyond what is reported")


if __name__ == "__main__":
    main()
