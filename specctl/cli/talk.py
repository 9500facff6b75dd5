"""Turns of a chat in line mode: one message in, the answer and its numbers out."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from specctl.cli.interrupt import stopping
from specctl.cli.stream import Printer, json_lines, summary, use_colour, why_no_drafts
from specctl.errors import SpecctlError
from specctl.events import Cycle, Finished, Record
from specctl.metrics import fold
from specctl.recording import tee
from specctl.units import printable

if TYPE_CHECKING:
    from specctl.engine.dialogue import Dialogue

_HELP_LINE = "/help for commands, Ctrl-C stops an answer, /quit leaves"


@dataclass(frozen=True, slots=True)
class Look:
    """How answers are shown in line mode."""

    no_color: bool = False
    json: bool = False


class Talk:
    """A dialogue at a terminal, line by line."""

    def __init__(self, dialogue: Dialogue, look: Look, *, sink: TextIO | None) -> None:
        self.dialogue = dialogue
        self.session = dialogue.session
        self._look = look
        self._sink = sink
        self._colour = use_colour(look.no_color)
        for line in dialogue.notes:
            self.note(line)

    def note(self, text: str) -> None:
        """A line for the person, not for the pipe."""
        dim, plain = ("", "")
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns
            text = textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False)
            text = printable(text)  # names out of a model file may be anything
            if self._colour:
                dim, plain = ("\x1b[2m", "\x1b[0m")
        print(f"{dim}{text}{plain}", file=sys.stderr, flush=True)

    def turn(self, message: str) -> Finished:
        """Answer one message. Ctrl-C stops it; the text so far is kept.

        Raises:
            SpecctlError: the message does not fit, or the engine failed; the chat can go on.
        """
        question = self.dialogue.ask(message)
        if question.note:
            self.note(f"({question.note})")
        printer = Printer(self._colour, question.prompt.thinking)
        records = list(self._shown(self.dialogue.answer(question), printer))
        finished = records[-1]
        assert isinstance(finished, Finished)
        self._report(records, finished)
        return finished

    def _shown(self, records: Iterator[Record], printer: Printer) -> Iterator[Record]:
        records = tee(records, self._sink)
        if self._look.json:
            records = json_lines(records)
        with stopping(self.session.cancel.set):
            for record in records:
                if not self._look.json:
                    printer.show(record)
                yield record

    def _report(self, records: list[Record], finished: Finished) -> None:
        cycles = [record for record in records if isinstance(record, Cycle)]
        totals = fold(cycles)
        if self._look.json:
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
                run_command(talk.dialogue, talk.note, line)
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
