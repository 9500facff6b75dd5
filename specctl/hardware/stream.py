"""A stream test of the host's memory: how many bytes a second really move."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from specctl.errors import SpecctlError
from specctl.hardware.bandwidth import GB
from specctl.units import GIB, MIB, format_bytes


@dataclass(frozen=True, slots=True)
class Stream:
    """Best rates of a stream test, bytes per second, over arrays of `size` bytes in all."""

    copy: float
    triad: float
    threads: int
    size: int
    passes: int
    load: float | None = None  # other programs' load average when it began

    @property
    def best(self) -> float:
        """The larger of the two rates."""
        return max(self.copy, self.triad)

    @property
    def how(self) -> str:
        """What was done, in one line."""
        return (
            f"stream test (numpy): copy {self.copy / GB:.1f}, triad {self.triad / GB:.1f} GB/s; "
            f"{self.threads} threads, {format_bytes(self.size, 0)}, best of {self.passes}, "
            + ("" if self.load is None else f"load average {self.load:.1f}; ")
            + "bytes read + bytes written are counted"
        )


def array_bytes(available: int, cache: int | None) -> int:
    """Bytes of all arrays together: four times the largest cache, within 256 MiB … 2 GiB and a
    quarter of what is available.
    """
    wanted = min(max(256 * MIB, 4 * (cache or 0)), 2 * GIB)
    return max(3 * MIB, min(wanted, available // 4))


def stream_test(threads: int, size: int, passes: int = 5) -> Stream:
    """Measure host memory bandwidth: three float32 arrays per thread, `size` bytes in all.

    copy: c = a, 2 arrays counted. triad: a = b + s·c in numpy is two steps, (a = s·c: 2 arrays,
    a += b: 3 arrays), 5 counted. As in STREAM, cache lines fetched only to be overwritten are not
    counted. numpy releases the interpreter's lock inside each step, so threads run at once.

    Raises:
        SpecctlError: numpy is not installed.
    """
    try:
        import numpy as np
    except ImportError as error:
        raise SpecctlError(
            "measuring memory bandwidth needs numpy, which is not installed",
            "pip install numpy (the engine extra brings it)",
        ) from error
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    count = max(1024, size // (3 * 4 * threads))
    one = count * 4
    sets = [tuple(np.ones(count, dtype=np.float32) for _ in range(3)) for _ in range(threads)]

    def copy(index: int) -> None:
        a, _, c = sets[index]
        np.copyto(c, a)

    def triad(index: int) -> None:
        a, b, c = sets[index]
        np.multiply(c, np.float32(0.5), out=a)
        np.add(a, b, out=a)

    with ThreadPoolExecutor(threads) as pool:
        copied = _best_time(pool, copy, threads, passes)
        added = _best_time(pool, triad, threads, passes)
    return Stream(
        2 * one * threads / copied,
        5 * one * threads / added,
        threads,
        3 * one * threads,
        passes,
        load,
    )


def _best_time(
    pool: ThreadPoolExecutor, step: Callable[[int], None], threads: int, passes: int
) -> float:
    """Seconds of the fastest pass; all threads start together, one pass before warms up."""
    start = threading.Barrier(threads + 1)

    def run(index: int) -> None:
        start.wait()
        step(index)

    best = float("inf")
    for _ in range(passes + 1):
        waiting = [pool.submit(run, index) for index in range(threads)]
        start.wait()
        begun = time.perf_counter()
        for task in waiting:
            task.result()
        best = min(best, time.perf_counter() - begun)
    return best
