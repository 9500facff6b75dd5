"""Turns of a chat in line mode: one message in, the answer and its numbers out."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from specctl.cli.interrupt import stopping
from specctl.cli.stream import Printer, json_lines, summary, use_colour, why_no_drafts
from specctl.errors import SpecctlError
from specctl.events import Cycle, Finished, Record
from specctl.metrics import Totals, add, fold
from specctl.recording import tee
from specctl.settings import Request, Sampling

if TYPE_CHECKING:
    from specctl.engine.session import Session

_RESERVE = 256  # tokens kept free for an answer before old turns go
_HELP_LINE = "/help for commands, Ctrl-C stops an answer, /quit leaves"


@dataclass(frozen=True, slots=True)
class Manner:
    """How to answer: everything a turn needs besides its message."""

    sampling: Sampling
    max_tokens: int
    stop: tuple[str, ...] = ()
    think: bool | None = None
    no_color: bool = False
    json: bool = False


class Talk:
    """A conversation at a terminal. `totals` and `last_cycles` are what /stats shows."""

    def __init__(
        self, session: Session, manner: Manner, *, system: str | None, sink: TextIO | None
    ) -> None:
        from specctl.engine.conversation import Conversation

        self.session = session
        self.conversation = Conversation(session, system)
        self.totals = Totals()
        self.last_cycles: deque[Cycle] = deque(maxlen=256)
        self._manner = manner
        self._sink = sink
        self._colour = use_colour(manner.no_color)
        if session.template.warning:
            self.note(session.template.warning)
        if manner.think is not None and not session.template.knows_thinking:
            self.note("--think changes nothing: this model's template has no such switch")
        for line in session.notes:
            self.note(line)

    def note(self, text: str) -> None:
        """A line for the person, not for the pipe."""
        dim, plain = ("", "")
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns
            text = textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False)
            if self._colour:
                dim, plain = ("\x1b[2m", "\x1b[0m")
        print(f"{dim}{text}{plain}", file=sys.stderr, flush=True)

    def turn(self, message: str) -> Finished:
        """Answer one message. Ctrl-C stops it; the text so far is kept.

        Raises:
            SpecctlError: the message does not fit, or the engine failed; the chat can go on.
        """
        from specctl.engine.conversation import attach_files

        message = attach_files(message)
        reserve = min(_RESERVE, self._manner.max_tokens, self.session.n_ctx // 4)
        prompt = self.conversation.prompt(message, reserve=reserve, think=self._manner.think)
        if prompt.dropped:
            turns = "turn" if prompt.dropped == 1 else f"{prompt.dropped} turns"
            self.note(f"(the oldest {turns} left the context of {self.session.n_ctx} tokens)")
        request = Request(
            prompt.tokens, self._manner.max_tokens, self._manner.sampling, self._manner.stop
        )
        printer = Printer(self._colour, prompt.thinking)
        records = list(self._shown(self.session.generate(request), printer))
        finished = records[-1]
        assert isinstance(finished, Finished)
        if finished.emitted_tokens or finished.reason != "cancelled":
            self.conversation.add(message, printer.text)
        self._report(records, finished)
        return finished

    def _shown(self, records: Iterator[Record], printer: Printer) -> Iterator[Record]:
        records = tee(records, self._sink)
        if self._manner.json:
            records = json_lines(records)
        with stopping(self.session.cancel.set):
            for record in records:
                if self._manner.json:
                    printer.keep(record)
                else:
                    printer.show(record)
                yield record

    def _report(self, records: list[Record], finished: Finished) -> None:
        cycles = [record for record in records if isinstance(record, Cycle)]
        totals = fold(cycles)
        self.last_cycles.extend(cycles)
        for cycle in cycles:
            self.totals = add(self.totals, cycle)
        if self._manner.json:
            return
        print(flush=True)
        self.note(summary(totals, finished, self.session.n_ctx))
        drafting = self.session.spec.types != ("none",)
        if drafting and cycles and not totals.drafted_cycles:
            self.note(why_no_drafts(cycles))


def run_interactive(talk: Talk) -> None:
    """Read messages until /quit, end of input, or Ctrl-C twice at the prompt."""
    from specctl.cli.slash import Quit, run_command

    _enable_line_editing()
    talk.note(f"{talk.session.model.path.name} · context {talk.session.n_ctx} · {_HELP_LINE}")
    pressed = False
    while True:
        try:
            line = input("> ").strip()
            pressed = False
            if not line:
                continue
            if line.startswith("/"):
                run_command(talk, line)
            else:
                talk.turn(line)
        except Quit:
            return
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print(file=sys.stderr)
            if pressed:
                return
            pressed = True
            talk.note("(Ctrl-C again leaves)")
        except SpecctlError as error:
            talk.note(f"error: {error.message}" + (f" ({error.hint})" if error.hint else ""))


def _enable_line_editing() -> None:
    """History and editing for `input`, where the platform has readline."""
    try:
        import readline  # noqa: F401
    except ImportError:
        return
