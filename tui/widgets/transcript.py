"""The conversation as a scrollable text: every token tinted by who proposed it."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import ClassVar, Literal

from rich.segment import Segment
from textual import events
from textual.geometry import Region, Size
from textual.reactive import var
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from specctl.tui.state import Live
from specctl.tui.widgets.flow import MIN_WIDTH, Flow, Overlay, clean
from specctl.tui.widgets.following import Following
from specctl.tui.widgets.looks import COMPONENTS, CSS, Looks
from specctl.tui.widgets.markdown import Colours
from specctl.tui.widgets.stack import NEVER, Place, RowOf, Stack
from specctl.tui.widgets.turnblock import Mode, Section, TurnBlock
from specctl.tui.widgets.turnwords import as_markdown, hint

WIDE = 60  # columns from which on who speaks is written out
ROOMY = 12  # rows from which on the parts are set apart
CACHE = 256  # rows kept drawn
HINT_WIDTH = 60  # columns
BUDGET = 0.012  # seconds that rendering of Markdown may take at a time

_LABELS = {"question": "you", "thinking": "model", "answer": "model", "status": ""}


class Transcript(Following, can_focus=True):
    """Shows `Live.turns`. `sync` costs what is new, not what is there.

    Give it a height that does not depend on its content.
    """

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = COMPONENTS
    DEFAULT_CSS = CSS

    ghosts: var[bool] = var(True)
    fold_thinking: var[bool] = var(False)
    view: var[Literal["markdown", "tokens"]] = var("markdown")
    ascii: var[bool] = var(False)
    underline: var[bool] = var(False)  # accepted tokens; always where there is no colour

    def __init__(
        self,
        model: str = "",
        *,
        ascii: bool = False,  # noqa: A002 - what the whole screen calls it
        name: str | None = None,
        id: str | None = None,  # noqa: A002 - Textual's own name
        classes: str | None = None,
    ) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self.set_reactive(Transcript.ascii, ascii)
        self.model = model  # what is being opened, for the hint
        self._live = Live()
        self._version = -1
        self._stack: Stack | None = None  # None: no size yet
        self._strips: dict[int, Strip] = {}
        self._looks = Looks(self)
        self._rendering: Iterator[None] | None = None
        self._found: list[Place] | None = None
        self._current: Place | None = None

    def on_mount(self) -> None:
        """Markdown is rendered bit by bit."""
        super().on_mount()  # type: ignore[no-untyped-call]
        self._timer = self.set_interval(1 / 30, self._render_some, pause=True)
        self.watch(self.app, "theme", self._theme_changed, init=False)

    # ------------------------------------------------------------ what comes in

    def sync(self, live: Live) -> None:
        """Show what `live` holds now."""
        if live is self._live and live.version == self._version:
            return
        self._live = live
        stack = self._stack
        if stack is None:
            return  # on_resize comes back
        self._version = live.version
        self._found = None
        turns = len(stack.blocks)
        first = stack.match(live.turns)
        if first != NEVER:
            self._rendering = self._current = None
            self.following |= len(stack.blocks) > turns  # who asks wants to see the answer
        first = min(first, stack.update(self._note(live)))
        if not stack.blocks:
            first = 0  # the hint
        if first != NEVER:
            self._show_from(first)
        self._want_markdown()

    def _note(self, live: Live) -> str:
        """What to say while an answer has no text yet."""
        if live.phase != "prompt":
            return ""
        return f"reading {live.prompt_tokens} tokens {'...' if self.ascii else '…'}"

    def _show_from(self, first: int) -> None:
        """Rows from `first` on are others than before."""
        for row in [row for row in self._strips if row >= first]:
            del self._strips[row]
        visible = max(0, first - self.scroll_offset.y)
        if visible < self.size.height:
            self.refresh(Region(0, visible, self.size.width, self.size.height - visible))
        self._fit()

    def _fit(self) -> None:
        """The virtual size, without a layout of the whole screen: the outside is as it was."""
        size = Size(self.size.width, self._stack.height if self._stack else 0)
        following = self.following
        if size != self.virtual_size:
            self.set_reactive(Widget.virtual_size, size)
            self._scroll_update(size)
        if following:
            self.action_scroll_end()

    def _redraw(self) -> None:
        self._strips.clear()
        self.refresh()

    # ------------------------------------------------------------ modes and sizes

    def on_resize(self) -> None:
        """Another width: wrap anew, and keep what stands at the top there."""
        self._lay_out()

    def watch_ghosts(self) -> None:
        """Drawn or not."""
        self._lay_out()

    def watch_fold_thinking(self) -> None:
        """Folded or not."""
        self._lay_out()

    def watch_view(self) -> None:
        """Markdown or tokens."""
        self._lay_out()

    def watch_ascii(self) -> None:
        """Ornaments of ours."""
        self._lay_out()

    def watch_underline(self) -> None:
        """Another style for accepted tokens."""
        self._looks.underline = self.underline
        self._looks.clear()
        self._redraw()

    def notify_style_update(self) -> None:
        """Another theme, or focus: styles are looked up anew."""
        super().notify_style_update()
        self._looks.clear()
        self._strips.clear()

    def _theme_changed(self) -> None:
        """Rendered Markdown has colours of its own."""
        for block in self._stack.blocks if self._stack else []:
            block.marked_width = None
        self._want_markdown()

    def _new_mode(self) -> Mode:
        width = self.scrollable_content_region.width
        return Mode(
            width=max(1, width - self._gutter(width)),
            gap=1 if self.size.height >= ROOMY else 0,
            ghosts=self.ghosts,
            fold=self.fold_thinking,
            markdown=self.view == "markdown",
            plain=self.ascii,
        )

    @staticmethod
    def _gutter(width: int) -> int:
        return 7 if width >= WIDE else 2

    def _lay_out(self) -> None:
        if not self.is_mounted or not self.size:
            return
        mode = self._new_mode()
        if self._stack is None:
            self._stack = Stack(mode)
            self._version = -1
            self.sync(self._live)
        elif mode == self._stack.mode:
            self._fit()
        else:
            self._rendering = None
            place = self._stack.place_of(self.scroll_offset.y)
            self._stack.use(mode)
            self._stack.update(self._note(self._live))
            self._rows_moved(place)
            self._want_markdown()

    def _rows_moved(self, place: Place | None) -> None:
        """After rows have changed their places: the end stays in sight, or `place` at the top."""
        self._found = None
        if self.text_selection is not None:
            self.screen.clear_selection()
        following = self.following
        self._fit()
        if not following and place is not None and self._stack is not None:
            self.go(self._stack.row_of(place))
            self.following = False
        self._redraw()

    # ------------------------------------------------------------ Markdown

    @property
    def busy(self) -> bool:
        """Finished answers still wait to be rendered as Markdown."""
        return self._stack is not None and any(b.wants_markdown for b in self._stack.blocks)

    def _want_markdown(self) -> None:
        if self.busy:
            self._timer.resume()
            self._render_some()

    def _render_some(self) -> None:
        end = time.perf_counter() + BUDGET
        while self._stack is not None and time.perf_counter() < end:
            if self._rendering is None:
                block = self._next_to_render(self._stack)
                if block is None:
                    self._timer.pause()
                    return
                self._rendering = block.render_markdown(self._colours())
            place = self._stack.place_of(self.scroll_offset.y)
            try:
                next(self._rendering)
            except StopIteration:
                self._rendering = None
                self._stack.restack()
                self._rows_moved(place)

    def _next_to_render(self, stack: Stack) -> TurnBlock | None:
        """What is in sight first, then the newest."""
        top, bottom = self.scroll_offset.y, self.scroll_offset.y + self.size.height
        waiting = [
            (stack.tops[index] < bottom and stack.tops[index] + block.height > top, index)
            for index, block in enumerate(stack.blocks)
            if block.wants_markdown
        ]
        return stack.blocks[max(waiting)[1]] if waiting else None

    def _colours(self) -> Colours:
        style = self.get_component_rich_style("transcript--code")
        theme = self.app.current_theme
        return Colours(
            dark=theme.dark,
            accent=style.color.name if style.color else None,
            code_background=style.bgcolor.name if style.bgcolor and not theme.ansi else None,
        )

    def on_click(self, event: events.Click) -> None:
        """On the line that stands for thinking: fold or unfold it."""
        offset = event.get_content_offset(self)
        row = self._stack.row(self.scroll_offset.y + offset.y) if offset and self._stack else None
        if row is not None and row.section.kind == "thinking" and row.line == 0:
            self.fold_thinking = not self.fold_thinking

    # ------------------------------------------------------------ drawing

    def render_line(self, y: int) -> Strip:
        """One row."""
        stack = self._stack
        if stack is None or not stack.blocks:
            return self._hint_row(y)
        number = self.scroll_offset.y + y
        strip = self._strips.get(number)
        if strip is None:
            if len(self._strips) >= CACHE:
                self._strips.clear()
            strip = self._strips[number] = self._draw(stack, number)
        return strip

    def _draw(self, stack: Stack, number: int) -> Strip:
        width = self.size.width
        base = self._looks()
        row = stack.row(number)
        if row is None:
            return Strip.blank(width, base).apply_offsets(0, number)
        overlays = [*self._selected(number, row), *stack.overlays(row, self._current)]
        gutter = self._gutter(width)
        label = self._label(row.section, gutter) if row.first else ""
        segments = [Segment(label.ljust(gutter), self._looks("label"))]
        for text, look, over in row.section.flow.pieces(row.line, row.part, overlays):
            segments.append(Segment(text, self._looks(look, over)))
        strip = Strip(segments)
        return strip.adjust_cell_length(width, base).apply_offsets(0, number)

    @staticmethod
    def _label(section: Section, gutter: int) -> str:
        if gutter > 2:
            return "" if section.continues else _LABELS[section.kind]
        return ">" if section.kind == "question" else ""

    def _hint_row(self, y: int) -> Strip:
        """A quiet paragraph in the middle of an empty transcript."""
        look, text = hint(self._live, self.model, self.ascii)
        width = max(MIN_WIDTH, min(HINT_WIDTH, self.size.width - 4))
        flow = Flow(width, self.ascii)
        flow.feed(text, look)
        flow.finish(look)
        row = y - (self.size.height - flow.height) // 2
        segments: list[Segment] = []
        if 0 <= row < flow.height:
            margin = " " * ((self.size.width - width) // 2)
            pieces = flow.pieces(*flow.locate(row))
            segments = [Segment(margin + "".join(text for text, *_ in pieces), self._looks(look))]
        return Strip(segments).adjust_cell_length(self.size.width, self._looks())

    # ------------------------------------------------------------ selection

    def selection_updated(self, selection: Selection | None) -> None:
        """Drawn again."""
        self._redraw()

    def _selected(self, number: int, row: RowOf) -> list[Overlay]:
        selection = self.text_selection
        if selection is None or selection.get_span(number) is None:
            return []
        return [(*self._span(selection, number, row), "selection")]

    def _span(self, selection: Selection, number: int, row: RowOf) -> tuple[int, int]:
        """The selected stretch of a row's line. The gutter counts as columns, not as text."""
        span = selection.get_span(number)
        if span is None:
            return row.start, row.start
        gutter = self._gutter(self.size.width)
        start = min(row.start + max(0, span[0] - gutter), row.end)
        end = row.end if span[1] < 0 else min(row.start + max(0, span[1] - gutter), row.end)
        return start, end

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """What is selected, unwrapped, without rejected drafts."""
        if self._stack is None:
            return None
        first = selection.start.y if selection.start is not None else 0
        last = selection.end.y if selection.end is not None else self._stack.height
        text = self._stack.copy(first, last, lambda y, row: self._span(selection, y, row))
        return text, "\n"

    # ------------------------------------------------------------ search and export

    def search(self, text: str) -> int:
        """Mark every place of `text`, whatever its case; how many there are. "" ends it."""
        if self._stack is None:
            return 0
        self._stack.seek(text)
        self._found = self._current = None
        self._redraw()
        return len(self._matches())

    def next_match(self, step: int = 1) -> tuple[int, int]:
        """Scroll to the next match (-1: the one before); (its number from 1, how many), or 0, 0."""
        found = self._matches()
        if self._stack is None or not found:
            return 0, 0
        if self._current in found:
            index = (found.index(self._current) + step) % len(found)
        else:
            rows = [self._stack.row_of(place) for place in found]
            below = bisect_left(rows, self.scroll_offset.y)
            index = (below if step > 0 else below - 1) % len(found)
        self._current = found[index]
        row = self._stack.row_of(self._current)
        if not self.scroll_offset.y <= row < self.scroll_offset.y + self.size.height:
            self.go(row - self.size.height // 2)
        self._redraw()
        return index + 1, len(found)

    def _matches(self) -> list[Place]:
        if self._found is None:
            self._found = self._stack.matches() if self._stack else []
        return self._found

    def plain_text(self, thinking: bool = False) -> str:
        """The conversation as Markdown, without control characters."""
        return as_markdown(self._live.turns, thinking, self.ascii)

    def last_answer(self) -> str:
        """The latest answer, without control characters."""
        turns = self._live.turns
        return clean(turns[-1].text, self.ascii).strip("\n") if turns else ""
