"""Exact cycles of a llama-server: our own prompts, streamed with its counters on every chunk.

Each chunk carries (tokens so far, drafted so far, accepted so far, milliseconds so far). A rise of
the drafted count is a cycle; it gives its accepted tokens and one more; what comes beyond that
without a rise are plain passes. The first token belongs to the prompt's pass.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from specctl.events import Cycle, Decision, Finished, FinishReason, PromptDone, Record, Started
from specctl.external.errors import JunkError
from specctl.external.recognise import Seen
from specctl.external.wire import Line
from specctl.units import printable

TOKENS = 96
_MOST = 1 << 20  # of any figure in a chunk

PROMPTS = (
    "Add a docstring to each function and change nothing else:\n\n"
    "def area(width, height):\n    return width * height\n\n"
    "def perimeter(width, height):\n    return 2 * (width + height)\n\n"
    "def scale(shape, factor):\n    return tuple(side * factor for side in shape)\n",
    "Turn these log lines into a Markdown table with the columns time, level, message:\n"
    "10:01 INFO started\n10:02 WARN disk 91% full\n10:03 ERROR disk full\n10:04 INFO stopped\n",
    "What should one look at when choosing a bicycle for a long tour? Answer in one paragraph.",
)
_ENDS: dict[str, FinishReason] = {"stop": "eog", "length": "length"}


@dataclass(frozen=True, slots=True)
class Chunk:
    """The server's totals after a chunk, its text, and what is known of the prompt."""

    tokens: int
    drafted: int
    accepted: int
    ms: float
    text: str = ""
    prompt: tuple[int, int, float] = (0, 0, 0.0)  # tokens read, tokens from the cache, ms
    end: str = ""


@dataclass(slots=True)
class _Pending:
    """A cycle whose tokens are still coming. `end`: when its pass was done, ms."""

    drafted: int
    accepted: int
    ms: float
    end: float
    emitted: int = 0
    text: str = ""

    @property
    def room(self) -> int:
        return self.accepted + 1 - self.emitted


class Cycles:
    """Chunks to cycles. `t_1` is the median of the plain passes seen so far, seconds."""

    def __init__(self, n_past: int = 0) -> None:
        self._before = Chunk(0, 0, 0, 0.0)
        self._pending: _Pending | None = None
        self._n_past = n_past
        self._index = 0
        self._plain: list[float] = []

    @property
    def t_1(self) -> float | None:
        """Three plain passes make it known."""
        return statistics.median(self._plain) if len(self._plain) >= 3 else None

    def enter(self, chunk: Chunk) -> list[Cycle]:
        """The cycles that ended before this chunk's tokens.

        Raises:
            JunkError: counts that fall, or more accepted than drafted.
        """
        last, self._before = self._before, chunk
        tokens = chunk.tokens - last.tokens
        drafted, accepted = chunk.drafted - last.drafted, chunk.accepted - last.accepted
        if min(tokens, drafted, accepted) < 0 or accepted > drafted or chunk.ms < last.ms:
            raise JunkError("the counts of its stream fall, or more is accepted than drafted")
        done: list[Cycle] = []
        if self._pending is not None:  # text that was held back may bring tokens late
            taken = min(self._pending.room, tokens - bool(drafted))
            if taken > 0:
                self._pending.emitted += taken
                tokens -= taken
                if not tokens:
                    self._pending.text += chunk.text
        if not tokens and not drafted:
            return done
        first = min(tokens, accepted + 1) if drafted else 0
        passes = tokens - first + bool(drafted)
        share = (chunk.ms - last.ms) / passes  # of several passes in one chunk: alike
        sizes = [(drafted, accepted, first)] if drafted else []
        sizes += [(0, 0, 1)] * (tokens - first)
        for number, (k, stood, emitted) in enumerate(sizes):
            done += self._close()
            end = last.ms + share * (number + 1)
            self._pending = _Pending(k, stood, share, end, emitted)
        assert self._pending is not None  # tokens or drafted: there was one
        self._pending.text += chunk.text
        return done

    def finish(self) -> list[Cycle]:
        """The last cycle."""
        return self._close()

    def _close(self) -> list[Cycle]:
        one, self._pending = self._pending, None
        if one is None:
            return []
        seconds = one.ms / 1000
        if not one.drafted and self._index:
            self._plain.append(seconds)
        cycle = Cycle(
            index=self._index,
            asked=(),
            source="draft" if one.drafted else None,
            limit=0,
            drafted=(-1,) * one.drafted,
            accepted=one.accepted,
            emitted=(-1,) * one.emitted,
            text=one.text,
            t_d=0.0,
            t_v=seconds,
            t_o=0.0,
            t_native=seconds,
            t_1=self.t_1,
            n_past=self._n_past,
            clock=one.end / 1000,
            decision=Decision("draft" if one.drafted else "plain", ""),
            pieces=(one.text,) if one.text else (),
            split=False,
        )
        self._n_past += one.emitted
        self._index += 1
        return [cycle]


def read_chunk(data: str) -> Chunk | None:
    """One event of /v1/chat/completions; None where it carries no timings.

    Raises:
        JunkError: no JSON, an error of the server, or figures that are none.
    """
    return chunk_of(read_event(data))


def read_event(data: str) -> dict[str, Any]:
    """The object of one event of a streamed completion.

    Raises:
        JunkError: no JSON, or an error of the server.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise JunkError("its stream is not JSON") from error
    if not isinstance(value, dict):
        raise JunkError("its stream is not JSON objects")
    if value.get("error"):
        said = value["error"]
        words = said.get("message") if isinstance(said, dict) else said
        raise JunkError(f"it answers with an error: {printable(str(words))[:200]}")
    return value


def chunk_of(value: dict[str, Any]) -> Chunk | None:
    """The timings of an event; None where it carries none.

    Raises:
        JunkError: figures that are none.
    """
    timings = value.get("timings")
    if not isinstance(timings, dict):
        return None
    text, end = content_of(value)
    counts = [_figure(timings, name) for name in ("predicted_n", "draft_n", "draft_n_accepted")]
    prompt = (
        int(_figure(timings, "prompt_n")),
        int(_figure(timings, "cache_n")),
        _figure(timings, "prompt_ms"),
    )
    tokens, drafted, accepted = (int(count) for count in counts)
    return Chunk(tokens, drafted, accepted, _figure(timings, "predicted_ms"), text, prompt, end)


def content_of(value: dict[str, Any]) -> tuple[str, str]:
    """The text of an event, thinking included, and how the answer ended (empty: not yet)."""
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    if not isinstance(choice, dict):
        return "", ""
    delta = choice.get("delta")
    parts = delta if isinstance(delta, dict) else {}
    texts = [parts.get("reasoning_content") or parts.get("reasoning"), parts.get("content")]
    end = choice.get("finish_reason")
    return "".join(t for t in texts if isinstance(t, str)), end if isinstance(end, str) else ""


def _figure(values: dict[str, Any], name: str) -> float:
    value = values.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise JunkError(f"its {name} is {str(value)[:40]!r}, which is no count")
    if name.endswith("_n") and value > _MOST:
        raise JunkError(f"its {name} is {value:g}, more than was asked for")
    return float(value)


def ask(line: Line, seen: Seen, prompt: str, tokens: int = TOKENS) -> Iterator[Record]:
    """The records of one prompt: `Started`, `PromptDone`, the cycles, `Finished`.

    Raises:
        GoneError, KeyRefusedError, JunkError: as the server answers.
    """
    begun = time.monotonic()
    body = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "timings_per_token": True,
        "cache_prompt": False,
    }
    yield started(seen, message=prompt)
    yield from records(line.events("/v1/chat/completions", body), begun)


def started(seen: Seen, message: str = "", notes: tuple[str, ...] = ()) -> Started:
    """What a server tells of itself as the head of a recording."""
    method = seen.method or ("none" if seen.speculates is False else "speculation")
    return Started(
        model=seen.model or seen.title,
        draft_model=None,
        spec_types=tuple(method.split(",")),
        k_max=0,
        prompt_tokens=0,
        n_ctx=0,
        threads=0,
        temperature=0.0,
        seed=0,
        unix_time=time.time(),
        notes=notes,
        message=message,
    )


def records(events: Iterable[str], begun: float) -> Iterator[Record]:
    """The stream of one answer as records, `Started` excepted."""
    cycles: Cycles | None = None
    chunk: Chunk | None = None
    end = ""
    for data in events:
        if data == "[DONE]":
            break
        read_now = read_chunk(data)
        if read_now is None:
            continue
        chunk = read_now
        end = chunk.end or end
        if cycles is None:
            read, cached, ms = chunk.prompt
            yield PromptDone(read + cached, cached, ms / 1000)
            cycles = Cycles(read + cached)
        yield from cycles.enter(chunk)
    if cycles is None or chunk is None:
        raise JunkError(
            "its stream carries no timings", "an older llama-server? timings_per_token is needed"
        )
    yield from cycles.finish()
    read, cached, _ = chunk.prompt
    yield Finished(
        _ENDS.get(end, "cancelled"), read + cached, chunk.tokens, time.monotonic() - begun
    )
