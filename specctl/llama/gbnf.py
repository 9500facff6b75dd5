"""Grammars as text: read before llama.cpp sees them, tried in a child process, made from a schema.

llama.cpp reports a broken grammar on stderr and gives NULL, but loops forever on `{3,1}`, overflows
its stack on deep nesting and may take hours over an unlucky one. So the text is looked at here, and
parsed once in a child that may die.
"""

from __future__ import annotations

import functools
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specctl.errors import GrammarError
from specctl.llama.api import library

MAX_BYTES = 1 << 20
MOST_COUNT = 10_000  # of what a schema repeats: the converter writes each one out
MAX_DEPTH = 200  # nested parentheses: the parser recurses
TIMEOUT = 10.0  # seconds for the child
_CHILD = Path(__file__).with_name("gbnf_child.py")
_ROOT = re.compile(r"^[ \t]*root[ \t\r\n]*::=", re.MULTILINE)
_COUNTED = {"minLength", "maxLength", "minItems", "maxItems"}
_BRACES = re.compile(r"\{[\d, ]*\}")
_SAID = re.compile(r"(?:error parsing grammar|unsupported grammar,|invalid grammar): *(.*)")
_HINT = "GBNF is described in llama.cpp's grammars/README.md"

# What of a text is not syntax: comments, literals, character classes; then named tokens, repetition
# counts, parentheses.
_PARTS = re.compile(
    r'#[^\n]*|"(?:\\.|[^"\\])*"?|\[(?:\\.|[^\]\\])*\]?'
    r"|(?P<token>!?<[^>\n]*>)"
    r"|\{\s*(?P<least>\d+)\s*,\s*(?P<most>\d+)\s*\}"
    r"|(?P<open>\()|(?P<close>\))",
    re.DOTALL,
)

# Keywords that the converter reads; the others it ignores, or they only describe.
_KNOWN = {
    "type", "format", "$ref", "oneOf", "anyOf", "allOf", "const", "enum", "properties", "required",
    "additionalProperties", "items", "prefixItems", "minItems", "maxItems", "pattern", "minLength",
    "maxLength", "$defs", "definitions",
    "$schema", "$id", "$comment", "title", "description", "default", "examples", "strict",
    "deprecated", "readOnly", "writeOnly",
}  # fmt: skip


def check(gbnf: str) -> None:
    """Refuse a text that is no grammar with a rule `root`.

    Raises:
        GrammarError: what is wrong, and where as far as it is known.
        EngineMissingError: llama-cpp-python is not installed.
    """
    if not gbnf.strip():
        raise GrammarError("the grammar is empty", _HINT)
    if "\0" in gbnf:
        raise GrammarError("the grammar has a NUL character in it")
    if len(gbnf.encode("utf-8", "replace")) > MAX_BYTES:
        raise GrammarError(f"the grammar is larger than {MAX_BYTES >> 20} MiB")
    _look(gbnf)
    if not _ROOT.search(gbnf):
        raise GrammarError("the grammar has no rule `root`", "start it with: root ::= …")
    said = _tried(gbnf)
    if said:
        raise GrammarError(f"this is no usable grammar: {said}", _HINT)


def names_tokens(gbnf: str) -> bool:
    """Does it speak of tokens (`<|im_end|>`, `<[42]>`), not only of characters?"""
    return any(match["token"] for match in _PARTS.finditer(gbnf))


def _look(gbnf: str) -> None:
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


def from_schema(text: str) -> tuple[str, tuple[str, ...]]:
    """A JSON schema as a grammar, and the keywords in it that a grammar here does not enforce.

    `{"type": "object"}` is any JSON object. The converter is llama-cpp-python's.

    Raises:
        GrammarError: no JSON, no schema, or something that the converter does not know.
    """
    try:
        schema: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the JSON schema is no JSON: {error}") from error
    if not isinstance(schema, dict):
        raise GrammarError(f"a JSON schema is an object, not {type(schema).__name__}")
    for what, count in _counts(schema):
        if count > MOST_COUNT:
            raise GrammarError(
                f"the JSON schema's {what} of {count} is above {MOST_COUNT}",
                "the grammar would be written out that often",
            )
    library()
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        gbnf = str(json_schema_to_gbnf(text))
    except RecursionError as error:
        raise GrammarError("the JSON schema nests too deep") from error
    except (AssertionError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise GrammarError(
            f"this JSON schema cannot be made a grammar: {str(error)[:200] or 'unknown form'}",
            "`$ref` must stay inside the schema; a pattern must be ^…$ without look-around",
        ) from error
    return gbnf, tuple(sorted(_ignored(schema)))


def _counts(schema: object) -> Iterator[tuple[str, int]]:
    """How often something is to be repeated: by a keyword, or all repetitions of one pattern."""
    if isinstance(schema, list):
        for part in schema:
            yield from _counts(part)
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in _COUNTED and isinstance(value, int):
            yield key, value
        elif key == "pattern" and isinstance(value, str):
            counts = [
                int(text[:12]) for text in re.findall(r"\d+", " ".join(_BRACES.findall(value)))
            ]
            yield "pattern repetition", math.prod(max(1, count) for count in counts)
        else:
            yield from _counts(value)


def _ignored(schema: object) -> set[str]:
    """Keywords of `schema` and its parts that say something and are not read."""
    if isinstance(schema, list):
        return set().union(*map(_ignored, schema))
    if not isinstance(schema, dict):
        return set()
    found = {str(key) for key in schema if key not in _KNOWN}
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions") and isinstance(value, dict):
            found |= set().union(*map(_ignored, value.values()))  # keys are names there
        elif key not in ("const", "enum", "default", "examples", "required"):
            found |= _ignored(value)
    return found
