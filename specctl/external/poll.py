"""Watching a server: looks at it, one after the other, as records and remarks.

A server that goes away is waited for, and said so once. Nothing here knows a terminal.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from specctl.errors import RemoteError, SpecctlError
from specctl.events import Cycle, Record, from_dict
from specctl.external.errors import JunkError, SilentError
from specctl.external.exposition import parse
from specctl.external.ledger import Ledger
from specctl.external.probe import PROMPTS, ask
from specctl.external.readings import PREFIX, Iterations, Reading, read_series
from specctl.external.recognise import Seen, metrics_off, recognise
from specctl.external.remark import Remark
from specctl.external.wire import Line

Wait = Callable[[float], bool]  # sleeps so many seconds; true: end
_SETTLE = 2.0  # seconds in which counters may follow a request that has ended


class Counters:
    """Looks at the counters of one server; `after` an earlier look, where there was one."""

    def __init__(self, line: Line, seen: Seen, after: Reading | None = None) -> None:
        self._line = line
        self._seen = seen
        self._iterations = Iterations(after.iteration if after is not None else None)
        self._listed = list(seen.listed)

    def look(self) -> Reading:
        """What it counts now.

        Raises:
            GoneError, KeyRefusedError: no answer, no entrance.
            MetricsOffError: no counters.
            JunkError: counters that are none.
        """
        if self._seen.engine == "trtllm":
            return self._trtllm()
        answer = self._line.get("/metrics")
        if not answer.ok or answer.is_page:
            if answer.status >= 500 and answer.status != 501:
                raise JunkError(f"{self._seen.url}/metrics answers {answer.status}")
            raise metrics_off(self._seen)
        samples = parse(answer.text)
        if not samples.has(PREFIX[self._seen.engine]):
            raise metrics_off(self._seen)
        return read_series(self._seen.engine, samples)

    def _trtllm(self) -> Reading:
        """The JSON list for what was drafted; the Prometheus text for what was generated."""
        listed = self._line.get("/metrics")
        text = self._line.get("/prometheus/metrics")
        samples = parse(text.text) if text.ok and not text.is_page else None
        series = None
        if samples is not None and samples.has(PREFIX["trtllm"]):
            series = read_series("trtllm", samples)
        value = listed.json() if listed.ok else None
        if isinstance(value, list):
            value, self._listed = self._listed + value, []
            return self._iterations.read(value, series.sums.generated if series else None)
        if series is None:
            raise metrics_off(self._seen)
        return series


@dataclass(frozen=True, slots=True)
class Plan:
    """How to watch. `interval` seconds; `t_1` of a plain step, where known; `probe`: ask, too."""

    interval: float = 1.0
    t_1: float | None = None
    probe: bool = False


def watch(
    line: Line,
    seen: Seen,
    plan: Plan,
    wait: Wait,
    clock: Callable[[], float] = time.monotonic,
    first: Reading | None = None,
) -> Iterator[Record | Remark]:
    """Records and remarks until `wait` says to end. `first`: the look that `open_server` took.

    Raises:
        SpecctlError: the first look fails; later ones are waited out.
    """
    if plan.probe:
        yield from _probing(line, seen, plan, wait)
    elif seen.cycles:
        yield from _following(line, seen, plan, wait, clock)
    else:
        yield from _counting(line, seen, plan, wait, clock, first)


def _counting(
    line: Line,
    seen: Seen,
    plan: Plan,
    wait: Wait,
    clock: Callable[[], float],
    first: Reading | None = None,
) -> Iterator[Record | Remark]:
    counters = Counters(line, seen, first)
    ledger = Ledger(seen.engine, clock(), plan.t_1)
    if first is None:
        first = counters.look()
    yield from remarks_on(seen, first)
    yield from ledger.enter(first, clock())
    trouble = ""
    while not wait(plan.interval):
        try:
            reading = counters.look()
        except RemoteError as error:
            if type(error).__name__ != trouble:
                trouble = type(error).__name__
                yield Remark(f"{_words(error)}: waiting for it", "warning", up=False)
            continue
        if trouble:
            trouble = ""
            yield Remark(f"{seen.title} answers again", up=True)
        yield from ledger.enter(reading, clock())


def remarks_on(seen: Seen, reading: Reading) -> Iterator[Remark]:
    """What its numbers do not tell, once."""
    if seen.speculates is False:
        yield _plain(seen)
    elif reading.speculates is None and seen.engine != "trtllm":
        yield Remark(
            f"{seen.title} has no series of speculation: it is off there, or an older release",
            "warning",
        )
    if seen.engine == "llama-server":
        yield Remark("llama-server counts when a request ends: nothing moves before")
    elif seen.engine == "sglang":
        yield Remark(
            "SGLang counts drafts when a request ends; accepted tokens are derived: generated - "
            "requests - drafts; drafted ones are drafts × its draft length"
        )
    elif seen.engine == "trtllm" and reading.drained:
        yield Remark("TensorRT-LLM's list is emptied by each read: another reader takes from it")
    if reading.sums.generated is None:
        yield Remark("generated tokens are not told: no tok/s, no tokens per pass", "warning")


def _plain(seen: Seen) -> Remark:
    return Remark(f"{seen.title} runs without speculation", "warning")


def _words(error: SpecctlError) -> str:
    return error.message.rstrip(".")


# ---------------------------------------------------------------- specctl's own server


def _following(
    line: Line, seen: Seen, plan: Plan, wait: Wait, clock: Callable[[], float]
) -> Iterator[Record | Remark]:
    """Its stream of cycles; where it has none, its counters."""
    if seen.speculates is False:
        yield _plain(seen)
    told = False
    opened = False
    while True:
        try:
            for data in line.events("/cycles"):
                if told:
                    yield Remark(f"{seen.title} answers again", up=True)
                told, opened = False, True
                record = read_record(data)
                if record is not None:
                    yield record
                if wait(0.0):
                    return
        except SilentError:  # nobody asks it anything
            opened = True
        except RemoteError as error:
            if not opened and getattr(error, "status", None) == 404:  # an older one
                seen = dataclasses.replace(seen, cycles=False)
                yield from _counting(line, seen, plan, wait, clock)
                return
            if not opened:
                raise
            if not told:
                told = True
                yield Remark(f"{_words(error)}: waiting for it", "warning", up=False)
        else:
            if not told:
                told = True
                yield Remark(
                    f"{seen.title} has closed its stream: waiting for it", "warning", up=False
                )
        if wait(plan.interval):
            return


def read_record(data: str) -> Record | None:
    """A record of a /cycles stream; None for what is no record of this version.

    Raises:
        JunkError: not JSON.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise JunkError("its /cycles stream is not JSON") from error
    if not isinstance(value, dict):
        return None
    try:
        return from_dict(value)
    except SpecctlError:
        return None


# ---------------------------------------------------------------- llama-server's own cycles


def _probing(line: Line, seen: Seen, plan: Plan, wait: Wait) -> Iterator[Record | Remark]:
    """Our own prompts, one after the other; its counters must move by the same."""
    number = 0
    while True:
        yield from probe(line, seen, PROMPTS[number % len(PROMPTS)], plan.t_1, wait)
        number += 1
        if wait(plan.interval):
            return


def probe(
    line: Line, seen: Seen, prompt: str, t_1: float | None, wait: Wait
) -> Iterator[Record | Remark]:
    """One prompt: its records, then whether the server counted the same."""
    counters = Counters(line, seen) if seen.metrics else None
    before = counters.look() if counters is not None else None
    totals = [0, 0, 0]
    for record in ask(line, seen, prompt):
        if isinstance(record, Cycle):
            if t_1 is not None:
                record = dataclasses.replace(record, t_1=t_1)
            totals[0] += bool(record.drafted)
            totals[1] += len(record.drafted)
            totals[2] += record.accepted
        yield record
    if counters is not None and before is not None:
        yield _compared(counters, before, tuple(totals), wait)


def _compared(counters: Counters, before: Reading, seen: tuple[int, ...], wait: Wait) -> Remark:
    """Its counters may follow a moment later."""
    names = ("drafts", "drafted", "accepted")
    moved: tuple[int, ...] = ()
    for _ in range(10):
        now, was = counters.look().sums, before.sums
        moved = (now.drafts - was.drafts, now.drafted - was.drafted, now.accepted - was.accepted)
        if moved == seen or wait(_SETTLE / 10):
            break
    words = ", ".join(f"{count} {name}" for count, name in zip(seen, names, strict=True))
    if moved == seen:
        return Remark(f"its own counters moved by the same: {words}")
    theirs = ", ".join(f"{count} {name}" for count, name in zip(moved, names, strict=True))
    return Remark(
        f"cycles seen: {words}; its counters moved by {theirs}: other requests?",
        "warning",
    )


def open_server(line: Line, probing: bool) -> tuple[Seen, Reading | None]:
    """Recognise it, and check that what is asked can be had: the first look, where one is due.

    Raises:
        RemoteError: see specctl/external/errors.py.
        MetricsOffError: its counters are off, and nothing else was asked for.
    """
    seen = recognise(line)
    if probing and seen.engine != "llama-server":
        raise RemoteError(
            f"{seen.title} shows no cycles of a request",
            "--probe is for llama-server; without it, its counters are watched",
        )
    if not seen.metrics and not probing and not seen.cycles:
        raise metrics_off(seen)
    if not seen.metrics or seen.cycles:
        return seen, None
    reading = Counters(line, seen).look()
    if seen.engine == "vllm":  # its series are there where it speculates, and only there
        seen = dataclasses.replace(seen, speculates=bool(reading.speculates))
    return dataclasses.replace(seen, listed=()), reading
