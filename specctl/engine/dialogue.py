"""One chat with a session, for any face: a message in, records out, the turn remembered."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specctl.engine.conversation import Conversation, Prompt, attach_files
from specctl.engine.session import Session
from specctl.engine.thinking import CLOSE, OPEN
from specctl.errors import UsageError
from specctl.events import Cycle, Finished, Record, Started
from specctl.metrics import Totals, add
from specctl.settings import Grammar, Request, Sampling

_RESERVE = 256  # tokens kept free for an answer before old turns go
_REMEMBERED = 256  # cycles


@dataclass(frozen=True, slots=True)
class Manner:
    """How to answer: everything a turn needs besides its message."""

    sampling: Sampling
    max_tokens: int
    stop: tuple[str, ...] = ()
    think: bool | None = None
    grammar: str | None = None  # GBNF that binds each answer, once the thinking has ended


@dataclass(frozen=True, slots=True)
class Question:
    """A message with its files attached, as a prompt. `note` says what had to go for it."""

    typed: str
    message: str
    prompt: Prompt
    note: str = ""


class Dialogue:
    """A conversation, how it is answered, and what drafting brought so far.

    `notes` are things a user should read once; `totals` and `last_cycles` are of all answers.
    """

    def __init__(self, session: Session, manner: Manner, system: str | None = None) -> None:
        self.session = session
        self.manner = manner
        self.conversation = Conversation(session, system)
        self.totals = Totals()
        self.last_cycles: deque[Cycle] = deque(maxlen=_REMEMBERED)
        self.notes = [*self._template_notes(), *session.notes]
        self._asked: Question | None = None

    def _template_notes(self) -> Iterator[str]:
        template = self.session.template
        if template.warning:
            yield template.warning
        if self.manner.think is not None and not template.knows_thinking:
            yield "--think changes nothing: this model's template has no such switch"
        if self.manner.grammar and self.manner.think is None and template.knows_thinking:
            yield "thinking is off, for a grammar binds the answer; --think on thinks first"

    def ask(self, typed: str) -> Question:
        """The message as a prompt; each `@file` in it becomes the file's text.

        Raises:
            UsageError: a file that cannot be attached. ContextFullError: it does not fit alone.
        """
        return self._question(typed, attach_files(typed))

    def again(self) -> Question:
        """The last message once more, its answer taken back; another seed gives another text.

        Raises:
            UsageError: nothing was asked yet.
        """
        if self._asked is None:
            raise UsageError("there is no answer yet to give again")
        asked = self._asked
        if self.conversation.last_message == asked.message:
            self.conversation.take_back()
        sampling = self.manner.sampling
        seed = (sampling.seed + 1) % (1 << 64)
        self.manner = dataclasses.replace(
            self.manner, sampling=dataclasses.replace(sampling, seed=seed)
        )
        return self._question(asked.typed, asked.message)

    def _question(self, typed: str, message: str) -> Question:
        reserve = min(_RESERVE, self.manner.max_tokens, self.session.n_ctx // 4)
        prompt = self.conversation.prompt(
            message,
            reserve=reserve,
            think=self.manner.think,
            bound=self.manner.grammar is not None,
        )
        note = ""
        if prompt.dropped:
            turns = "turn" if prompt.dropped == 1 else f"{prompt.dropped} turns"
            note = f"the oldest {turns} left the context of {self.session.n_ctx} tokens"
        return Question(typed, message, prompt, note)

    def answer(self, question: Question) -> Iterator[Record]:
        """The records of the answer. A turn that fails leaves the conversation as it was."""
        self._asked = question
        manner, prompt = self.manner, question.prompt
        request = Request(
            prompt.tokens,
            manner.max_tokens,
            manner.sampling,
            manner.stop,
            grammar=bound(manner.grammar, prompt.thinking),
        )
        text = [OPEN] if prompt.thinking else []
        for record in self.session.generate(request):
            if isinstance(record, Started):
                record = dataclasses.replace(
                    record, message=question.typed, thinking=prompt.thinking
                )
            elif isinstance(record, Cycle):
                text.append(record.text)
                self.totals = add(self.totals, record)
                self.last_cycles.append(record)
            elif isinstance(record, Finished):
                text.append(record.text)
                if record.emitted_tokens or record.reason != "cancelled":
                    self.conversation.add(question.message, "".join(text))
            yield record

    def sample(self, sampling: Sampling) -> None:
        """Choose tokens like this from the next cycle on."""
        self.manner = dataclasses.replace(self.manner, sampling=sampling)
        self.session.sample(sampling)

    def restore(self, system: str | None, turns: Sequence[tuple[str, str]]) -> None:
        """Go on with another conversation; the totals stay."""
        self.conversation.restore(system, turns)
        self._asked = None

    def reset(self) -> None:
        """A new conversation; the system message and the totals stay."""
        self.conversation.reset()
        self._asked = None


def bound(gbnf: str | None, thinking: bool) -> Grammar | None:
    """The grammar of an answer; where the prompt left a think tag open, from its end on."""
    return Grammar(gbnf, after=CLOSE if thinking else "") if gbnf is not None else None
