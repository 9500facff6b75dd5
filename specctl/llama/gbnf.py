"""Grammars as text: read before llama.cpp sees them, then tried in a child process.

llama.cpp reports a broken grammar on stderr and gives NULL, but loops forever on `{3,1}`, overflows
its stack on deep nesting and may take hours over an unlucky one. So the text is looked at here, and
parsed once in a child that may die.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from specctl.errors import GrammarError
from specctl.llama.api import library

MAX_BYTES = 1 << 20
MOST_ALTERNATIVES = 20_000  # where so many are open at once, a token takes seconds
MANY_ALTERNATIVES = 1_000
MAX_DEPTH = 200  # nested parentheses: the parser recurses
TIMEOUT = 10.0  # seconds for the child
_CHILD = Path(__file__).with_name("gbnf_child.py")
_ROOT = re.compile(r"^[ \t]*root[ \t\r\n]*::=", re.MULTILINE)
_BEGUN = re.compile(r"^[ \t]*root\b", re.MULTILINE)
_SAID = re.compile(r"(?:error parsing grammar|unsupported grammar,|invalid grammar): *(.*)")
_HINT = "GBNF is described in llama.cpp's grammars/README.md"

# What of a text is not syntax: comments, literals, character classes; then named tokens, repetition
# counts, parentheses, alternatives.
_PARTS = re.compile(
    r'#[^\n]*|"(?:\\.|[^"\\])*"?|\[(?:\\.|[^\]\\])*\]?'
    r"|(?P<token>!?<[^>\n]*>)"
    r"|\{\s*(?P<least>\d+)\s*,\s*(?P<most>\d+)\s*\}"
    r"|(?P<open>\()|(?P<close>\))|(?P<bar>\|)",
    re.DOTALL,
)


def check(gbnf: str) -> None:
    """Refuse a text that is no grammar with a rule `root`.

    Raises:
        GrammarError: what is wrong, and where as far as it is known.
        EngineMissingError: llama-cpp-python is not installed.
    """
    if not gbnf.strip():
        raise GrammarError("the grammar is empty", _HINT)
    if re.search(r"[\ud800-\udfff]", gbnf):
        raise GrammarError("the grammar has half of a surrogate pair in it, which is no character")
    if "\0" in gbnf:
        raise GrammarError("the grammar has a NUL character in it")
    if len(gbnf.encode("utf-8", "replace")) > MAX_BYTES:
        raise GrammarError(f"the grammar is larger than {MAX_BYTES >> 20} MiB")
    _look(gbnf)
    if not _ROOT.search(gbnf):
        begun = _BEGUN.search(gbnf)
        if begun:
            line = gbnf.count("\n", 0, begun.start()) + 1
            raise GrammarError(f"line {line}: after `root` comes ::=", _HINT)
        raise GrammarError("the grammar has no rule `root`", "start it with: root ::= …")
    said = _tried(gbnf)
    if said:
        raise GrammarError(f"this is no usable grammar: {said}", _HINT)


def names_tokens(gbnf: str) -> bool:
    """Does it speak of tokens (`<|im_end|>`, `<[42]>`), not only of characters?"""
    return any(match["token"] for match in _PARTS.finditer(gbnf))


def named_tokens(gbnf: str) -> tuple[str, ...]:
    """The tokens that it names by their text, as `<|im_end|>`."""
    found = (match["token"].lstrip("!") for match in _PARTS.finditer(gbnf) if match["token"])
    return tuple(dict.fromkeys(one for one in found if not one.startswith("<[")))


def slow(gbnf: str) -> str:
    """A word where the text may make single tokens slow; "" where nothing speaks for it."""
    count = _alternatives(gbnf)
    if count < MANY_ALTERNATIVES:
        return ""
    return f"the grammar has {count} alternatives: a token may take long where many are open"


def _alternatives(gbnf: str) -> int:
    return sum(match["bar"] is not None for match in _PARTS.finditer(gbnf))


def _look(gbnf: str) -> None:
    count = _alternatives(gbnf)
    if count > MOST_ALTERNATIVES:
        raise GrammarError(
            f"the grammar has {count} alternatives, more than {MOST_ALTERNATIVES}",
            "every token is compared with all that are open: write fewer, or character classes",
        )
    depth = 0
    for match in _PARTS.finditer(gbnf):
        if match["most"] and int(match["most"]) < int(match["least"]):
            raise GrammarError(
                f"line {_line(gbnf, match)}: {match[0]} asks for at least {match['least']} and "
                f"at most {match['most']}",
                "write the smaller number first",
            )
        depth += bool(match["open"]) - bool(match["close"])
        if depth > MAX_DEPTH:
            raise GrammarError(
                f"line {_line(gbnf, match)}: parentheses nest deeper than {MAX_DEPTH}",
                "give the inner parts names of their own, or limit repeated items less",
            )


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1


@functools.lru_cache(maxsize=64)
def _tried(gbnf: str) -> str:
    """What llama.cpp's parser says against it, "" for nothing, from a child process.

    The child has no vocabulary: tokens by name become tokens by number for it.
    """

    def numbered(match: re.Match[str]) -> str:
        token = match["token"]
        if not token or token.lstrip("!").startswith("<["):
            return match[0]
        return "!<[0]>" if token.startswith("!") else "<[0]>"

    command = [sys.executable, "-I", str(_CHILD), library()._lib._name]
    text = _PARTS.sub(numbered, gbnf).encode("utf-8", "replace")
    try:
        child = subprocess.run(
            command, input=text, capture_output=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return f"llama.cpp had not read it after {TIMEOUT:g} s"
    if child.returncode == 0:
        return ""
    lines = child.stderr.decode("utf-8", "replace").splitlines()
    return next(_reasons(lines, gbnf), "llama.cpp's parser failed on it")


def _reasons(lines: list[str], gbnf: str) -> Iterator[str]:
    for line in lines:
        if "left recursion" in line:
            yield "a rule starts with itself (left recursion)"
        if "does not contain a 'root'" in line:
            yield "it has no rule `root`"
        match = _SAID.search(line)
        if match:
            yield _placed(match[1].strip(), gbnf)


def _placed(said: str, gbnf: str) -> str:
    """`expecting ::= at …the rest` → with the line where that rest begins."""
    what, at, rest = f"{said} ".partition(" at ")
    if not at:
        return said[:200]
    rest = rest.rstrip()
    if not rest:
        return f"{what} at the end of a line, or of the text"
    place = gbnf.find(rest)
    where = f"line {gbnf.count(chr(10), 0, place) + 1}: " if place >= 0 else ""
    return f"{where}{what} at {rest[:40]!r}"
