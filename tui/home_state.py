"""All that the home screen shows, as a fold over events; words and figures come from the commands.

Four sections, each in one of three states: not seen yet, seen, or failed with a reason. A refresh
replaces what was seen; the selected row of a section stays the selected one by its key.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Literal

from specctl.tui.messages import Note

Section = Literal["machine", "recommended", "downloaded", "results"]
SECTIONS: tuple[Section, ...] = ("machine", "recommended", "downloaded", "results")
Verb = Literal["chat", "bench", "tune", "replay", "pull", "page"]
Verdict = Literal["faster", "slower", "no difference shown", "never drafted", "differs"]


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do with a row: a command line of specctl, shown as what it is.

    `words` say it in a menu. `ask` are the lines of a question that is asked before.
    """

    verb: Verb
    argv: tuple[str, ...]
    words: str = ""
    ask: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The command as one would type it."""
        return shlex.join(("specctl", *self.argv))


@dataclass(frozen=True, slots=True)
class MachineRow:
    """This machine, as a row that can be opened. `rows` are label and text, as doctor prints."""

    key: str
    rows: tuple[tuple[str, str], ...]
    conclusion: str
    notes: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """A recommended configuration. `get` is what a pull would fetch; empty: it is here.

    `facts` come in the order in which they may be left out, the last one first.
    """

    key: str
    name: str
    drafter: str
    speed: str
    get: str
    facts: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model of this machine, whole or half-fetched; `note` says what it is or whose."""

    key: str
    name: str
    size: str
    note: str = ""
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A kept benchmark, or a recording (no `arms`). `arms`: a verdict and the words for it, what
    is fastest first, then what is slower. `broken` says why it cannot be read.
    """

    key: str
    date: str
    name: str
    arms: tuple[tuple[Verdict, str], ...] = ()
    note: str = ""
    broken: str = ""
    actions: tuple[Action, ...] = ()


Row = MachineRow | Proposal | ModelRow | ResultRow


@dataclass(frozen=True, slots=True)
class Seen:
    """A section was looked at. `about` stands in its heading, `empty` in place of no rows;
    `warnings` are what could not be read beside the rows. Not `final`: more of it will come.
    """

    section: Section
    rows: tuple[Row, ...]
    about: str = ""
    empty: str = ""
    warnings: tuple[str, ...] = ()
    final: bool = True


@dataclass(frozen=True, slots=True)
class Failed:
    """A section could not be looked at; what was seen of it before is no longer shown."""

    section: Section
    why: str


@dataclass(frozen=True, slots=True)
class Looking:
    """All sections are about to be looked at (again)."""


@dataclass(frozen=True, slots=True)
class Pulling:
    """How far a pull is. Bytes; `total` 0 until it is known. `words` are the figures."""

    name: str
    phase: str
    done: int = 0
    total: int = 0
    words: str = ""


@dataclass(frozen=True, slots=True)
class Pulled:
    """A pull has ended, and how."""

    text: str
    kind: Literal["note", "warning", "error"] = "note"


Event = Seen | Failed | Looking | Pulling | Pulled | Note


@dataclass(slots=True)
class Part:
    """One section just now."""

    rows: tuple[Row, ...] = ()
    about: str = ""
    empty: str = ""
    warnings: tuple[str, ...] = ()
    failed: str = ""
    seen: bool = False
    at: int = 0  # the selected row

    @property
    def row(self) -> Row | None:
        """The selected row, where there is one."""
        return self.rows[self.at] if self.rows else None


@dataclass(slots=True)
class Home:
    """The whole screen. `version` moves with everything that is drawn."""

    parts: dict[Section, Part] = field(
        default_factory=lambda: {section: Part() for section in SECTIONS}
    )
    focus: Section = "downloaded"
    title: str = ""  # beside the program's name
    waiting: frozenset[Section] = frozenset()  # sections that are being looked at
    pulling: Pulling | None = None
    version: int = 0
    moved: bool = False  # the person has chosen a section

    def apply(self, event: Event) -> None:
        """Take an event in."""
        if isinstance(event, Looking):
            self.waiting = frozenset(SECTIONS)
        elif isinstance(event, Seen):
            self._seen(event)
        elif isinstance(event, Failed):
            self.parts[event.section] = Part(failed=event.why, seen=True)
            self.waiting -= {event.section}
        elif isinstance(event, Pulling):
            self.pulling = event
        elif isinstance(event, Pulled):
            self.pulling = None
        else:
            return
        self.version += 1

    def _seen(self, event: Seen) -> None:
        part = self.parts[event.section]
        key = part.row.key if part.row is not None else None
        keys = [row.key for row in event.rows]
        last = max(0, len(keys) - 1)
        self.parts[event.section] = Part(
            event.rows,
            event.about,
            event.empty,
            event.warnings,
            seen=True,
            at=keys.index(key) if key in keys else min(part.at, last),
        )
        if event.final:
            self.waiting -= {event.section}
        if event.section == "downloaded" and not event.rows and not self.moved:
            self.focus = "recommended"

    @property
    def row(self) -> Row | None:
        """The selected row of the section in focus."""
        return self.parts[self.focus].row

    def go(self, section: Section) -> None:
        """Another section."""
        if section != self.focus:
            self.focus = section
            self.version += 1
        self.moved = True

    def move(self, step: int) -> bool:
        """Select another row of the section in focus; false at its end."""
        part = self.parts[self.focus]
        at = max(0, min(part.at + step, len(part.rows) - 1))
        self.moved = True
        if at == part.at or not part.rows:
            return False
        part.at = at
        self.version += 1
        return True

    def select(self, section: Section, at: int) -> None:
        """One row of one section."""
        self.go(section)
        self.move(at - self.parts[section].at)

    def actions(self, verb: Verb | None = None) -> tuple[Action, ...]:
        """What can be done with the selected row; of one kind where `verb` names it."""
        row = self.row
        offered = () if row is None else row.actions
        return tuple(one for one in offered if verb in (None, one.verb))


def beside(section: Section, step: int, columns: int) -> Section | None:
    """The section so many places on, sections laid out in rows of `columns`; None at an end."""
    at = SECTIONS.index(section) + step * columns
    return SECTIONS[at] if 0 <= at < len(SECTIONS) else None


def heights(total: int, wants: dict[Section, int], focus: Section) -> dict[Section, int]:
    """Lines of content for sections that stand one above the other, each with a heading of one.

    Little room: the section in focus alone is open. Else each gets two lines, the one in focus
    then half of what is left, up to what it wants, and the rest goes round.
    """
    left = max(0, total - len(wants))
    if left < 2 * len(wants):
        return {section: left if section == focus else 0 for section in wants}
    given = {section: min(2, wants[section]) for section in wants}
    left -= sum(given.values())
    most = left if sum(wants.values()) <= total - len(wants) else left // 2
    extra = min(wants[focus] - given[focus], most)
    given[focus] += extra
    left -= extra
    order = [focus, *(section for section in wants if section != focus)]
    while left > 0 and (hungry := [one for one in order[1:] if given[one] < wants[one]]):
        for section in hungry[:left]:
            given[section] += 1
        left -= min(left, len(hungry))
    given[next(reversed(wants))] += left  # nobody wants it: at the bottom
    return given
