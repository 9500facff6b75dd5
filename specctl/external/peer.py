"""A server that answers for a benchmark: what it is, and one or several answers at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specctl.errors import RemoteError, UsageError
from specctl.events import Interval
from specctl.external.errors import NotAnEngineError
from specctl.external.ledger import Ledger
from specctl.external.poll import Counters
from specctl.external.probe import PROMPTS
from specctl.external.readings import Engine, Reading
from specctl.external.recognise import Seen, recognise, word
from specctl.external.timed import Timed, ask, body, drafted_in, ignores_eos
from specctl.external.wire import Line, address

Chat = Sequence[Mapping[str, str]]
OFF: Mapping[str, Any] = {"speculative.n_max": 0}  # a request's switch in older llama-servers
_SETTLE = 2.0  # seconds in which counters may follow an answer
_POLL = 0.05
_TRY = 64  # tokens of an answer that shows whether the switch works


class Peer:
    """An open server. `model` as it calls it, letter by letter, for requests; `shown_model` for
    people. `extra` goes into every request; closing it closes its connections.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        model: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._where, self._key = address(url), key
        self._extra = dict(extra or {})
        self._lines = [Line(self._where, key)]
        self.url = self._where.shown
        try:
            self.seen = _seen(self._lines[0])
            self.model = self._model(model)
            self.slots = self._slots()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Hang up."""
        for line in self._lines:
            line.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def engine(self) -> Engine | None:
        """None: some OpenAI-compatible server."""
        return self.seen.engine if self.seen else None

    @property
    def title(self) -> str:
        """The engine's name and version."""
        if self.seen is None:
            return "an OpenAI-compatible server"
        return f"{self.seen.title} {self.seen.version}".strip()

    @property
    def shown_model(self) -> str:
        """Its model's name without what would steer a terminal; empty where it has none."""
        return word(self.model)

    @property
    def speculates(self) -> bool | None:
        """None: it does not say."""
        return self.seen.speculates if self.seen else None

    @property
    def method(self) -> str:
        """In its own words; empty where it does not say."""
        return self.seen.method if self.seen else ""

    @property
    def can_ignore_eos(self) -> bool:
        """Can a request ask it to write on past the end?"""
        return ignores_eos(self.engine)

    def switched_off(self) -> Peer | None:
        """The same server asked without speculation, where a request can ask for that; else None.

        It is tried: the same prompt is drafted for without the switch, and not with it.
        """
        if self.engine != "llama-server" or self.speculates is False:
            return None
        chat = [{"role": "user", "content": PROMPTS[0]}]
        if not drafted_in(self.ask([chat], _TRY, ignore_eos=False)):
            return None
        query = f"?{self._where.query}" if self._where.query else ""
        off = Peer(self._where.base + query, self._key, self.model, OFF)
        if not drafted_in(off.ask([chat], _TRY, ignore_eos=False)):
            return off
        off.close()
        return None

    def ask(self, chats: Sequence[Chat], max_tokens: int, ignore_eos: bool) -> tuple[Timed, ...]:
        """All of them at the same time, greedily; their answers in the same order.

        Raises:
            RemoteError: it did not answer one of them, or not as asked; see `timed.ask`.
        """
        bodies = [
            body(self.engine, self.model, chat, max_tokens, ignore_eos) | self._extra
            for chat in chats
        ]
        counters, before, unread = self._counters()
        while len(self._lines) < len(bodies):
            self._lines.append(Line(self._where, self._key))
        if len(bodies) == 1:
            answers = [ask(self._lines[0], bodies[0])]
        else:
            answers = _at_once(self._lines, bodies)
        moved: tuple[Interval, ...] = ()
        if counters is not None and before is not None:
            moved, unread = self._moved(counters, before, sum(one.tokens for one in answers))
        if moved or unread:  # the first one bears the sums of all of them
            notes = (*answers[0].notes, unread) if unread else answers[0].notes
            answers[0] = replace(answers[0], records=moved, notes=notes)
        return tuple(answers)

    # what it tells of itself

    def _model(self, asked: str | None) -> str:
        listed = _listed(self._lines[0])
        if asked is None:
            return next(iter(listed), "") or (self.seen.model if self.seen else "")
        if listed and asked not in listed:
            names = ", ".join(word(one) for one in listed[:8])
            raise UsageError(f"{self.url} serves no model {asked!r}", f"it lists: {names}")
        return asked

    def _slots(self) -> int | None:
        """Answers it can work on at once, where it says so."""
        if self.engine != "llama-server":
            return 1 if self.engine == "specctl" else None
        answer = self._lines[0].get("/props")
        value = answer.json() if answer.ok else None
        count = value.get("total_slots") if isinstance(value, dict) else None
        return count if isinstance(count, int) and count > 0 else None

    # its counters, where an answer does not carry its own

    def _counters(self) -> tuple[Counters | None, Reading | None, str]:
        """They, what they are now, and a word where they cannot be read."""
        seen = self.seen
        if seen is None or seen.engine in ("llama-server", "specctl") or not seen.metrics:
            return None, None, ""
        counters = Counters(self._lines[0], replace(seen, listed=()))
        try:
            return counters, counters.look(), ""
        except RemoteError:
            return None, None, "its counters could not be read before an answer"

    def _moved(
        self, counters: Counters, before: Reading, tokens: int
    ) -> tuple[tuple[Interval, ...], str]:
        """What its counters moved by, and a word where that is more than our answers, or not
        known: an answer stands, whatever becomes of its counters.
        """
        try:
            return self._followed(counters, before, tokens)
        except RemoteError:  # a server that is gone is noticed by the next request
            return (), "its counters could not be read after an answer"

    def _followed(
        self, counters: Counters, before: Reading, tokens: int
    ) -> tuple[tuple[Interval, ...], str]:
        assert self.seen is not None
        ledger = Ledger(self.seen.engine, time.monotonic())
        ledger.enter(before, time.monotonic())
        found: list[Interval] = []
        end = time.monotonic() + _SETTLE
        while True:
            entered = ledger.enter(counters.look(), time.monotonic())
            found += [one for one in entered if isinstance(one, Interval)]
            told = sum(one.emitted or 0 for one in found)
            if told >= tokens or time.monotonic() > end:
                break
            time.sleep(_POLL)
        if told > tokens:
            return tuple(found), "its counters moved by more than our answers: others ask it, too"
        return tuple(found), ""


def _seen(line: Line) -> Seen | None:
    """Which engine; None for another one that lists its models as OpenAI does."""
    try:
        return recognise(line)
    except NotAnEngineError:
        if not _listed(line):
            raise
        return None


def _listed(line: Line) -> list[str]:
    answer = line.get("/v1/models")
    value = answer.json() if answer.ok else None
    data = value.get("data") if isinstance(value, dict) else None
    rows = (
        [one.get("id") for one in data if isinstance(one, dict)] if isinstance(data, list) else []
    )
    return [one for one in rows if isinstance(one, str)]


def _at_once(lines: Sequence[Line], bodies: Sequence[Mapping[str, Any]]) -> list[Timed]:
    """One thread each, let go together. Threads are daemons: Ctrl-C does not wait for answers."""
    gate = threading.Barrier(len(bodies))
    found: dict[int, Timed | Exception] = {}

    def run(number: int) -> None:
        gate.wait()
        try:
            found[number] = ask(lines[number], bodies[number], alone=False)
        except Exception as error:
            found[number] = error

    threads = [
        threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(bodies))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
    for error in found.values():
        if isinstance(error, Exception):
            raise error
    return [one for number in range(len(bodies)) if isinstance(one := found[number], Timed)]
