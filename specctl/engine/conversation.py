"""A chat as turns: files in messages, what fits the context, what goes when it is full."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specctl.engine.session import Session
from specctl.engine.thinking import CLOSE, OPEN
from specctl.errors import ContextFullError, UsageError
from specctl.llama.chat import Message

_ATTACHMENT = re.compile(r"(?:(?<=\s)|^)@(\S+)")
_MAX_ATTACHMENT = 4 * 1024 * 1024  # bytes; beyond any context


@dataclass(frozen=True, slots=True)
class Prompt:
    """What to generate from. `dropped` oldest turns did not fit; `thinking`: a think tag is open.

    `room` is what the context has left for the answer, tokens.
    """

    tokens: tuple[int, ...]
    dropped: int
    room: int
    thinking: bool


class Conversation:
    """Turns of one chat. A turn that fails leaves the conversation as it was."""

    def __init__(self, session: Session, system: str | None = None) -> None:
        self._session = session
        self.system = system
        self._turns: list[tuple[str, str]] = []  # (user, assistant)

    def prompt(
        self, user: str, *, reserve: int, think: bool | None = None, bound: bool = False
    ) -> Prompt:
        """The prompt for the next turn; the oldest turns go until `reserve` tokens are free.

        `bound`: a grammar binds the answer (see `written`).

        Raises:
            ContextFullError: this message alone does not fit.
            UsageError: the model cannot think before a bound answer.
        """
        n_ctx = self._session.n_ctx
        dropped = 0
        while True:
            messages = self._messages(user)
            tokens, thinking = written(self._session, messages, think, bound)
            room = n_ctx - len(tokens)
            if room >= reserve or (not self._turns and room > 0):
                break
            if not self._turns:
                raise ContextFullError(
                    f"this message is {len(tokens)} tokens, the context holds {n_ctx}",
                    "a larger --ctx, or a shorter message",
                )
            self._turns.pop(0)
            dropped += 1
        return Prompt(tokens, dropped, room, thinking)

    def _messages(self, user: str) -> list[dict[str, str]]:
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for asked, answered in self._turns:
            messages.append({"role": "user", "content": asked})
            messages.append({"role": "assistant", "content": answered})
        return [*messages, {"role": "user", "content": user}]

    def add(self, user: str, answer: str) -> None:
        """Remember a turn, without the thinking."""
        self._turns.append((user, _without_thinking(answer)))

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """What is remembered: (user, assistant), oldest first."""
        return tuple(self._turns)

    @property
    def last_message(self) -> str | None:
        """What the user said last, of the turns that are remembered."""
        return self._turns[-1][0] if self._turns else None

    def take_back(self) -> None:
        """Forget the last turn."""
        self._turns.pop()

    def restore(self, system: str | None, turns: Sequence[tuple[str, str]]) -> None:
        """Another conversation in place of this one."""
        self.system = system
        self._turns = list(turns)

    def reset(self) -> None:
        """Forget all turns; the system text stays."""
        self._turns.clear()

    @property
    def turns(self) -> int:
        """Turns that are remembered."""
        return len(self._turns)


def written(
    session: Session, messages: Sequence[Message], think: bool | None, bound: bool
) -> tuple[tuple[int, ...], bool]:
    """Messages as prompt tokens, and whether a think tag is open at their end.

    A grammar (`bound`) holds from the answer's first token, so a model that would open the tag
    itself could not think: its thinking is switched off, or, where it is asked for, the prompt
    opens the tag and the grammar waits for its end.

    Raises:
        UsageError: thinking before a bound answer was asked of a model that marks it otherwise.
    """
    template = session.template
    if bound and think is None and template.knows_thinking:
        think = False
    tokens = session.chat(messages, think)
    thinking = template.text(messages, think=think).rstrip().endswith(OPEN)
    if bound and think and not thinking:
        if not template.writes_think_tags:
            raise UsageError(
                f"a grammar and thinking together need a model that thinks between {OPEN} tags",
                "--think off, or no grammar",
            )
        opening = session.model.tokenize(f"{OPEN}\n", special=True, add_special=False)
        return (*tokens, *opening), True
    return tokens, thinking


def _without_thinking(answer: str) -> str:
    if CLOSE in answer:
        return answer.rpartition(CLOSE)[2].strip()
    return answer.partition(OPEN)[0].strip() if OPEN in answer else answer.strip()


def attach_files(message: str) -> str:
    """Replace each `@path` that names a file by its contents, fenced and with its name.

    Raises:
        UsageError: what looks like a file is none, or it is no text, too large, or unreadable.
    """

    def contents(match: re.Match[str]) -> str:
        path = Path(match[1]).expanduser()
        if not path.is_file():
            if "/" in match[1] or path.suffix[1:].isalnum() or path.exists():
                raise UsageError(f"no file {path} to attach", "check the path; @name alone is text")
            return match[0]  # an @handle, not a file
        return f"\n{path.name}:\n```\n{_read_text(path)}\n```\n"

    return _ATTACHMENT.sub(contents, message)


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_ATTACHMENT:
            raise UsageError(f"@{path} is larger than {_MAX_ATTACHMENT >> 20} MiB")
        return path.read_text(encoding="utf-8").rstrip("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"@{path} is not UTF-8 text") from error
    except OSError as error:
        raise UsageError(f"cannot read @{path}: {error.strerror}") from error
