"""The thread that conducts a benchmark for a screen: drawn between the runs, stopped from outside.

A step is handed over while nothing is measured, and the next run begins only when the screen has
drawn it: drawing costs the measurement nothing. What is asked of the thread comes as `Stop`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from specctl.bench.conduct import Opener, conduct
from specctl.bench.results import Outcome
from specctl.bench.run import BenchPlan
from specctl.bench.workloads import Message
from specctl.events import Cycle, Record
from specctl.settings import EngineSettings, Request, SpecSettings
from specctl.tui.bench_state import BenchEvent, Failed

DRAWING = 0.5  # seconds that the next run waits for a screen at most


class _Cancel(Protocol):
    """`Session.cancel`: ends a native call."""

    def set(self) -> None: ...

    def clear(self) -> None: ...


@dataclass(slots=True)
class Stop:
    """What the screen asks of the thread. `ask`: end now, with what is complete, as Ctrl-C does
    without a screen. `give_up`: end also the checking of texts; then nothing is kept.
    """

    asked: bool = False
    given_up: bool = False
    _cancel: _Cancel | None = None  # of the generation that runs
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self) -> None:
        """Stop measuring, within a cycle."""
        with self._lock:
            self.asked = True
            if self._cancel is not None:
                self._cancel.set()

    def give_up(self) -> None:
        """Stop everything."""
        self.given_up = True
        self.ask()

    @contextmanager
    def during(self, cancel: _Cancel | None) -> Iterator[None]:
        """A generation runs inside; its flag is down again afterwards, for replays."""
        with self._lock:
            self._cancel = cancel
        try:
            yield
        finally:
            with self._lock:
                self._cancel = None
                if self.asked and cancel is not None:
                    cancel.clear()


@dataclass(slots=True)
class Pulse:
    """How far the run is that is being measured: written by its thread, read by the screen."""

    tokens: int = 0
    cycles: int = 0
    drafted: int = 0
    accepted: int = 0
    began: float = 0.0  # time.monotonic()

    def start(self) -> None:
        """A new run."""
        self.tokens = self.cycles = self.drafted = self.accepted = 0
        self.began = time.monotonic()

    def beat(self, cycle: Cycle) -> None:
        """One more cycle."""
        self.cycles += 1
        self.tokens += len(cycle.emitted)
        self.drafted += len(cycle.drafted)
        self.accepted += cycle.accepted


class Watched:
    """An open session that ends a generation when it is asked to, as Ctrl-C would.

    It raises KeyboardInterrupt in the thread that measures: `conduct` then keeps what is complete.
    """

    def __init__(self, session: Any, stop: Stop, pulse: Pulse) -> None:
        self._session = session
        self._stop = stop
        self._pulse = pulse
        self.notes: list[str] = session.notes
        self.threads: int = session.threads
        self.model = session.model

    def use(self, spec: SpecSettings) -> Any:
        """See `Session`."""
        return self._session.use(spec)

    def chat(self, messages: Sequence[Message], think: bool | None = None) -> tuple[int, ...]:
        """See `Session`."""
        tokens: tuple[int, ...] = self._session.chat(messages, think)
        return tokens

    def reset(self) -> None:
        """See `Session`."""
        self._session.reset()

    def generate(self, request: Request) -> Iterator[Record]:
        """See `Session`.

        Raises:
            KeyboardInterrupt: a stop was asked for.
        """
        self._pulse.start()
        records = self._session.generate(request)
        with self._stop.during(getattr(self._session, "cancel", None)):
            try:
                for record in records:
                    if self._stop.asked:
                        raise KeyboardInterrupt
                    if isinstance(record, Cycle):
                        self._pulse.beat(record)
                    yield record
            finally:
                records.close()

    def replay(self, *args: Any, **options: Any) -> Any:
        """See `Session`.

        Raises:
            KeyboardInterrupt: the check was given up.
        """
        if self._stop.given_up:
            raise KeyboardInterrupt
        return self._session.replay(*args, **options)


class BenchWorker:
    """Conducts one benchmark in a thread of its own.

    `opener` is called in that thread and may import the engine. `outcome` or `error` is set when
    the thread has ended.
    """

    def __init__(
        self, plan: BenchPlan, model: Path, draft: Path | None, opener: Callable[[], Opener]
    ) -> None:
        self.plan = plan
        self.stop = Stop()
        self.pulse = Pulse()
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self._files = model, draft
        self._opener = opener
        self._steps: deque[BenchEvent] = deque()
        self._notify: Callable[[], object] = lambda: None
        self._drawn = threading.Event()
        self._unseen = False
        self._thread = threading.Thread(target=self._run, name="bench", daemon=True)

    def start(self, notify: Callable[[], object]) -> None:
        """Begin; `notify` is called from the thread for every step: `take` it, then `drawn()`."""
        self._notify = notify
        self._thread.start()

    def take(self) -> list[BenchEvent]:
        """The steps since the last call."""
        taken: list[BenchEvent] = []
        while self._steps:
            taken.append(self._steps.popleft())
        return taken

    def drawn(self) -> None:
        """The screen shows what it has taken: the next run may begin."""
        self._drawn.set()

    def unseen(self) -> None:
        """There is no screen any more: wait for none."""
        self._unseen = True
        self._drawn.set()

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the end; false if it has not come."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for step in conduct(self.plan, *self._files, self._open):
                if isinstance(step, Outcome):
                    self.outcome = step
                self._hand_over(step)
        except BaseException as error:  # the thread of the command raises it again
            self.error = error
            self._hand_over(Failed(error))

    def _hand_over(self, step: BenchEvent) -> None:
        self._drawn.clear()
        self.pulse.start()  # what has been counted is in the step
        self._steps.append(step)
        self._notify()
        if not self._unseen:
            self._drawn.wait(DRAWING)

    @contextmanager
    def _open(
        self,
        model: Path,
        draft: Path | None,
        specs: Sequence[SpecSettings],
        settings: EngineSettings,
    ) -> Iterator[Watched]:
        with self._opener()(model, draft, specs, settings) as session:
            yield Watched(session, self.stop, self.pulse)
