"""One streamed answer on our own clock: when its first and last token came, and what it held.

A server's first token comes out of the prompt's pass, so the time from the first token to the last
is that of the tokens after it. How many tokens came with the first text is told by llama-server's
timings and by usage on every chunk (vLLM, SGLang, TensorRT-LLM, specctl); else it is taken for one.
Of an answer that was held back and came in one piece no token is timed; of one in pieces, those of
the first piece are not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specctl.events import Interval, PromptDone, Record
from specctl.external.arrivals import crowd, in_one_piece
from specctl.external.errors import JunkError
from specctl.external.probe import Chunk, Cycles, chunk_of, content_of, read_event
from specctl.external.readings import Engine
from specctl.external.wire import Line

PATH = "/v1/chat/completions"
SILENCE = 600.0  # seconds without a byte: a long prompt, or a long queue, on a slow machine
_HELD = "a proxy or the server holds the stream back"
_SLACK = 16  # texts beyond the tokens asked for, after which a server does not mind the limit
_IGNORING: tuple[Engine, ...] = ("llama-server", "vllm", "sglang", "trtllm")
_COUNTING: tuple[Engine, ...] = ("vllm", "sglang", "trtllm", "specctl")


@dataclass(frozen=True, slots=True)
class Timed:
    """An answer. `first` and `last` are seconds from `sent` (monotonic) to its first text and its
    last token; `first_tokens` had come by the first. `records` are what the server tells of its
    cycles, empty where it tells nothing with the answer.
    """

    text: str
    tokens: int
    first_tokens: int
    sent: float
    first: float
    last: float
    prompt_tokens: int
    finish: str
    records: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()


def ignores_eos(engine: Engine | None) -> bool:
    """Can a request ask this engine to go on past the end of a text?"""
    return engine in _IGNORING


def body(
    engine: Engine | None,
    model: str,
    messages: Sequence[Mapping[str, str]],
    max_tokens: int,
    ignore_eos: bool,
) -> dict[str, Any]:
    """The request. Greedy; fields beyond OpenAI's only where the engine has them."""
    out: dict[str, Any] = {
        "model": model,
        "messages": list(messages),
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if engine in _COUNTING:
        out["stream_options"]["continuous_usage_stats"] = True
    if engine == "llama-server":
        out |= {"timings_per_token": True, "cache_prompt": False}
    if ignore_eos and ignores_eos(engine):
        out["ignore_eos"] = True
    return out


def ask(line: Line, sent_body: Mapping[str, Any], alone: bool = True) -> Timed:
    """Send it, and read the stream to its end. Of one that is not `alone` the arrival of its texts
    is not judged: other answers, which we read meanwhile, put it off.

    Raises:
        GoneError, KeyRefusedError: no answer, no entrance.
        JunkError: an error of the server, no stream of answers, or more tokens than asked for.
    """
    begun = time.monotonic()
    answer = _Answer(int(sent_body["max_tokens"]), alone)
    for data in line.events(PATH, dict(sent_body), SILENCE):
        now = time.monotonic() - begun
        if data == "[DONE]":
            break
        answer.enter(read_event(data), now)
    return answer.finish(begun)


@dataclass(slots=True)
class _Answer:
    asked: int
    alone: bool
    texts: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)  # of the texts
    told: list[int | None] = field(default_factory=list)  # tokens so far, as each text came
    last: float = 0.0
    end: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    chunk: Chunk | None = None
    records: list[Record] = field(default_factory=list)
    cycles: Cycles | None = None

    def enter(self, value: dict[str, Any], now: float) -> None:
        """One event, which came `now` seconds after the request was sent."""
        text, end = content_of(value)
        chunk = chunk_of(value)
        if isinstance(value.get("usage"), dict):
            self.usage = value["usage"]
        if text:
            self.texts.append(text)
            if len(self.texts) > self.asked + _SLACK:
                raise self._too_long(f"more than {self.asked + _SLACK}")
            self.times.append(now)
            count = chunk.tokens if chunk else _count(value.get("usage"), "completion_tokens")
            self.told.append(count)
        if text or (end and not self.end):
            self.last = now
        self.end = self.end or end
        if chunk is not None:
            self._cycle(chunk)

    def _cycle(self, chunk: Chunk) -> None:
        self.chunk = chunk
        if self.cycles is None:
            read, cached, ms = chunk.prompt
            self.records.append(PromptDone(read + cached, cached, ms / 1000))
            self.cycles = Cycles(read + cached)
        self.records += self.cycles.enter(chunk)

    def finish(self, begun: float) -> Timed:
        """The whole answer."""
        if not self.end:
            raise JunkError("its stream ended in the middle of an answer")
        tokens = _count(self.usage, "completion_tokens")
        if tokens is None and self.chunk is not None:
            tokens = self.chunk.tokens
        notes = []
        if tokens is None:
            tokens = len(self.texts)
            notes.append("it does not count its tokens: chunks of text stand for them")
        if tokens > self.asked:
            raise self._too_long(str(tokens))
        if not self.told or self.told[0] is None:
            notes.append("it does not tell how many tokens came first: taken for one")
        first_tokens, held = self._untimed(tokens)
        notes += [held] if held else []
        if self.cycles is not None:
            self.records += self.cycles.finish()
        return Timed(
            text="".join(self.texts),
            tokens=tokens,
            first_tokens=first_tokens,
            sent=begun,
            first=self.times[0] if self.times else self.last,
            last=self.last,
            prompt_tokens=self._prompt_tokens(),
            finish="length" if self.end == "length" else "eog",
            records=tuple(self.records) or _own(self.usage, tokens),
            notes=tuple(notes),
        )

    def _untimed(self, tokens: int) -> tuple[int, str]:
        """How many tokens had come by the first text, and a word where that is not the usual."""
        first = (self.told[0] if self.told else None) or 1
        if not self.alone or not self.times:
            return min(first, tokens), ""
        arrivals = [*self.times, self.last]
        if in_one_piece(arrivals, tokens - first):
            return tokens, f"its answer came in one piece, which has no rate: {_HELD}"
        at_once = crowd(arrivals)
        if at_once > 1:
            by_then = self.told[at_once - 1] or at_once
            note = f"its answer came in pieces, of which the first is not timed: {_HELD}"
            return min(by_then, tokens), note
        return min(first, tokens), ""

    def _prompt_tokens(self) -> int:
        told = _count(self.usage, "prompt_tokens")
        if told is None and self.chunk is not None:
            told = self.chunk.prompt[0] + self.chunk.prompt[1]
        return told or 0

    def _too_long(self, count: str) -> JunkError:
        return JunkError(
            f"it wrote {count} tokens where {self.asked} were asked for: it ignores max_tokens",
            "its answers cannot be compared with others",
        )


def _count(usage: object, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        return None
    return value


def _own(usage: Mapping[str, Any], tokens: int) -> tuple[Record, ...]:
    """The sums that `specctl serve` tells with each answer."""
    told = usage.get("specctl")
    names = ("cycles", "drafted_cycles", "drafted", "accepted")
    counts = [_count(told, name) for name in names]
    seconds = told.get("seconds") if isinstance(told, Mapping) else None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or None in counts:
        return ()
    cycles, drafted_cycles, drafted, accepted = (count or 0 for count in counts)
    if accepted > drafted or drafted_cycles > cycles:
        return ()
    return (
        Interval(
            seconds=float(seconds),
            passes=cycles,
            drafted_passes=drafted_cycles,
            drafted=drafted,
            accepted=accepted,
            emitted=tokens,
            accepted_at=(),
            drafted_at=None,
            exact=True,
            source="specctl",
            clock=0.0,
        ),
    )


def drafted_in(answers: Iterable[Timed]) -> int:
    """Tokens drafted for these answers, as far as they tell."""
    return sum(
        record.drafted if isinstance(record, Interval) else len(getattr(record, "drafted", ()))
        for answer in answers
        for record in answer.records
    )
