"""The engine's thread: opens the model, then answers one request after the other."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from specctl.engine.conversation import written
from specctl.engine.dialogue import bound
from specctl.errors import ContextFullError, EngineError, GrammarError, SpecctlError, UsageError
from specctl.events import Record
from specctl.llama import gbnf
from specctl.llama.schema import from_schema
from specctl.server.metrics import Board
from specctl.server.queue import FairQueue
from specctl.server.schema import Wanted
from specctl.settings import Request

if TYPE_CHECKING:
    from specctl.engine.session import Session

Opener = Callable[[contextlib.ExitStack], "Session"]
_LOG = logging.getLogger("specctl.server")


@dataclass(frozen=True, slots=True)
class Begun:
    """Its turn has come, and the prompt fits. `notes`: what a schema asks for and does not get."""

    prompt_tokens: int
    thinking: bool
    notes: tuple[str, ...]


Item = Begun | Record | SpecctlError


class Job:
    """A request on its way. Made in the loop's thread; the worker puts `items`, never waiting.

    An answer is at most as long as the context, so is what a slow reader leaves here.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.items: asyncio.Queue[Item] = asyncio.Queue()
        self.is_cancelled = False
        self._loop = asyncio.get_running_loop()

    def put(self, item: Item) -> None:
        """From the worker's thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.items.put_nowait, item)


class Worker:
    """`opener` loads the model on this thread; `on_ready` is told when it has, `on_failure` when it
    failed, both from this thread.
    """

    def __init__(
        self,
        opener: Opener,
        board: Board,
        most_waiting: int,
        on_ready: Callable[[Worker], None],
        on_failure: Callable[[], None],
    ) -> None:
        self.board = board
        self.failure: SpecctlError | None = None
        self.state: Literal["loading", "ready", "ended"] = "loading"
        self.model, self.n_ctx = "", 0
        self.notes: tuple[str, ...] = ()
        self._opener, self._on_ready, self._on_failure = opener, on_ready, on_failure
        self._queue: FairQueue[Job] = FairQueue(most_waiting)
        self._lock = threading.Lock()
        self._current: Job | None = None
        self._session: Session | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Begin to load."""
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    @property
    def is_busy(self) -> bool:
        """An answer is under way."""
        return self._current is not None

    def submit(self, job: Job, client: str) -> bool:
        """Into the queue; False: it is full."""
        return self._queue.put(job.wanted.conversation or client, job)

    def cancel(self, job: Job) -> None:
        """Stop it within a cycle; one that has ended stays as it is."""
        job.is_cancelled = True
        self._queue.remove(job)
        with self._lock:
            if self._current is job and self._session is not None:
                self._session.cancel.set()

    def stop(self) -> None:
        """Cancel what runs and what waits, then end. From any thread, also from a signal."""
        self.state = "ended"
        for job in self._queue.close():
            job.put(EngineError("the server is shutting down"))
        current, session = self._current, self._session
        if current is not None and session is not None:
            current.is_cancelled = True
            session.cancel.set()
        self.board.close()

    def join(self, seconds: float) -> None:
        """Wait for its end: the model is freed then."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            try:
                self._session = session = self._opener(stack)
            except SpecctlError as error:
                self.failure = error
                self.state = "ended"
                self._on_failure()
                return
            stack.callback(self._forget)
            self.model, self.n_ctx = session.model.path.name, session.n_ctx
            self.notes = tuple(session.notes)
            if self.state == "loading":
                self.state = "ready"
                self._on_ready(self)
            while (job := self._queue.take()) is not None:
                self._do(session, job)

    def _forget(self) -> None:
        with self._lock:
            self._session = None

    def _do(self, session: Session, job: Job) -> None:
        with self._lock:
            self._current = job
        self.board.running = 1
        try:
            self._answer(session, job)
        except SpecctlError as error:
            job.put(error)
            if isinstance(error, EngineError) and not isinstance(error, ContextFullError):
                session.reset()  # what llama.cpp holds is not known now
        except Exception as error:
            _LOG.exception("an answer failed")
            job.put(EngineError(f"{type(error).__name__}: {error}"))
        finally:
            self.board.running = 0
            with self._lock:
                self._current = None

    def _answer(self, session: Session, job: Job) -> None:
        wanted = job.wanted
        grammar, notes = _grammar(wanted)
        tokens, thinking = _prompt(session, wanted, grammar is not None)
        if len(tokens) >= session.n_ctx:
            raise ContextFullError(
                f"the prompt has {len(tokens)} tokens, the context holds {session.n_ctx}",
                "a shorter prompt, or a server with a larger --ctx",
            )
        request = Request(
            tokens, wanted.max_tokens, wanted.sampling, wanted.stop,
            grammar=bound(grammar, thinking),
        )  # fmt: skip
        records = session.generate(request)
        first = next(records)  # the grammar is open: what it cannot do is refused before a stream
        job.put(Begun(len(tokens), thinking, notes))
        for record in itertools.chain((first,), records):
            self.board.take(record)
            job.put(record)
            if job.is_cancelled:  # also where it came before `generate` cleared the flag
                session.cancel.set()


def _grammar(wanted: Wanted) -> tuple[str | None, tuple[str, ...]]:
    """GBNF, and what is to be known of it: keywords that it does not enforce, and slowness."""
    text, ignored = wanted.grammar, tuple[str, ...]()
    if wanted.schema is not None:
        text, ignored = from_schema(wanted.schema)
    if text is None:
        return None, ()
    try:
        gbnf.check(text)
    except GrammarError as error:
        of = "of this schema: " if wanted.schema is not None else ""
        raise GrammarError(of + error.message, error.hint) from error
    notes = (*(f"not enforced: {name}" for name in ignored), gbnf.slow(text))
    return text, tuple(note for note in notes if note)


def _prompt(session: Session, wanted: Wanted, is_bound: bool) -> tuple[tuple[int, ...], bool]:
    """Tokens, and whether a think tag is open at their end."""
    if wanted.kind == "chat":
        return written(session, wanted.messages, wanted.think, is_bound)
    if isinstance(wanted.prompt, str):
        return tuple(session.tokenize(wanted.prompt)), False
    n_vocab = session.model.n_vocab
    if not all(0 <= token < n_vocab for token in wanted.prompt):
        raise UsageError(f"the prompt has a token outside the vocabulary of {n_vocab}")
    return wanted.prompt, False
