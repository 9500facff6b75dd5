"""What a look-up costs: µs per `propose` of each n-gram drafter behind a long text.

    python benchmarks/ngram_lookup.py [--tokens 32768] [--steps 512] [--compat]

The text is made here (a fixed seed): stretches that repeat earlier ones, half of them changed in a
token, between new ones whose tokens are as unequal in frequency as words are. `begin` takes the
first part; then the text grows as in decoding, by what was accepted of the draft and one token
more. Each `propose` includes the index update for the new tokens; `a token` is all of it divided
by the tokens decoded. The drafters do not decode, so
these are the costs a cycle pays on top of the target.
"""

from __future__ import annotations

import argparse
import random
import time
import tracemalloc
from collections.abc import Callable

from specctl.drafters.base import Drafter, Outcome
from specctl.drafters.ngram_cache import NgramCache
from specctl.drafters.ngram_map import NgramMapK, NgramMapK4V
from specctl.drafters.ngram_mod import NgramMod
from specctl.drafters.ngram_simple import NgramSimple
from specctl.drafters.suffix import NgramSuffix
from specctl.settings import NgramModSettings, NgramSettings, Sampling

LIMIT = 64


def makers(compat: bool) -> dict[str, Callable[[], Drafter]]:
    made: dict[str, Callable[[], Drafter]] = {
        "ngram-simple": lambda: NgramSimple(NgramSettings(), compat),
        "ngram-map-k": lambda: NgramMapK(NgramSettings(), compat),
        "ngram-map-k4v": lambda: NgramMapK4V(NgramSettings(), compat),
        "ngram-mod": lambda: NgramMod(NgramModSettings(), compat),
        "ngram-cache": lambda: NgramCache(LIMIT, compat),
    }
    if not compat:
        made["ngram-suffix"] = lambda: NgramSuffix(LIMIT)
        made["ngram-suffix, whole path"] = lambda: NgramSuffix(LIMIT, threshold=0)
    return made


def make_text(length: int, seed: int = 1) -> list[int]:
    rng = random.Random(seed)
    text: list[int] = []
    while len(text) < length:
        if len(text) > 200 and rng.random() < 0.5:
            start = rng.randrange(len(text) - 100)
            text += text[start : start + rng.randrange(20, 100)]
            if rng.random() < 0.5:
                text[-10] = rng.randrange(32_000)
        else:
            text += [int(32_000 ** rng.random()) for _ in range(rng.randrange(20, 60))]
    return text[:length]


def decode(drafter: Drafter, text: list[int], prompt: int) -> tuple[float, list[float], int, int]:
    """(seconds of begin, seconds of each propose, drafted, accepted) as if `text` were decoded."""
    started = time.thread_time()
    drafter.begin(text[:prompt], Sampling())
    began = time.thread_time() - started
    said, times, drafted, right = text[:prompt], [], 0, 0
    while len(said) < len(text) - LIMIT:
        started = time.thread_time()
        draft = drafter.propose(said, LIMIT)
        times.append(time.thread_time() - started)
        after = text[len(said) : len(said) + len(draft.tokens) + 1]
        accepted = 0
        while accepted < len(draft.tokens) and draft.tokens[accepted] == after[accepted]:
            accepted += 1
        emitted = tuple(after[: accepted + 1])
        said.extend(emitted)
        drafter.settle(Outcome(draft, accepted, emitted, len(said)))
        drafted += len(draft.tokens)
        right += accepted
    return began, times, drafted, right


def memory(make: Callable[[], Drafter], text: list[int]) -> float:
    """Bytes per token that the drafter holds after `begin` (its copies of the text included)."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    drafter = make()
    drafter.begin(text, Sampling())
    drafter.propose(text, LIMIT)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    drafter.close()
    return held / len(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=32_768, help="length of the prompt")
    parser.add_argument("--steps", type=int, default=512, help="tokens decoded after it")
    parser.add_argument("--compat", action="store_true", help="llama.cpp's behaviour")
    args = parser.parse_args()
    text = make_text(args.tokens + args.steps + LIMIT)
    print(f"{args.tokens} tokens of text, then {args.steps} decoded; limit {LIMIT}")
    print(
        f"{'':26}{'median':>9}{'p99':>9}{'a token':>9}{'begin':>10}{'memory':>13}{'accepted':>14}"
    )
    for name, make in makers(args.compat).items():
        drafter = make()
        began, times, drafted, right = decode(drafter, text, args.tokens)
        drafter.close()
        each = sum(times) / args.steps
        times.sort()
        median, p99 = times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
        held = memory(make, text[: args.tokens])
        print(
            f"{name:26}{median * 1e6:6.1f} µs{p99 * 1e6:6.1f} µs{each * 1e6:6.1f} µs"
            f"{began * 1e3:7.0f} ms{held:7.0f} B/tok{right:7d}/{drafted}"
        )


if __name__ == "__main__":
    main()
