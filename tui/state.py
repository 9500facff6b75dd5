"""What the screen shows, as a fold over events. Knows no Textual, no engine and no clock.

`Live.apply(event)` is the only way in; widgets read. Memory is bounded but for the transcript.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from specctl.engine.thinking import ThinkSplitter
from specctl.events import Cycle, Decision, Finished, Interval, PromptDone, Started
from specctl.metrics import WINDOW, Totals, add, fold
from specctl.tui.messages import Changed, Event, Forgotten, Gauges, Note, Ready, Recalled
from specctl.tui.words import PLAINLY

HISTORY = 512  # cycles kept for the picture
LOG = 200  # lines of decisions and notes
_SPAN = 512  # characters after which a span is closed, so that growing text stays cheap

Phase = Literal["opening", "ready", "prompt", "writing", "failed"]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a turn of one kind. `origin` is the drafter, "" for the target's own tokens.

    A `ghost` is a rejected end of a draft: never part of the answer.
    """

    text: str
    origin: str = ""
    thinking: bool = False
    ghost: bool = False


@dataclass(slots=True)
class Turn:
    """One question and its answer. `spans` only grows at its end; the last span may grow."""

    question: str
    spans: list[Span] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    finished: Finished | None = None
    error: str = ""
    _splitter: ThinkSplitter = field(default_factory=ThinkSplitter, compare=False)

    @property
    def text(self) -> str:
        """The answer alone."""
        return "".join(s.text for s in self.spans if not s.ghost and not s.thinking)

    @property
    def thinking(self) -> str:
        """What came between think tags."""
        return "".join(s.text for s in self.spans if s.thinking and not s.ghost)

    @property
    def done(self) -> bool:
        """Nothing more will come."""
        return self.finished is not None or bool(self.error)

    def write(self, text: str, origin: str = "") -> None:
        """Text of the answer, think tags included."""
        for part, thinking in self._splitter.push(text):
            self._add(Span(part, origin, thinking))

    def finish(self, finished: Finished) -> None:
        """What was held back, and the end."""
        self.write(finished.text)
        for part, thinking in self._splitter.finish():
            self._add(Span(part, "", thinking))
        self.finished = finished

    def ghost(self, text: str, origin: str) -> None:
        """The end of a draft that did not stand."""
        if text:
            self._add(Span(text, origin, ghost=True))

    def _add(self, span: Span) -> None:
        last = self.spans[-1] if self.spans else None
        if (
            last is not None
            and (last.origin, last.thinking, last.ghost) == (span.origin, span.thinking, span.ghost)
            and len(last.text) < _SPAN
            and not span.ghost
        ):
            self.spans[-1] = Span(last.text + span.text, span.origin, span.thinking)
        else:
            self.spans.append(span)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log. `cycle` is the cycle's index, None for notes."""

    text: str
    kind: Literal["decision", "note", "warning", "error"]
    cycle: int | None = None


@dataclass(slots=True)
class Live:
    """Everything on the live screen."""

    phase: Phase = "opening"
    ready: Ready | None = None
    spec_types: tuple[str, ...] = ("none",)
    k: int | None = None
    k_max: int = 0
    temperature: float = 0.0
    n_ctx: int = 0
    held: int = 0  # tokens in the context
    turns: list[Turn] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)  # the whole conversation
    cycles: deque[Cycle] = field(default_factory=lambda: deque(maxlen=HISTORY))
    intervals: deque[Interval] = field(default_factory=lambda: deque(maxlen=HISTORY))
    log: deque[LogLine] = field(default_factory=lambda: deque(maxlen=LOG))
    gauges: Gauges = field(default_factory=Gauges)
    off: Totals = field(default_factory=Totals)  # since the start, cycles without speculation
    on: Totals = field(default_factory=Totals)  # and those under a spec type
    t_1: float | None = None  # seconds, the latest
    prompt_seconds: float | None = None
    prompt_tokens: int = 0
    reused_tokens: int = 0
    version: int = 0  # counts events: a widget that has drawn this one need not draw again
    _decision: tuple[str, int] | None = None
    _now: tuple[tuple[int, int], Totals] = field(default=((-1, 0), Totals()), compare=False)

    @property
    def turn(self) -> Turn | None:
        """The latest turn."""
        return self.turns[-1] if self.turns else None

    @property
    def answer(self) -> Totals:
        """Sums of the latest answer."""
        return self.turns[-1].totals if self.turns else Totals()

    @property
    def only_sums(self) -> bool:
        """The source shows sums over stretches of time, no cycles."""
        return bool(self.intervals) and not self.cycles

    def now(self, cycles: int = WINDOW) -> Totals:
        """Sums of the last `cycles` cycles, or of the last intervals where no cycles are seen."""
        at, totals = self._now
        if at != (self.version, cycles):  # several widgets ask for the same
            recent: Iterable[Cycle | Interval] = self.cycles or self.intervals
            totals = fold(list(recent)[-cycles:])
            self._now = ((self.version, cycles), totals)
        return totals

    def shown(self) -> tuple[Totals, str]:
        """What the figures beside the text are about: while it writes the last cycles, else the
        whole answer; and that stretch in words.
        """
        if self.only_sums:
            return self.now(), f"last {min(WINDOW, len(self.intervals))} intervals"
        if self.phase == "writing" or not self.turns or not self.answer.cycles:
            return self.now(), f"last {min(WINDOW, len(self.cycles))} cycles"
        return self.answer, "whole answer"

    def apply(self, event: Event) -> None:
        """Fold one event in."""
        self.version += 1
        match event:
            case Cycle():
                self._cycle(event)
            case Interval():
                self._interval(event)
            case Started():
                self._started(event)
            case PromptDone():
                self.phase = "writing"
                self.prompt_seconds = event.seconds
                self.reused_tokens = event.reused_tokens
                self.held = event.prompt_tokens
            case Finished():
                self._finished(event)
            case Ready():
                self._ready(event)
            case Changed():
                self._set(event)
            case Note():
                self._note(event)
            case Forgotten():
                self.turns.clear()
                self.held = 0
            case Recalled():
                self._recalled(event)
            case Gauges():
                self.gauges = event

    def _ready(self, event: Ready) -> None:
        self.ready = event
        self.phase = "ready"
        self.n_ctx = event.n_ctx
        self._set(event)

    def _set(self, event: Ready | Changed) -> None:
        self.spec_types, self.temperature = event.spec_types, event.temperature
        self.k, self.k_max = event.k, event.k_max

    def _note(self, event: Note) -> None:
        self.log.append(LogLine(event.text, event.kind))
        if event.kind == "error":
            if self.turn is not None and not self.turn.done and self.phase != "ready":
                self.turn.error = event.text
            self.phase = "ready" if self.ready is not None else "failed"

    def _started(self, event: Started) -> None:
        if self.ready is None:  # a recording begins here
            self._ready(
                Ready(
                    model=event.model,
                    draft_model=event.draft_model,
                    spec_types=event.spec_types,
                    k=None,
                    k_max=event.k_max,
                    n_ctx=event.n_ctx,
                    threads=event.threads,
                    temperature=event.temperature,
                )
            )
            for note in event.notes:
                self.log.append(LogLine(note, "note"))
        self.spec_types, self.temperature = event.spec_types, event.temperature
        self.n_ctx, self.k_max = event.n_ctx, event.k_max
        self.phase = "prompt"
        self.prompt_tokens = event.prompt_tokens
        self.turns.append(Turn(event.message, _splitter=ThinkSplitter(event.thinking)))

    def _cycle(self, cycle: Cycle) -> None:
        if not self.turns:
            self.turns.append(Turn(""))
        turn = self.turns[-1]
        for index, piece in enumerate(cycle.pieces):
            turn.write(piece, (cycle.source or "") if index < cycle.accepted else "")
        turn.ghost(cycle.rejected, cycle.source or "")
        self._sums(cycle)
        if self.spec_types in PLAINLY:
            self.off = add(self.off, cycle)
        else:
            self.on = add(self.on, cycle)
        self.cycles.append(cycle)
        self.phase = "writing"
        self.held = cycle.n_past + 1 + len(cycle.emitted)
        if cycle.t_1 is not None:
            self.t_1 = cycle.t_1
        self._decided(cycle.decision, cycle)

    def _interval(self, interval: Interval) -> None:
        self._sums(interval)
        self.intervals.append(interval)
        self.phase = "writing"
        if interval.t_1 is not None:
            self.t_1 = interval.t_1

    def _sums(self, event: Cycle | Interval) -> None:
        self.totals = add(self.totals, event)
        if self.turns:
            self.turns[-1].totals = add(self.turns[-1].totals, event)

    def _decided(self, decision: Decision, cycle: Cycle) -> None:
        """A line where who drafts, or how much, is another than in the cycle before."""
        who = (cycle.source or "plain", len(cycle.drafted))
        if who != self._decision:
            self._decision = who
            text = decision.reason or "fixed length"
            self.log.append(LogLine(text, "decision", cycle.index))

    def _finished(self, event: Finished) -> None:
        if self.turns:
            self.turns[-1].finish(event)
        self.held = event.prompt_tokens + event.emitted_tokens
        self.phase = "ready"
        if event.reason == "error":
            self.log.append(LogLine(event.detail, "error"))

    def _recalled(self, event: Recalled) -> None:
        self.turns = []
        for question, answer in event.turns:
            turn = Turn(question)
            turn.write(answer)
            turn.finish(Finished("eog", 0, 0, 0.0))
            self.turns.append(turn)
