"""Chat on the full screen: what is typed becomes jobs for the desk, what comes back is drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from specctl.tui.desk import Again, Ask, Change, Choice, Command, Desk, Job, Open
from specctl.tui.feed import RATE, Feed
from specctl.tui.ladder import higher, lower
from specctl.tui.messages import Gauges, Note
from specctl.tui.pace import Pace
from specctl.tui.screens.base import DashboardScreen
from specctl.tui.screens.choose import ChooseScreen
from specctl.tui.screens.help import HelpScreen
from specctl.tui.state import Live
from specctl.tui.widgets.dashboard import Dashboard
from specctl.tui.widgets.log import LogView
from specctl.tui.widgets.prompt import PromptInput
from specctl.tui.widgets.search import SearchBar

GAUGES_EVERY = 2.0  # seconds
READING = 6.0  # seconds that a short answer to a command stays, where there is no log
SHORT = 2  # lines; a longer one is a page, which Esc closes
PLAIN = ("none",)

HELP = """\
Enter       send; Ctrl-J for a new line, Up/Down for earlier messages
Ctrl-C      stop the answer (its text is kept); copies where text is selected
Ctrl-Q      quit
F2          speculation off and on: the same conversation, plain and drafted
F3          choose the drafter
F5 / F6     fewer / more tokens drafted per cycle (K)
Ctrl-Up/Down  temperature by a tenth; /temp 0.7 sets it
F4          finished answers as Markdown, or as tokens tinted by who drafted them
F7          rejected draft tokens shown or hidden
F8          thinking folded or open
F9          record the cycles to a file, or stop recording
F10         save a screenshot (SVG);  Ctrl-S the transcript (Markdown)
Ctrl-R      answer the last message again, with another seed
Ctrl-Y      copy the last answer
Ctrl-F      search;  PageUp/PageDown, Ctrl-Home/Ctrl-End scroll
Ctrl-P      all commands and themes

/k 4   /spec auto   /temp 0.7   /stats   /system TEXT   /save FILE   /load FILE
/reset      a new conversation;  /help says more.  @file puts a file into the message

A cycle is one pass of the model over the drafted tokens. Accepted ones are tinted in the answer
(underlined without colour) and make the bars. Bars above the break-even line are faster than
plain decoding, bars below it slower; the line is measured on this machine while you chat.
"""


class LiveScreen(DashboardScreen):
    """Chat. `ask` is sent as soon as the model is open; `exports` is where files go."""

    HELP = HELP
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f2", "speculation", "speculation on/off", priority=True),
        Binding("f3", "drafter", "drafter", priority=True),
        Binding("f5", "k(-1)", "fewer drafted (K)", priority=True),
        Binding("f6", "k(1)", "more drafted (K)", priority=True),
        Binding("f9", "record", "record", priority=True),
        Binding("ctrl+s", "transcript", "save the transcript", priority=True),
        Binding("ctrl+r", "again", "answer again", priority=True),
        Binding("ctrl+y", "copy", "copy the answer", priority=True),
        Binding("ctrl+f", "search", "search", priority=True),
        Binding("ctrl+c", "stop", "stop"),
        Binding("ctrl+up", "temperature(0.1)", "temperature up", priority=True),
        Binding("ctrl+down", "temperature(-0.1)", "temperature down", priority=True),
        Binding("ctrl+home", "scroll('home')", "top", priority=True),
        Binding("ctrl+end", "scroll('end')", "bottom", priority=True),
        Binding("pageup", "scroll('page_up')", "up", priority=True),
        Binding("pagedown", "scroll('page_down')", "down", priority=True),
    ]

    def __init__(
        self,
        desk: Desk,
        feed: Feed,
        *,
        gauges: Callable[[], Gauges] | None = None,
        exports: Path,
        history: Path | None = None,
        ask: str = "",
        ascii_only: bool = False,
    ) -> None:
        super().__init__(exports, ascii_only)
        self.live = Live()
        self._desk = desk
        self._feed = feed
        self._gauges = gauges
        self._history = history
        self._ask = ask
        self._was_on: tuple[str, ...] | None = None  # what F2 goes back to
        self._drawn = (-1, False)
        self._pace = Pace()
        self._commanded = ""  # the command whose answer is to come
        self._page: HelpScreen | None = None  # the answer to a command, not opened yet
        self._phase = self.live.phase  # as drawn

    def compose(self) -> ComposeResult:
        """The picture, the prompt and the line of keys."""
        yield self.too_small()
        yield Dashboard(self._ascii)
        yield SearchBar()
        yield PromptInput(history=self._history, ascii=self._ascii)
        yield Static("", id="keys", markup=False)

    def on_mount(self) -> None:
        """Draw first; the engine is loaded behind it."""
        self.query_one(PromptInput).focus()
        self._submit(Open())
        if self._ask:
            self._submit(Ask(self._ask))
        self.set_interval(1 / RATE, self._tick)
        if self._gauges is not None:
            self._read_gauges()
            self.set_interval(GAUGES_EVERY, self._read_gauges)
        self._show()

    def _submit(self, job: Job, keep: bool = False) -> None:
        self._feed.submit(lambda: self._desk.do(job), keep)

    def _read_gauges(self) -> None:
        if self._gauges is not None:
            self._feed.put(self._gauges())

    def _tick(self) -> None:
        answers: list[str] = []
        for event in self._feed.take():
            self.live.apply(event)
            if isinstance(event, Note) and event.kind != "note":
                self.say(event.text, event.kind)
            elif isinstance(event, Note):
                answers.append(event.text)
        if answers and self._commanded:
            self._answered(self._commanded, answers)
            self._commanded = ""
        self._open_page()
        if self.live.phase == "failed":
            self.app.exit()
            return
        paid = self._pace.may_draw()
        if paid or self.live.phase != "writing" or self._phase != "writing":
            self._show()

    def _answered(self, command: str, lines: list[str]) -> None:
        """What a command says, where there is no room for the log."""
        if self.query_one(LogView).display:
            return
        if len(lines) <= SHORT:
            self.notify("\n".join(lines), timeout=READING, markup=False)
            return
        self._page = HelpScreen("\n".join(lines), command)
        self._open_page()

    def _open_page(self) -> None:
        """Not over what is being typed or read: a command may answer long after it was given."""
        if self._page is None or not self.is_current or self.query_one(PromptInput).text:
            return
        page, self._page = self._page, None
        self.clear_toasts()
        self.app.push_screen(page)

    def _show(self) -> None:
        state = (self.live.version, self._desk.recording)
        if state == self._drawn:
            return
        self._drawn, self._phase = state, self.live.phase
        self.query_one(Dashboard).sync(self.live, recording=self._desk.recording)
        self.query_one(PromptInput).wait(self.live.phase == "opening")
        self.query_one("#keys", Static).update(self._keys())

    def _keys(self) -> str:
        """The line of keys: what one can do now comes first."""
        if self.live.phase == "opening":
            return "loading the model …  ^Q quit  F1 all keys"
        busy = self.live.phase in ("prompt", "writing")
        off = self.live.spec_types == PLAIN
        first = "^C stop" if busy else "Enter send"
        switch = "F2 speculation on" if off else "F2 speculation off"
        turn = self.live.turn
        if not busy and turn is not None and turn.done:
            other = "tokens" if self.transcript.view == "markdown" else "Markdown"
            return f"{first}  {switch}  F3 drafter  F4 {other}  ^Q quit  F1 all keys"
        return f"{first}  {switch}  F3 drafter  F5/F6 K  ^Q quit  F1 all keys"

    # what is typed

    def on_prompt_input_submitted(self, event: PromptInput.Submitted) -> None:
        """A message, or a slash command."""
        text = event.text.strip()
        if text in ("/quit", "/exit"):
            self.app.exit()
        elif text.startswith("/"):
            self._command(text)
        elif text:
            self.transcript.follow()
            self._submit(Ask(text))

    def _command(self, text: str) -> None:
        """Done after what runs; a conversation is saved even when one leaves before that."""
        save = text.split()[0] == "/save"
        if self._feed.busy:
            when = "the model is open" if self.live.phase == "opening" else "the answer is done"
            self.say(f"{'will be saved' if save else f'{text} is done'} when {when}")
        self._commanded = text
        self._submit(Command(text), keep=save)

    # keys

    def action_speculation(self) -> None:
        """Off, or on as it was."""
        if self.live.spec_types != PLAIN:
            self._was_on = self.live.spec_types
            self._change(Change(spec_types=PLAIN))
            self.say("speculation off: plain decoding from the next cycle on")
        else:
            on = self._was_on or self._first_choice()
            self._change(Change(spec_types=on))
            self.say(f"speculation on: {','.join(on)}")

    def _first_choice(self) -> tuple[str, ...]:
        """What to switch on where nothing was on: `auto` where it is there."""
        choices = [one.spec_types for one in self._desk.choices() if one.spec_types != PLAIN]
        return ("auto",) if ("auto",) in choices else choices[0]

    def action_drafter(self) -> None:
        """Choose one from the list."""
        if self.live.ready is None:
            self.say("the model is still loading")
            return

        def chosen(choice: Choice | None) -> None:
            if choice is not None:
                self._change(Change(spec_types=choice.spec_types))

        self.clear_toasts()
        self.app.push_screen(ChooseScreen(self._desk.choices(), self.live.spec_types), chosen)

    def say(self, text: str, kind: str = "note") -> None:
        """The latest answer to a key stands alone: it makes those before it untrue."""
        if kind == "note":
            self.app.clear_notifications()
        super().say(text, kind)

    def action_k(self, step: int) -> None:
        """One step of the ladder."""
        if self.live.spec_types == PLAIN:
            self.say("speculation is off: F2 switches it on")
            return
        k = higher(self.live.k) if step > 0 else lower(self.live.k, self.live.k_max)
        self.say(f"K at most {k}" if k else "K as the drafter likes")
        self._change(Change(k=k))

    def action_temperature(self, step: float) -> None:
        """A tenth up or down; 0 is greedy."""
        temperature = round(max(0.0, self.live.temperature + step), 1)
        self.say(f"temperature {temperature:g}" + ("" if temperature else " (greedy)"))
        self._change(Change(temperature=temperature))

    def _change(self, change: Change) -> None:
        """From the next cycle of a running answer; the empty job applies it where none runs."""
        self._desk.change(change)
        self._submit(Change())

    def action_stop(self) -> None:
        """Stop the answer; with nothing to stop, say how to leave."""
        if self._feed.busy:  # the picture may be a moment behind
            self._desk.stop()
        else:
            self.say("Ctrl-Q quits")

    def action_again(self) -> None:
        """The last message once more."""
        if self.live.phase in ("prompt", "writing"):
            self.say("stop the running answer first: Ctrl-C")
        else:
            self._submit(Again())

    def action_view(self) -> None:
        """Markdown, or tokens."""
        super().action_view()
        self.query_one("#keys", Static).update(self._keys())
        self.say("finished answers as " + self.transcript.view)

    def action_ghosts(self) -> None:
        """Rejected tokens on or off."""
        super().action_ghosts()
        self.say("rejected draft tokens " + ("shown" if self.transcript.ghosts else "hidden"))

    def action_record(self) -> None:
        """Start or stop a recording."""

        def toggle() -> str:
            path = self._desk.record()
            return f"recording to {path}" if path else "recording stopped"

        self.attempt(toggle)
        self._show()

    def action_transcript(self) -> None:
        """The conversation as Markdown."""
        self.export(".md", self.transcript.plain_text())

    def action_copy(self) -> None:
        """The last answer to the clipboard (the terminal must allow it)."""
        answer = self.transcript.last_answer()
        if answer:
            self.app.copy_to_clipboard(answer)
            self.say(f"copied {len(answer)} characters")
        else:
            self.say("there is no answer yet")

    def action_search(self) -> None:
        """Open the search line."""
        self.query_one(SearchBar).open()

    def on_search_bar_sought(self, event: SearchBar.Sought) -> None:
        """Mark what is found."""
        found = self.transcript.search(event.text)
        self.query_one(SearchBar).found(found)

    def on_search_bar_next(self, event: SearchBar.Next) -> None:
        """To the next place."""
        at, total = self.transcript.next_match(event.step)
        self.query_one(SearchBar).found(total, at)

    def on_search_bar_closed(self, _event: SearchBar.Closed) -> None:
        """Back to the prompt."""
        self.transcript.search("")
        self.query_one(PromptInput).focus()

    def action_scroll(self, where: str) -> None:
        """Scroll the transcript."""
        action = where if where.startswith("page") else f"scroll_{where}"
        getattr(self.transcript, f"action_{action}")()
