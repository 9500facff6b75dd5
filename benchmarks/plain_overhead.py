"""Plain decoding through our loop against raw `llama_decode` of the same tokens: wanted ≥ 0.98.

    python benchmarks/plain_overhead.py [--model demo] [--tokens 128] [--rounds 7] [--threads N]

Both use the same loaded context and threads and decode the same tokens one by one after the same
prompt. Raw is nothing but the native call in a loop: no logits are read, nothing is judged. They
take turns, in alternating order, and the first round is thrown away. Wall time needs an idle
machine; CPU time (of all threads) says nearly the same and minds other programs less.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import time
from pathlib import Path

from specctl.engine.session import Session, open_session
from specctl.events import Cycle
from specctl.llama.api import library
from specctl.resolve import resolve_model
from specctl.settings import EngineSettings, Request

TEXT = "Describe a harbour town in autumn: the boats, the market, the people and the weather."


class Clock:
    """Seconds since it was made: wall, and CPU of all threads."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def read(self) -> tuple[float, float]:
        """(wall, CPU)"""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


Taken = tuple[float, float]


def ours(session: Session, prompt: tuple[int, ...], count: int) -> tuple[Taken, list[int]]:
    """Seconds from the first cycle to the last, consumer included, and the tokens."""
    session.reset()
    records = session.generate(Request(prompt, max_tokens=count, ignore_eog=True))
    next(records), next(records)  # Started, PromptDone
    clock = Clock()
    tokens = [token for r in records if isinstance(r, Cycle) for token in r.emitted]
    return clock.read(), tokens


def raw(session: Session, prompt: tuple[int, ...], tokens: list[int]) -> Taken:
    """Seconds of the bare native calls that decode the same tokens."""
    lib, context = library(), session.context
    session.reset()
    context.follow(prompt[:-1])
    cells = [(ctypes.c_int32 * 1)(token) for token in (prompt[-1], *tokens[:-1])]
    batches = [lib.llama_batch_get_one(cell, 1) for cell in cells]  # they point into `cells`
    clock = Clock()
    for batch in batches:
        if lib.llama_decode(context.handle, batch):
            raise SystemExit("llama_decode failed")
    taken = clock.read()
    context.clear()  # the mirror knows nothing of these tokens
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    path: Path = resolve_model(args.model)
    load = os.getloadavg()[0]
    with open_session(path, settings=EngineSettings(n_ctx=1024, threads=args.threads)) as session:
        prompt = session.chat([{"role": "user", "content": TEXT}])
        _, tokens = ours(session, prompt, args.tokens)
        raw(session, prompt, tokens)
        pairs = []
        for round_ in range(args.rounds):
            if round_ % 2:
                bare = raw(session, prompt, tokens)
                loop, again = ours(session, prompt, args.tokens)
            else:
                loop, again = ours(session, prompt, args.tokens)
                bare = raw(session, prompt, tokens)
            if again != tokens:
                raise SystemExit("plain decoding gave another text: nothing to compare")
            pairs.append((loop, bare))
        threads = session.threads
    count = len(tokens)
    print(f"{path.name}, {threads} threads, {count} tokens, load average {load:.1f}")
    for index, name in enumerate(("wall", "CPU")):
        ratios = [raw_[index] / ours_[index] for ours_, raw_ in pairs]
        added = statistics.median((ours_[index] - raw_[index]) / count for ours_, raw_ in pairs)
        print(
            f"{name:4}  raw {count / statistics.median(r[index] for _, r in pairs):.2f} tok/s, "
            f"ours {count / statistics.median(o[index] for o, _ in pairs):.2f} tok/s, "
            f"ratio {statistics.median(ratios):.4f} ({min(ratios):.4f} to {max(ratios):.4f}, "
            f"{len(ratios)} rounds), our loop adds {added * 1e6:.0f} µs a token"
        )


if __name__ == "__main__":
    main()
