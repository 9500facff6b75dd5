"""A finished answer's Markdown as rows of styled text, safe for a terminal.

Rendered by Rich in small stretches, so that a screen can do something else between them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from markdown_it.token import Token
from rich.color import ColorType
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.theme import Theme

from specctl.tui.widgets.barecode import as_written, fenced
from specctl.tui.widgets.flow import TAB, Look, clean

STRETCH = 1500  # characters after which a stretch may end
_FENCE = re.compile(r" {0,3}(```|~~~)")
_CONTINUES = re.compile(r"\s|[-*+>|]|\d+[.)]")  # may belong to a list, quote or table before it
_ORNAMENTS = {"•": "*", "▌": "|", "─": "-", "━": "=", "│": "|"}  # Rich's own

Row = list[tuple[str, Look]]


@dataclass(frozen=True, slots=True)
class Colours:
    """What the theme in force says. None: no colour of its own."""

    dark: bool
    accent: str | None = None
    code_background: str | None = None


class _LeftHeading(Heading):
    LEVEL_ALIGN: ClassVar = {f"h{level}": "left" for level in range(1, 7)}


class _CodeBlock(CodeBlock):
    """Without a margin, so that what is copied can be run."""

    background = "default"

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> CodeBlock:
        block = cls(token.info.partition(" ")[0] or "text", markdown.code_theme)
        if isinstance(markdown, _Markdown):
            block.background = markdown.background
        return block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Syntax(
            str(self.text).rstrip(),
            self.lexer_name,
            theme=self.theme,
            word_wrap=True,
            background_color=self.background,
        )


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
    }

    def __init__(self, text: str, colours: Colours) -> None:
        # No hyperlinks: an address that is not shown is not to be trusted.
        theme = "ansi_dark" if colours.dark else "ansi_light"
        super().__init__(text, code_theme=theme, hyperlinks=False)
        as_written(self.parsed)
        self.background = colours.code_background or "default"


def markdown_rows(
    text: str, width: int, colours: Colours, plain: bool = False
) -> Iterator[list[Row]]:
    """The rows of one stretch after the other, none wider than `width`."""
    console = _console(width, colours)
    encoding = "ascii" if plain else "utf-8"
    gap: list[Row] = []
    for stretch in stretches(fenced(clean(text, plain).expandtabs(TAB))):
        try:
            markdown = _Markdown(stretch, colours)
            options = console.options.update(width=width)
            options.encoding = encoding
            lines = console.render_lines(markdown, options, pad=False)
            rows = [_safe(line, plain) for line in lines]
        except Exception:  # whatever a model writes must not end the screen: its text as it is
            rows = [[(line, "")] for line in stretch.splitlines()]
        while rows and not _is_visible(rows[0]):
            del rows[0]
        while rows and not _is_visible(rows[-1]):
            del rows[-1]
        if rows:
            yield gap + rows
            gap = [[]]


def stretches(text: str) -> Iterator[str]:
    """The text cut at blank lines outside of fences, lists and tables."""
    lines: list[str] = []
    size, fence = 0, ""
    for line in text.split("\n"):
        starts_block = bool(line) and not _CONTINUES.match(line)
        if size > STRETCH and not fence and starts_block and not lines[-1].strip():
            yield "\n".join(lines)
            lines, size = [], 0
        mark = _FENCE.match(line)
        if mark:
            fence = "" if fence == mark[1] else fence or mark[1]
        lines.append(line)
        size += len(line) + 1
    yield "\n".join(lines)


def _console(width: int, colours: Colours) -> Console:
    code = Style(bold=True, color=colours.accent)
    head = Style(bold=True, color=colours.accent)
    theme = Theme(
        {
            "markdown.code": code,
            "markdown.h1": head + Style(underline=True),
            **{f"markdown.h{level}": head for level in range(2, 7)},
            "markdown.link_url": Style(underline=True),
            "markdown.link": Style(),
            "markdown.item.bullet": Style(bold=True),
            "markdown.item.number": Style(bold=True),
            "markdown.block_quote": Style(italic=True),
            "markdown.table.border": Style(dim=True),
            "markdown.table.header": Style(bold=True),
        }
    )
    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        color_system="truecolor",
        theme=theme,
        legacy_windows=False,
    )


def _safe(line: list[Segment], plain: bool) -> Row:
    """Cleaned once more: entities such as `&#8238;` have become characters by now."""
    row: Row = []
    for text, style, control in line:
        if control or not text:
            continue
        text = clean(text, plain).replace("\n", " ").expandtabs(TAB)
        if plain and text.strip() and all(c in _ORNAMENTS or c == " " for c in text):
            text = "".join(_ORNAMENTS.get(c, c) for c in text)
        row.append((text, _without_default_colours(style)))
    return row


def _without_default_colours(style: Style | None) -> Look:
    """`default` means the terminal's colours, not this screen's."""
    if style is None:
        return ""
    colour, background = style.color, style.bgcolor
    if colour is not None and colour.type == ColorType.DEFAULT:
        colour = None
    if background is not None and background.type == ColorType.DEFAULT:
        background = None
    if (colour, background) == (style.color, style.bgcolor):
        return style
    return Style(color=colour, bgcolor=background) + style.without_color


def _is_visible(row: Row) -> bool:
    return any(text.strip() for text, _ in row)
