"""What is typed: a field that grows with its lines, and the messages sent before."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from specctl.tui.widgets.flow import TAB, clean

MAX_LINES = 6
REMEMBERED = 500  # messages
PLACEHOLDER = "Ask something; ^J for a new line"
WAITING = "Type already: sent once it is open"

# Keys of TextArea that belong to the screen here: paging, F keys, search, copying the answer.
_NOT_OURS = frozenset(
    {"pageup", "pagedown", "ctrl+f", "ctrl+p", "ctrl+q", "ctrl+y", *(f"f{n}" for n in range(1, 13))}
)
# Ctrl-J works everywhere, the others in terminals that tell them from Enter (Kitty's protocol).
_NEW_LINE = frozenset({"ctrl+j", "shift+enter", "alt+enter", "ctrl+enter", "shift+\r"})


def _our_bindings() -> list[BindingType]:
    """TextArea's, without the keys of the screen."""
    kept: list[BindingType] = []
    for binding in TextArea.BINDINGS:
        if not isinstance(binding, Binding):
            kept.append(binding)
            continue
        keys = [key for key in binding.key.split(",") if key not in _NOT_OURS]
        if keys:
            kept.append(Binding(",".join(keys), binding.action, binding.description, show=False))
    return kept


class History:
    """Messages sent before, the latest last; kept in a file where there is a path.

    One JSON string a line, readable by the owner only. A file that cannot be read or written is
    done without: a chat is worth more than its history.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.messages: list[str] = []
        self._path = path
        self._at = 0  # what is shown; len(messages): the draft
        self._draft = ""
        if path is not None:
            self._read(path)
        self._at = len(self.messages)

    def add(self, message: str) -> None:
        """Sent just now."""
        if not self.messages or self.messages[-1] != message:
            self.messages.append(message)
            del self.messages[:-REMEMBERED]
            if self._path is not None:
                self._append(self._path, message)
        self._at, self._draft = len(self.messages), ""

    def walk(self, step: int, shown: str) -> str | None:
        """The message one step on (-1: older), None at an end; `shown` is kept where unsent."""
        at = self._at + step
        if not 0 <= at <= len(self.messages):
            return None
        if self._at == len(self.messages):
            self._draft = shown
        self._at = at
        return self._draft if at == len(self.messages) else self.messages[at]

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return
        for line in lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(message, str):
                self.messages.append(message)
        if len(self.messages) > REMEMBERED:
            del self.messages[:-REMEMBERED]
            self._rewrite(path)

    def _rewrite(self, path: Path) -> None:
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            beside.unlink(missing_ok=True)
            for message in self.messages:
                self._append(beside, message)
            beside.replace(path)
        except OSError:
            return

    @staticmethod
    def _append(path: Path, message: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(file, "w", encoding="utf-8") as stream:
                stream.write(json.dumps(message) + "\n")
        except OSError:
            return


class PromptInput(TextArea, inherit_bindings=False):
    """Enter sends. Posts `Submitted`; whether it can be answered now is for the screen to say."""

    class Submitted(Message):
        """A message, or a slash command."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    BINDINGS: ClassVar[list[BindingType]] = _our_bindings()
    DEFAULT_CSS = """
    PromptInput {
        height: auto;
        min-height: 1;
        border: none;
        border-left: outer $primary;
        padding: 0 1;
        background: $boost;
        scrollbar-size-vertical: 1;
        &:focus { border: none; border-left: outer $accent; }
        &.-ascii, &.-ascii:focus { border-left: ascii $accent; }
        & .text-area--cursor-line { background: transparent; }
        & .text-area--placeholder { color: $text-muted; }
    }
    """

    def __init__(
        self,
        history: Path | None = None,
        *,
        ascii: bool = False,  # noqa: A002 - what the whole screen calls it
        id: str | None = None,  # noqa: A002 - Textual's own name
    ) -> None:
        super().__init__(
            placeholder=PLACEHOLDER,
            id=id,
            classes="-ascii" if ascii else None,
            highlight_cursor_line=False,
        )
        self._messages = History(history)
        self.max_lines = MAX_LINES

    @property
    def max_lines(self) -> int:
        """How many lines it grows to; more are scrolled."""
        return self._max_lines

    @max_lines.setter
    def max_lines(self, lines: int) -> None:
        self._max_lines = max(1, lines)
        self.styles.max_height = self._max_lines

    def wait(self, waiting: bool) -> None:
        """While the model opens: say that typing ahead works."""
        self.placeholder = WAITING if waiting else PLACEHOLDER

    async def _on_key(self, event: events.Key) -> None:
        """Enter sends, its relatives make a new line; all else as in any text field."""
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self._send()
        elif event.key in _NEW_LINE:
            event.stop()
            event.prevent_default()
            self._put("\n")

    async def _on_paste(self, event: events.Paste) -> None:
        """Any number of lines; what would steer the terminal is replaced."""
        event.stop()
        event.prevent_default()
        # Terminals send the line ends of a paste as the Enter key would be sent.
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        self._put(clean(text).expandtabs(TAB))

    def _put(self, text: str) -> None:
        result = self._replace_via_keyboard(text, *self.selection)
        if result is not None:
            self.move_cursor(result.end_location)

    def _send(self) -> None:
        text = self.text
        if text.strip():
            self._messages.add(text)
            self.clear()
            self.post_message(self.Submitted(text))

    def action_cursor_up(self, select: bool = False) -> None:
        """On the first row: the message before."""
        first = self.navigator.is_first_wrapped_line(self.cursor_location)
        if select or not first or not self._recall(-1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """On the last row: the message after."""
        last = self.navigator.is_last_wrapped_line(self.cursor_location)
        if select or not last or not self._recall(1):
            super().action_cursor_down(select)

    def _recall(self, step: int) -> bool:
        text = self._messages.walk(step, self.text)
        if text is None:
            return False
        self.load_text(text)
        self.move_cursor(self.document.end)
        return True
