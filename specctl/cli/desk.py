"""The engine behind the full screen: does the screen's jobs on a dialogue, one after the other."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from specctl import paths
from specctl.errors import SpecctlError, UsageError
from specctl.events import Finished, PromptDone, Record, Started
from specctl.recording import IN_THE_MIDDLE, write_line
from specctl.tui.desk import Again, Ask, Change, Choice, Command, Job, Open
from specctl.tui.messages import Changed, Event, Forgotten, Note, Ready, Recalled

if TYPE_CHECKING:
    from specctl.engine.dialogue import Dialogue, Question

Opener = Callable[[contextlib.ExitStack], "Dialogue"]
PLAIN = ("none",)


def _write(records: Iterable[Record], sink: TextIO) -> None:
    for record in records:
        write_line(record, sink)
    sink.flush()


class EngineDesk:
    """`opener` loads the models on the first job; what it opens is put on the stack it is given.

    `failure` is why opening failed: the screen ends, and the command reports it as usual.
    """

    def __init__(self, opener: Opener, sink: TextIO | None = None) -> None:
        self._opener = opener
        self._stack = contextlib.ExitStack()
        self._dialogue: Dialogue | None = None
        self._changes: queue.SimpleQueue[Change] = queue.SimpleQueue()
        self._sink = sink
        self._own_sink: TextIO | None = None
        self._begun: TextIO | None = None  # the own sink that has its beginning
        self._sinks = threading.Lock()  # a recording is closed by the screen's thread
        self._head: tuple[Record, ...] = ()  # of the running answer: what begins a recording
        self._bound: frozenset[str] = frozenset()  # model-bound spec types that can be used
        self._first: tuple[str, ...] = PLAIN
        self.failure: SpecctlError | None = None

    def do(self, job: Job) -> Iterator[Event]:
        """See `Desk`."""
        if isinstance(job, Open):
            yield from self._open()
            return
        yield from self._apply()
        dialogue = self._opened
        if isinstance(job, Ask):
            yield from self._answer(dialogue.ask(job.message))
        elif isinstance(job, Again):
            yield from self._answer(dialogue.again())
        elif isinstance(job, Command):
            yield from self._command(job.line)

    def change(self, change: Change) -> None:
        """See `Desk`."""
        self._changes.put(change)

    def stop(self) -> None:
        """See `Desk`."""
        if self._dialogue is not None:
            self._dialogue.session.cancel.set()

    @property
    def recording(self) -> bool:
        """See `Desk`."""
        return self._own_sink is not None

    def record(self) -> Path | None:
        """See `Desk`."""
        with self._sinks:
            if self._own_sink is not None:
                sink, self._own_sink = self._own_sink, None
                sink.close()
                return None
        folder = paths.data_dir() / "recordings"
        path = folder / time.strftime("%Y-%m-%d-%H%M%S.jsonl")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._own_sink = path.open("a", encoding="utf-8")
        except OSError as error:
            raise SpecctlError(f"cannot record to {path}: {error.strerror}") from error
        return path

    def choices(self) -> tuple[Choice, ...]:
        """See `Desk`."""
        from specctl.drafters.registry import SPEC_TYPES

        listed = [
            Choice((one.name,), one.summary)
            for one in SPEC_TYPES.values()
            if one.name in self._bound or not (one.draft_model or one.heads)
        ]
        started = [one for one in listed if one.spec_types == self._first]
        if not started:
            chain = "the chain of the start" if len(self._first) > 1 else "plain decoding"
            started = [Choice(self._first, chain)]
        plain = [] if self._first == PLAIN else [Choice(PLAIN, "plain decoding")]
        return (*started, *(one for one in listed if one not in started), *plain)

    def close(self) -> None:
        """See `Desk`."""
        self._stack.close()
        if self._own_sink is not None:
            self._own_sink.close()

    @property
    def _opened(self) -> Dialogue:
        if self._dialogue is None:
            raise UsageError("the model is not open")
        return self._dialogue

    def _open(self) -> Iterator[Event]:
        try:
            self._dialogue = dialogue = self._opener(self._stack)
        except SpecctlError as error:
            self.failure = error
            raise
        session = dialogue.session
        bound = {
            "draft-simple": session.has_draft,
            "draft-mtp": session.has_heads,
            session.layers_type: True,
        }
        self._bound = frozenset(name for name, usable in bound.items() if usable)
        self._first = session.spec.types
        yield Ready(
            model=session.model.path.name,
            draft_model=session.draft_name,
            spec_types=session.spec.types,
            k=session.spec.k,
            k_max=session.k_in_force,
            n_ctx=session.n_ctx,
            threads=session.threads,
            temperature=dialogue.manner.sampling.temperature,
            device=session.device,
        )
        if dialogue.conversation.turns:  # chat --load
            yield Recalled(dialogue.conversation.pairs)
        for note in dialogue.notes:
            yield Note(note)

    def _answer(self, question: Question) -> Iterator[Event]:
        if question.note:
            yield Note(question.note)
        for record in self._opened.answer(question):
            yield record
            yield from self._keep(record)
            yield from self._apply()

    def _keep(self, record: Record) -> Iterator[Note]:
        """Record it; a full disk ends the recording, not the answer."""
        trouble: list[OSError] = []
        with self._sinks:
            try:
                if self._sink is not None:
                    _write([record], self._sink)
            except OSError as error:
                self._sink = None
                trouble.append(error)
            try:
                if self._own_sink is not None:
                    fresh = self._begun is not self._own_sink
                    self._begun = self._own_sink
                    _write([*self._beginning(record, fresh), record], self._own_sink)
            except OSError as error:
                self._own_sink = None
                trouble.append(error)
        if isinstance(record, Started):
            self._head = (record,)
        elif isinstance(record, PromptDone):
            self._head = (*self._head, record)
        elif isinstance(record, Finished):
            self._head = ()
        for one in trouble:
            yield Note(f"recording ended: {one.strerror}", "warning")

    def _beginning(self, record: Record, fresh: bool) -> tuple[Record, ...]:
        """What a recording that starts in the middle of an answer lacks before `record`."""
        if not fresh or not self._head or isinstance(record, Started):
            return ()
        started, *rest = self._head
        assert isinstance(started, Started)
        if rest:  # the prompt is read: cycles may be missing
            started = dataclasses.replace(started, notes=(*started.notes, IN_THE_MIDDLE))
        return (started, *rest)

    def _apply(self) -> Iterator[Event]:
        """What was asked for since; one that cannot be is a warning, and the rest goes on."""
        while True:
            try:
                change = self._changes.get_nowait()
            except queue.Empty:
                return
            try:
                for note in self._change(change):
                    yield Note(note)
            except SpecctlError as error:
                hint = f" ({error.hint})" if error.hint else ""
                yield Note(error.message + hint, "warning")
            yield self._in_force()

    def _change(self, change: Change) -> tuple[str, ...]:
        dialogue = self._opened
        spec = dialogue.session.spec
        if change.spec_types is not None:
            spec = dataclasses.replace(spec, types=change.spec_types)
        if change.k is not None:
            spec = dataclasses.replace(spec, k=change.k or None)
        if change.temperature is not None:
            sampling = dialogue.manner.sampling
            dialogue.sample(dataclasses.replace(sampling, temperature=change.temperature))
        return dialogue.session.use(spec) if spec != dialogue.session.spec else ()

    def _in_force(self) -> Changed:
        session = self._opened.session
        return Changed(
            session.spec.types,
            session.spec.k,
            session.k_in_force,
            self._opened.manner.sampling.temperature,
        )

    def _command(self, line: str) -> Iterator[Event]:
        from specctl.cli.slash import run_command

        lines: list[str] = []
        conversation = self._opened.conversation
        before = conversation.pairs
        run_command(self._opened, lines.append, line)
        after = conversation.pairs
        if after != before:
            yield Recalled(after) if after else Forgotten()
        for text in lines:
            yield Note(text)
        yield self._in_force()
