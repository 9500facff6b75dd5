"""Code that a model writes without fences, and what Markdown would make of it.

Markdown joins lines, drops their indentation and takes `__init__` for bold: nothing of that can be
run any more. What looks like code is fenced, other lines stay lines, and such names stay names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from markdown_it.token import Token

FENCE = "~~~~~~"
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_NESTED = re.compile(r"\s*([-*+>|#]|\d+[.)]\s)")  # lists, quotes, tables and headings
_DEFINES = re.compile(r"(async )?(def|class) \w|@\w[\w.]*(\(|$)")
_GOES_ON = re.compile(
    r"(else|elif|except|finally|return|import|from|if|for|while|with|try|print|assert|raise|case)\b"
    r"|[\w.\[\], ]+ [-+*/]?= \S|[\w.]+\(.*\)$|[)\]}]|#|//"
)
_NAME = re.compile(r"\w+")


def fenced(text: str) -> str:
    """The text with runs of lines that look like code between fences of their own.

    A run begins, outside of fences, with an unindented line that defines something, or that ends
    in `:`, `{` or `;` and is followed by an indented or another such line. It goes on over
    indented lines, lines of code's own words, and single blank lines between them.
    """
    if FENCE in text:
        return text
    lines = text.split("\n")
    out: list[str] = []
    at, fence = 0, ""
    while at < len(lines):
        mark = _FENCE.match(lines[at])
        if mark:
            sign = mark[1][:3]
            fence = "" if fence == sign else fence or sign
        end = at if fence or mark else _run(lines, at)
        if end > at:
            out += [FENCE, *lines[at:end], FENCE]
            at = end
        else:
            out.append(lines[at])
            at += 1
    return "\n".join(out)


def _run(lines: Sequence[str], at: int) -> int:
    """The line after the code that begins here; `at` where none begins."""
    if not _begins(lines, at):
        return at
    end = at + 1
    while end < len(lines):
        line = lines[end]
        blank = not line.strip()
        if blank and end + 1 < len(lines) and _inside(lines, end + 1, after_blank=True):
            end += 2
        elif not blank and _inside(lines, end):
            end += 1
        else:
            break
    return end


def _begins(lines: Sequence[str], at: int) -> bool:
    line = lines[at].rstrip()
    after = lines[at + 1] if at + 1 < len(lines) else ""
    if not line or line[0] == " " or _NESTED.match(line):
        return False
    if _DEFINES.match(line):
        return line.endswith((":", "{", "(", ",")) or line[0] == "@"
    if line.endswith(":"):
        return after.startswith("    ") and not _NESTED.match(after)
    if line.endswith(("{", ";")):
        return after.startswith((" ", "}")) or after.rstrip().endswith((";", "{"))
    return False


def _inside(lines: Sequence[str], at: int, after_blank: bool = False) -> bool:
    line = lines[at]
    if _FENCE.match(line):
        return False
    if line.startswith("  "):
        return not _NESTED.match(line) or line.lstrip().startswith(("#", "*", "-"))
    if after_blank:  # prose begins like that too
        return _begins(lines, at)
    return bool(_GOES_ON.match(line)) or line.rstrip().endswith((";", "{")) or _begins(lines, at)


def as_written(tokens: Sequence[Token]) -> None:
    """In place: single line breaks stay line breaks, and `__name__` keeps its underscores."""
    for token in tokens:
        children = token.children or []
        for at, child in enumerate(children):
            if child.type == "softbreak":
                child.type = "hardbreak"
            elif child.type == "strong_open" and child.markup == "__":
                _keep_name(children[at : at + 3])


def _keep_name(around: Sequence[Token]) -> None:
    """`around`: the opening token, what it makes bold, the closing one; a name is no emphasis."""
    if len(around) < 3 or around[2].type != "strong_close":
        return
    if around[1].type == "text" and _NAME.fullmatch(around[1].content):
        for token in (around[0], around[2]):
            token.type, token.tag, token.nesting, token.content = "text", "", 0, "__"
