"""The home screen: this machine, what is recommended for it, what is here, what was measured."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from specctl.errors import SpecctlError
from specctl.tui.feed import RATE, Drain
from specctl.tui.home_desk import HomeDesk
from specctl.tui.home_state import (
    SECTIONS,
    Action,
    Event,
    Home,
    Looking,
    Pulled,
    Pulling,
    Section,
    Verb,
    beside,
    heights,
)
from specctl.tui.messages import Note
from specctl.tui.screens.ask import ConfirmScreen, MenuScreen
from specctl.tui.screens.help import HelpScreen
from specctl.tui.screens.page import TextScreen
from specctl.tui.screens.sized import SizedScreen
from specctl.tui.sizes import LEAST, WIDE
from specctl.tui.widgets.glyphs import ACCENT, MUTED, STRONG, glyphs, row, said
from specctl.tui.widgets.homelines import command_line, keys_line, pull_line, wanted
from specctl.tui.widgets.homepanel import HomePanel, Lines

HELP = """\
Tab, Shift-Tab   the next section, the one before; so do Left and Right
Up, Down         select a row, and go on into the section below or above
Home, End        the first row, the last
Enter            what one does with such a row: pull it (after a question), a menu (chat,
                 bench, tune), a result's report, a recording's replay
c  b  p          chat with it, bench it (three prompts), pull it
r                look at everything again
Esc, Ctrl-C      stop a pull; what was fetched is kept, and the next pull goes on there
Ctrl-P           all commands and themes
Ctrl-Q           quit

Below the sections stands the command that Enter is: what this screen does, specctl does without it.

Recommended are the best configurations of the catalogue for this machine, as `specctl recommend`
ranks them: target, drafter, estimated tok/s plain → with it, what there is to fetch, licence,
memory at 8K of context. All of these speeds are estimates (≈); what was measured stands in the
results, losses as well as gains. Nothing is asked of the network before you say so.
"""


class HomeScreen(SizedScreen):
    """Shows `home` and what `desk` tells of it. `chosen` is what to run after it was left."""

    AUTO_FOCUS = ""  # the state says which section
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "all keys", priority=True),
        Binding("enter", "open", "open the row"),
        Binding("c", "start('chat')", "chat"),
        Binding("b", "start('bench')", "bench"),
        Binding("p", "start('pull')", "pull"),
        Binding("r", "look", "look again"),
        Binding("up", "move(-1)", "up", show=False),
        Binding("down", "move(1)", "down", show=False),
        Binding("pageup", "leap(-10)", "ten up", show=False),
        Binding("pagedown", "leap(10)", "ten down", show=False),
        Binding("home", "leap(-9999)", "first row", show=False),
        Binding("end", "leap(9999)", "last row", show=False),
        Binding("tab", "turn(1)", "next section", show=False),
        Binding("shift+tab", "turn(-1)", "section before", show=False),
        Binding("left", "section(-1)", "section before", show=False),
        Binding("right", "section(1)", "next section", show=False),
        Binding("escape,ctrl+c", "stop", "stop the pull", show=False),
    ]
    DEFAULT_CSS = """
    HomeScreen { layout: vertical; }
    HomeScreen #home-title { background: $panel; }
    HomeScreen #home-pull { background: $boost; display: none; }
    HomeScreen.-pulling #home-pull { display: block; }
    HomeScreen #home-keys { background: $panel; color: $text-muted; }
    HomeScreen #home-body { height: 1fr; layout: vertical; }
    HomeScreen.-wide #home-body { layout: grid; grid-size: 2 2; grid-columns: 2fr 3fr; }
    HomeScreen HomePanel { border-top: solid $foreground 25%; }
    HomeScreen HomePanel:focus { border-top: solid $primary; }
    HomeScreen HomePanel.-ascii { border-top: ascii $foreground 25%; }
    HomeScreen HomePanel.-ascii:focus { border-top: ascii $primary; }
    HomeScreen.-wide HomePanel { border: round $foreground 25%; }
    HomeScreen.-wide HomePanel:focus { border: round $primary; }
    HomeScreen.-wide HomePanel.-ascii { border: ascii $foreground 25%; }
    HomeScreen.-wide HomePanel.-ascii:focus { border: ascii $primary; }
    HomeScreen.-small #home-title { display: none; }
    HomeScreen.-less Lines, HomeScreen.-less #home-body { display: none; }
    """

    def __init__(
        self,
        desk: HomeDesk,
        home: Home,
        looks: Drain[Event],
        pulls: Drain[Event],
        *,
        ascii_only: bool = False,
    ) -> None:
        super().__init__()
        self.home = home
        self.chosen: Action | None = None
        self._desk = desk
        self._looks, self._pulls = looks, pulls
        self._ascii = ascii_only
        self._signs = glyphs(ascii_only)
        self._drawn = -1

    # ---------------------------------------------------------------- drawing

    def compose(self) -> ComposeResult:
        """From above: title, sections, pull, command, keys."""
        yield Static(f"specctl needs {LEAST[0]}×{LEAST[1]}", id="small", markup=False)
        yield Lines(self._title_line, "home-title")
        with Container(id="home-body"):
            for section in SECTIONS:
                yield HomePanel(self.home, section, self._ascii)
        yield Lines(self._pull_line, "home-pull")
        yield Lines(lambda width: command_line(self.home, width, self._signs), "home-command")
        yield Lines(lambda width: keys_line(self.home, width, self._signs), "home-keys")

    def on_mount(self) -> None:
        """First the picture, then the looking."""
        self._panel(self.home.focus).focus()
        self.set_interval(1 / RATE, self._tick)
        self._show()
        self.call_after_refresh(self.action_look)

    def on_resize(self, event: events.Resize) -> None:
        """Lines for each section by the height there is (SizedScreen sets the classes)."""
        self._drawn = -1
        self.call_after_refresh(self._show)

    def _tick(self) -> None:
        for event in (*self._looks.take(), *self._pulls.take()):
            self.home.apply(event)
            if isinstance(event, Note):
                self.say(event.text, event.kind)
            elif isinstance(event, Pulled):
                self.say(event.text, event.kind)
                self._looks.submit(self._desk.look)
        self._show()

    def _show(self) -> None:
        home = self.home
        if home.version == self._drawn:
            return
        self._drawn = home.version
        self.set_class(home.pulling is not None, "-pulling")
        self._arrange()
        if self.focused is not None and self.focused is not self._panel(home.focus):
            self._panel(home.focus).focus()
        for panel in self.query(HomePanel):
            panel.sync()
        for lines in self.query(Lines):
            lines.refresh()

    def _arrange(self) -> None:
        """Where sections stand above each other: lines for each, by what it has to show."""
        if self._columns == 2:
            for panel in self.query(HomePanel):
                panel.styles.height = "1fr"
            return
        width = max(1, self.size.width - 2)
        others = 2 + (not self.has_class("-small")) + (self.home.pulling is not None)
        wants = {section: wanted(self.home, section, width, self._signs) for section in SECTIONS}
        given = heights(self.size.height - others, wants, self.home.focus)
        for section, lines in given.items():
            self._panel(section).styles.height = lines + 1  # and its heading

    @property
    def _columns(self) -> int:
        return 2 if self.size.width >= WIDE and not self.has_class("-small") else 1

    def _panel(self, section: Section) -> HomePanel:
        return self.query_one(f"#home-{section}", HomePanel)

    def _title_line(self, width: int) -> Content:
        state = said("looking …", self._signs) if self.home.waiting else ""
        chunks = [[("specctl", STRONG)], [(self.home.title, MUTED)], [(state, ACCENT)]]
        return row([one for one in chunks if one[0][0]], width, self._signs)

    def _pull_line(self, width: int) -> Content:
        pulling = self.home.pulling
        return Content("") if pulling is None else pull_line(pulling, width, self._signs)

    # ---------------------------------------------------------------- moving

    def on_home_panel_moved(self, _event: HomePanel.Moved) -> None:
        """Draw it."""
        self._drawn = -1
        self._show()

    def on_home_panel_turned(self, event: HomePanel.Turned) -> None:
        """The wheel selects."""
        self.home.move(event.step)
        self._show()

    def on_home_panel_chosen(self, _event: HomePanel.Chosen) -> None:
        """A click on the selected row."""
        self.action_open()

    def action_move(self, step: int) -> None:
        """The next row; behind the last one the section below."""
        if not self.home.move(step):
            below = beside(self.home.focus, step, self._columns)
            if below is not None:
                self.home.go(below)
        self._show()

    def action_leap(self, step: int) -> None:
        """Several rows, inside the section."""
        self.home.move(step)
        self._show()

    def action_section(self, step: int) -> None:
        """The next section, or the one before."""
        other = beside(self.home.focus, step, 1)
        if other is not None:
            self.home.go(other)
        self._show()

    def action_turn(self, step: int) -> None:
        """As `section`, round and round. The state leads, so that the next key meets it."""
        at = SECTIONS.index(self.home.focus) + step
        self.home.go(SECTIONS[at % len(SECTIONS)])
        self._show()

    # ---------------------------------------------------------------- doing

    def action_help(self) -> None:
        """Every key."""
        self.app.push_screen(HelpScreen(said(HELP, self._signs)))

    def action_look(self) -> None:
        """Look at everything again."""
        if self._looks.busy:
            self.say("it is being looked at")
            return
        self.home.apply(Looking())
        self._looks.submit(self._desk.look)
        self._show()

    def action_open(self) -> None:
        """What the row is for, or a menu where that is several things."""
        offered = self.home.actions()
        if len(offered) == 1:
            self._do(offered[0])
        elif offered and self.home.row is not None:
            self.app.push_screen(MenuScreen(self.home.row.key, offered, self._ascii), self._do)

    def action_start(self, verb: Verb) -> None:
        """Do one thing with the row, if that can be done with it."""
        offered = self.home.actions(verb)
        if offered:
            self._do(offered[0])
        elif self.home.actions("pull"):
            self.say(f"it is not here yet, so there is nothing to {verb}: Enter pulls it")
        else:
            self.say(f"there is nothing to {verb} in this row")

    def action_stop(self) -> None:
        """Stop a pull; with nothing to stop, say how to leave."""
        if self.home.pulling is not None:
            self._desk.stop_pull()
            self.say("stopping; what is here is kept")
        else:
            self.say("Ctrl-Q quits")

    def _do(self, action: Action | None) -> None:
        if action is None:
            return
        if action.verb == "page":
            self._open_page(action)
        elif self.home.pulling is not None:
            self.say("a pull is running: Esc stops it, and what is here is kept", "warning")
        elif action.verb == "pull":
            screen = ConfirmScreen(action, self._ascii)
            self.app.push_screen(screen, lambda yes: self._pull(action) if yes else None)
        else:
            self.chosen = action
            self.app.exit()

    def _pull(self, action: Action) -> None:
        self.home.apply(Pulling(action.argv[-1], "looking up"))
        self._pulls.submit(lambda: self._desk.pull(action))
        self._show()

    def _open_page(self, action: Action) -> None:
        try:
            make = self._desk.page(action)
        except SpecctlError as error:
            self.say(error.message, "error")
            return
        self.app.push_screen(TextScreen(action.line, make, self._ascii))
