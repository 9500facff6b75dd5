"""One question and its answer as rows: what the transcript stacks."""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from specctl.tui.state import Span, Turn
from specctl.tui.widgets.flow import Flow
from specctl.tui.widgets.markdown import Colours, markdown_rows

_SPACES = re.compile(r"[ \t]{2,}")
GHOST_LENGTH = 16  # characters shown of a rejected draft
SLOTS = 8  # colours for drafters
# Drafters that may take part in one answer get colours of their own.
_SLOTS = {
    "draft-simple": 0,
    "draft-mtp": 0,
    "ngram-suffix": 1,
    "ngram-simple": 2,
    "ngram-map-k": 3,
    "ngram-map-k4v": 4,
    "ngram-mod": 5,
    "ngram-cache": 6,
}

Kind = Literal["question", "thinking", "answer", "status"]


def slot(origin: str) -> int:
    """The colour of a drafter, 0 … SLOTS - 1: the same in every run."""
    return _SLOTS.get(origin, zlib.crc32(origin.encode()) % SLOTS)


@dataclass(frozen=True, slots=True)
class Mode:
    """How turns are drawn. `width` in cells, `gap` in rows between the parts."""

    width: int
    gap: int = 1
    ghosts: bool = True
    fold: bool = False
    markdown: bool = True
    plain: bool = False  # no ornaments beyond ASCII


@dataclass(slots=True)
class Section:
    """A stretch of rows of one kind; `top` is its first row within the block."""

    kind: Kind
    flow: Flow
    top: int = 0
    words: int = 0  # of thinking
    open: bool = True  # False: `flow` is the one line that stands for it
    continues: bool = False  # the same speaker as before

    @property
    def bottom(self) -> int:
        """The row after its last."""
        return self.top + self.flow.height


class TurnBlock:
    """Takes a turn's spans in as they come; rows before the last one never change while it runs."""

    def __init__(self, turn: Turn, mode: Mode) -> None:
        self.turn = turn
        self.mode = mode
        self.sections: list[Section] = []
        self.status: Section | None = None
        self.height = 0
        self.marked = False  # its answers are rendered Markdown
        self.marked_width: int | None = None  # at this width; None: they are to be rendered
        self._tops: list[int] = []
        self._start()

    def rebuild(self, mode: Mode) -> None:
        """Draw all anew."""
        self.mode = mode
        self._start()

    def rewrap(self, mode: Mode) -> None:
        """Another width or gap. Rendered Markdown keeps its rows until it is rendered again."""
        self.mode = mode
        for section in self.sections:
            if not (self.marked and section.kind == "answer"):
                section.flow.rewrap(mode.width)
        if self.status is not None:
            self.status.flow.rewrap(mode.width)
        self.marked_width = None
        self._stack()

    @property
    def wants_markdown(self) -> bool:
        """Its answer is complete and not rendered at this width."""
        return (
            self.mode.markdown
            and self.turn.finished is not None
            and self.marked_width != self.mode.width
            and any(section.kind == "answer" for section in self.sections)
        )

    def update(self, note: str = "") -> int | None:
        """Take in what came since the last call; the first row that is another now, or None.

        `note` is what to say while there is no text yet.
        """
        last = self.sections[-1] if self.sections else None
        before = 0 if last is None else last.bottom - 1 if last.open else last.top
        changed = not self.marked and self._take_spans()
        if self._set_status(note):
            changed = True
        if not changed:
            return None
        self._measure()
        return max(0, before)

    def section_at(self, row: int) -> Section | None:
        """What a row shows; None between the parts."""
        if self.status is not None and row >= self.status.top:
            return self.status
        index = bisect_right(self._tops, row) - 1
        if index < 0:
            return None
        section = self.sections[index]
        return section if row < section.bottom else None

    def render_markdown(self, colours: Colours) -> Iterator[None]:
        """Render the answer, a stretch at a time; the rows are exchanged at the end."""
        mode = self.mode
        flows: list[Flow] = []
        for text in self._answers():
            flow = Flow(mode.width, mode.plain)
            for rows in markdown_rows(text, mode.width, colours, mode.plain):
                for row in rows:
                    flow.add_row(row)
                yield
            flows.append(flow)
        self._exchange(flows, mode.width)

    # ------------------------------------------------------------ building

    def _start(self) -> None:
        self.sections = []
        self.status = None
        self._tops = []
        self.marked = False
        self.marked_width = None
        self._taken = 0  # spans that are in
        self._offset = 0  # characters of the next one that are
        self._status = ""
        self._in_word = False
        if self.turn.question:
            section = self._open("question")
            section.flow.feed(self.turn.question.strip("\n"), "question")
            section.flow.finish("question")
        self.update()
        self._measure()

    def _take_spans(self) -> bool:
        spans = self.turn.spans
        changed = False
        while self._taken < len(spans):
            span = spans[self._taken]
            text = span.text[self._offset :]
            if text:
                self._take(span, text)
                changed = True
            self._offset = len(span.text)
            if self._taken == len(spans) - 1:
                break  # it may grow
            self._taken, self._offset = self._taken + 1, 0
        if self.turn.done and self.sections:
            self.sections[-1].flow.finish()
        return changed

    def _take(self, span: Span, text: str) -> None:
        if span.ghost:
            if self.mode.ghosts:
                self._haunt(text)
            return
        kind: Kind = "thinking" if span.thinking else "answer"
        section = self._current(kind)
        if section is None:
            text = text.lstrip("\n")
            if not text:
                return
            section = self._open(kind)
        elif not section.flow.height:
            text = text.lstrip("\n")
        if kind == "thinking":
            self._count(section, text)
            if not section.open:
                self._draw_fold(section)
                return
        section.flow.feed(text, self._look(span))

    def _look(self, span: Span) -> str:
        if span.thinking:
            return "thinking"
        return f"drafter-{slot(span.origin)}" if span.origin else "own"

    def _haunt(self, text: str) -> None:
        """A rejected end of a draft, where it would have stood."""
        section = self._current("answer") or self._current("thinking")
        if section is None or not section.open:
            return
        newline, dots = ("\\n", "...") if self.mode.plain else ("⏎", "…")
        text = _SPACES.sub(" ", text.replace("\r\n", "\n"))  # indentation would hide the answer
        shown = text[:GHOST_LENGTH].replace("\n", newline)
        section.flow.insert(shown + (dots if len(text) > GHOST_LENGTH else ""), "ghost")

    def _current(self, kind: Kind) -> Section | None:
        last = self.sections[-1] if self.sections else None
        return last if last is not None and last.kind == kind else None

    def _open(self, kind: Kind) -> Section:
        if self.sections:
            self.sections[-1].flow.finish()
        section = Section(kind, Flow(self.mode.width, self.mode.plain), self._next_top())
        section.continues = any(one.kind != "question" for one in self.sections)
        if kind == "thinking":
            section.open = not self.mode.fold
            self._in_word = False
            if section.open:
                mark = "v" if self.mode.plain else "▾"
                section.flow.feed(f"{mark} thinking\n", "fold")
        self.sections.append(section)
        self._tops.append(section.top)
        return section

    def _next_top(self) -> int:
        return self.sections[-1].bottom + self.mode.gap if self.sections else 0

    def _count(self, section: Section, text: str) -> None:
        section.words += len(text.split()) - (self._in_word and not text[:1].isspace())
        self._in_word = not text[-1:].isspace()

    def _draw_fold(self, section: Section) -> None:
        mark = ">" if self.mode.plain else "▸"
        flow = Flow(self.mode.width, self.mode.plain)
        flow.feed(f"{mark} thinking, {section.words} words", "fold")
        section.flow = flow

    # ------------------------------------------------------------ the end of a turn

    def _set_status(self, note: str) -> bool:
        look, text = self._describe(note)
        if text == self._status:
            return False
        self._status = text
        self.status = None
        if text:
            self.status = Section("status", Flow(self.mode.width, self.mode.plain))
            self.status.flow.feed(text, look)
            self.status.flow.finish(look)
        return True

    def _describe(self, note: str) -> tuple[str, str]:
        turn = self.turn
        if turn.error:
            return "error", f"error: {turn.error}"
        silent = all(section.kind == "question" for section in self.sections)
        if turn.finished is None:
            return "note", note if silent else ""
        match turn.finished.reason:
            case "error":
                return "error", f"error: {turn.finished.detail or 'no reason given'}"
            case "cancelled":
                return "note", "(stopped)"
            case "length":
                return "note", "(cut: as many tokens as asked for)"
            case "context":
                return "note", "(cut: the context is full)"
            case _:
                return "note", "(no text)" if silent else ""

    # ------------------------------------------------------------ Markdown

    def _answers(self) -> list[str]:
        """The texts of the answer sections, as the model wrote them."""
        texts: list[str] = []
        last = ""
        for span in self.turn.spans:
            if span.ghost:
                continue
            kind = "thinking" if span.thinking else "answer"
            if kind == "answer":
                if last == kind and texts:
                    texts[-1] += span.text
                elif span.text.strip("\n"):
                    texts.append(span.text)
                else:
                    continue
            elif not span.text.strip("\n"):
                continue
            last = kind
        return texts

    def _exchange(self, flows: list[Flow], width: int) -> None:
        answers = [section for section in self.sections if section.kind == "answer"]
        for section, flow in zip(answers, flows, strict=False):
            if flow.height:
                section.flow = flow
        self.marked = True
        self.marked_width = width
        self._stack()

    # ------------------------------------------------------------ rows

    def _stack(self) -> None:
        """Put every section under the one before it."""
        top = 0
        for index, section in enumerate(self.sections):
            section.top = self._tops[index] = top
            top = section.bottom + self.mode.gap
        self._measure()

    def _measure(self) -> None:
        """The height, with the status under what may have grown."""
        self.height = self.sections[-1].bottom if self.sections else 0
        if self.status is not None:
            self.status.top = self._next_top()
            self.height = self.status.bottom
