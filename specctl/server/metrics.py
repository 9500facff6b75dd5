"""`/metrics`: sums of all answers as Prometheus text, and `/cycles`: every record as it happens.

Speculation's series have the suffixes of llama-server and vLLM, behind `specctl:`. They move with
every cycle, not only when an answer has ended, and are there where it speculates;
`specctl:spec_decode_info` names the spec types, or `none`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator

from specctl.events import Cycle, Finished, PromptDone, Record
from specctl.external.exposition import Series, render
from specctl.external.readings import PREFIX, SPEC_INFO
from specctl.metrics import Totals, add

_PREFIX = PREFIX["specctl"]
_BEHIND = 1024  # records that a reader of /cycles may be behind before it is let go


class Listener:
    """One reader of `/cycles`; None is the end."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.records: asyncio.Queue[Record | None] = asyncio.Queue(_BEHIND + 1)

    def offer(self, record: Record | None) -> None:
        """In the loop's thread. One who reads too slowly is let go, and the engine never waits."""
        if self.records.qsize() >= _BEHIND:
            record = None
        if not self.records.full():
            self.records.put_nowait(record)


class Board:
    """What the engine's thread tells, for anyone to read. `spec_types`: what is tried, in order."""

    def __init__(self, spec_types: tuple[str, ...]) -> None:
        self._spec_types = spec_types
        self.totals = Totals()
        self.prompt_tokens = self.reused_tokens = 0
        self.prompt_seconds = 0.0
        self.finished: Counter[str] = Counter()
        self.running = 0
        self._began = time.time()
        self._listeners: list[Listener] = []
        self._lock = threading.RLock()  # `close` may come in a signal handler inside `join`

    def take(self, record: Record) -> None:
        """Fold one record in, and pass it on."""
        if isinstance(record, Cycle):
            self.totals = add(self.totals, record)
        elif isinstance(record, PromptDone):
            self.prompt_tokens += record.prompt_tokens
            self.reused_tokens += record.reused_tokens
            self.prompt_seconds += record.seconds
        elif isinstance(record, Finished):
            self.finished[record.reason] += 1
        if self._listeners:
            self._tell(record)

    def _tell(self, record: Record | None) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for one in listeners:
            try:
                one.loop.call_soon_threadsafe(one.offer, record)
            except RuntimeError:  # its loop has ended
                self.leave(one)

    def join(self) -> Listener:
        """A reader from now on."""
        one = Listener()
        with self._lock:
            self._listeners.append(one)
        return one

    def leave(self, one: Listener) -> None:
        """It reads no more."""
        with self._lock:
            if one in self._listeners:
                self._listeners.remove(one)

    def close(self) -> None:
        """End every stream."""
        self._tell(None)

    def text(self, waiting: int) -> str:
        """The exposition."""
        return render(self._series(waiting), {})

    def _series(self, waiting: int) -> Iterator[Series]:
        totals = self.totals
        ends = tuple(({"reason": key}, float(self.finished[key])) for key in sorted(self.finished))
        yield from (
            _one("generation_tokens_total", "Tokens of answers.", totals.emitted),
            _one("tokens_predicted_total", "The same, by llama-server's name.", totals.emitted),
            _one("tokens_predicted_seconds_total", "Time of all cycles.", totals.seconds),
            _one("prompt_tokens_total", "Tokens of prompts.", self.prompt_tokens),
            _one("prompt_tokens_cached_total", "Of them, kept from before.", self.reused_tokens),
            _one("prompt_seconds_total", "Time of reading prompts.", self.prompt_seconds),
            _one("cycles_total", "Passes of the target.", totals.cycles),
            Series(_PREFIX + "request_finished_total", "counter", "Answers by their end.", ends),
            _one("num_requests_running", "Answers under way.", self.running, "gauge"),
            _one("requests_processing", "The same.", self.running, "gauge"),
            _one("num_requests_waiting", "Requests in the queue.", waiting, "gauge"),
            _one("process_start_time_seconds", "Unix time.", self._began, "gauge"),
            Series(SPEC_INFO, "gauge", "How it drafts; none is plain decoding.",
                   (({"spec_type": ",".join(self._spec_types)}, 1.0),)),
        )  # fmt: skip
        if self._spec_types != ("none",):
            yield from _speculation(totals)


def _speculation(totals: Totals) -> Iterator[Series]:
    """Only where something drafts, as vLLM does."""
    name = "spec_decode_num_"
    yield _one(f"{name}drafts_total", "Cycles with a draft.", totals.drafted_cycles)
    yield _one(f"{name}draft_tokens_total", "Drafted tokens.", totals.drafted)
    yield _one(f"{name}accepted_tokens_total", "Of them, accepted.", totals.accepted)
    for what, counts in (("draft", totals.drafted_at), ("accepted", totals.accepted_at)):
        values = tuple(({"position": str(at)}, float(count)) for at, count in enumerate(counts))
        words = "Cycles that reached this position, counted from 0."
        yield Series(f"{_PREFIX}{name}{what}_tokens_per_pos_total", "counter", words, values)


def _one(name: str, words: str, value: float, kind: str = "counter") -> Series:
    return Series(_PREFIX + name, kind, words, (({}, float(value)),))
