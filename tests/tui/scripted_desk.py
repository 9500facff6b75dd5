"""A desk that plays records, for the screen's tests."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import records as r

from specctl.errors import UsageError
from specctl.events import Cycle
from specctl.tui.desk import Again, Ask, Change, Choice, Command, Job, Open
from specctl.tui.messages import Changed, Event, Forgotten, Note, Ready

READY = Ready("target.gguf", "draft.gguf", ("auto",), None, 48, 4096, 2, 0.7)


class ScriptedDesk:
    """Answers each message with the next of `answers`. `jobs` is what it was asked.

    With `hold` set, an answer waits after its first cycle until `go` is set or it is stopped.
    """

    def __init__(self, *answers: Iterable[Event], ready: Event = READY, hold: bool = False) -> None:
        self._answers = [list(answer) for answer in answers]
        self._ready = ready
        self._hold = hold
        self._changes: list[Change] = []
        self.go = threading.Event()
        self.jobs: list[Job] = []
        self.stopped = False
        self.recording = False

    def do(self, job: Job) -> Iterator[Event]:
        self.jobs.append(job)
        yield from self._apply()
        if isinstance(job, Open):
            yield self._ready
        elif isinstance(job, Ask | Again):
            yield from self._answer()
        elif isinstance(job, Command):
            yield from self._command(job.line)

    def _answer(self) -> Iterator[Event]:
        for event in self._answers.pop(0) if self._answers else ():
            yield event
            yield from self._apply()
            if self._hold and isinstance(event, Cycle):
                self.go.wait(5)
            if self.stopped:
                yield r.finished(1, "cancelled")
                return

    def _command(self, line: str) -> Iterator[Event]:
        if line == "/reset":
            yield Forgotten()
        elif line == "/stats":
            yield Note("acceptance by position: 90 80 %")
        else:
            raise UsageError(f"{line} is not a command", "/help lists them")

    def _apply(self) -> Iterator[Event]:
        while self._changes:
            change = self._changes.pop(0)
            yield Changed(change.spec_types or ("auto",), change.k or None, change.k or 48, 0.7)

    def change(self, change: Change) -> None:
        self._changes.append(change)

    def stop(self) -> None:
        self.stopped = True
        self.go.set()

    def record(self) -> Path | None:
        self.recording = not self.recording
        return Path("/somewhere/record.jsonl") if self.recording else None

    def choices(self) -> tuple[Choice, ...]:
        return (
            Choice(("auto",), "whichever pays"),
            Choice(("ngram-simple",), "look-up"),
            Choice(("none",), "plain decoding"),
        )

    def close(self) -> None:
        pass
