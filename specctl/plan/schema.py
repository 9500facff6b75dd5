"""Typed access to a profile's TOML: a wrong key or type names file, line and key.

tomllib gives values without positions, so the line is found by scanning the text for the table
header and the key; profiles keep one inline table a line, which makes that exact.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, cast

from specctl.errors import ProfileError

Span = tuple[float, float]  # low, high; both the same for a single number
Place = tuple[str | int, ...]  # ("model", 2, "files", 0, "list", 3)


class Table:
    """One TOML table: each getter checks a type and marks the key as known."""

    def __init__(self, data: Mapping[str, object], place: Place, text: str, source: str) -> None:
        self._data, self._place, self._text, self._source = data, place, text, source
        self._known: set[str] = set()

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raise the ProfileError for `key` of this table."""
        line = find_line(self._text, (*self._place, key))
        raise ProfileError(
            f"{self._source}, line {line}: {describe((*self._place, key))} {problem}"
        )

    def _value(self, key: str, required: bool) -> object:
        self._known.add(key)
        if key not in self._data:
            if required:
                self._missing(key)
            return None
        return self._data[key]

    def _missing(self, key: str) -> NoReturn:
        unknown = [name for name in self._data if name not in self._known]
        near = difflib.get_close_matches(key, unknown, 1, 0.8)
        if near:
            self.fail(near[0], f'is not a key here; did you mean "{key}"?')
        self.fail(key, "is missing")

    def _typed(self, key: str, kind: type, name: str, required: bool) -> object:
        value = self._value(key, required)
        if value is not None and (
            not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
        ):
            self.fail(key, f"must be {name}, not {value!r}")
        return value

    def text(self, key: str) -> str:
        """A required, non-empty string."""
        value = cast("str", self._typed(key, str, "text", True))
        return value if value else self.fail(key, "is empty")

    def maybe_text(self, key: str) -> str | None:
        """An optional string."""
        return cast("str | None", self._typed(key, str, "text", False))

    def one_of(self, key: str, allowed: Sequence[str]) -> str:
        """A required string out of a fixed set."""
        value = self.text(key)
        return (
            value
            if value in allowed
            else self.fail(key, f"must be one of {', '.join(allowed)}, not {value!r}")
        )

    def texts(self, key: str) -> tuple[str, ...]:
        """An optional list of strings; a single string counts as a list of one."""
        value = self._value(key, False)
        items = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(item, str) for item in items):
            self.fail(key, f"must be a list of texts, not {value!r}")
        return tuple(cast("list[str]", items))

    def integer(self, key: str, default: int | None = None, least: int = 0) -> int:
        """A whole number of at least `least`; required without a default."""
        value = self.maybe_integer(key, least)
        if value is not None:
            return value
        return self._missing(key) if default is None else default

    def maybe_integer(self, key: str, least: int = 0) -> int | None:
        """An optional whole number of at least `least`."""
        value = cast("int | None", self._typed(key, int, "a whole number", False))
        if value is not None and value < least:
            self.fail(key, f"must be at least {least}, not {value}")
        return value

    def number(self, key: str) -> float:
        """A required number above 0."""
        value = self.maybe_number(key)
        return self._missing(key) if value is None else value or self.fail(key, "must not be 0")

    def maybe_number(self, key: str) -> float | None:
        """An optional number of at least 0."""
        value = self._value(key, False)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            self.fail(key, f"must be a number of at least 0, not {value!r}")
        return float(value)

    def span(self, key: str) -> Span | None:
        """An optional number, or two as `[low, high]`."""
        value = self._value(key, False)
        if value is None:
            return None
        pair = value if isinstance(value, list) else [value, value]
        numbers = [float(x) for x in pair if isinstance(x, int | float) and not isinstance(x, bool)]
        if len(numbers) != 2 or len(pair) != 2 or not 0 <= numbers[0] <= numbers[1]:
            self.fail(key, f"must be a number or [low, high], not {value!r}")
        return numbers[0], numbers[1]

    def flag(self, key: str) -> bool:
        """An optional true or false; false when absent."""
        return bool(self._typed(key, bool, "true or false", False))

    def table(self, key: str) -> Table | None:
        """An optional sub-table."""
        value = self._typed(key, dict, "a table", False)
        if value is None:
            return None
        return Table(
            cast("dict[str, object]", value), (*self._place, key), self._text, self._source
        )

    def tables(self, key: str) -> tuple[Table, ...]:
        """An optional list of tables."""
        value = cast("list[object]", self._typed(key, list, "a list of tables", False) or [])
        if not all(isinstance(item, dict) for item in value):
            self.fail(key, "must be a list of tables")
        return tuple(
            Table(cast("dict[str, object]", item), (*self._place, key, i), self._text, self._source)
            for i, item in enumerate(value)
        )

    def done(self) -> None:
        """Raise for any key that no getter asked for: a typing mistake would else be silent."""
        for key in self._data:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, 1)
                hint = (
                    f'; did you mean "{near[0]}"?'
                    if near
                    else f"; known: {', '.join(sorted(self._known))}"
                )
                self.fail(key, "is not a key here" + hint)


def parse(text: str, source: str) -> Table:
    """The root table of a profile's text. Raises ProfileError on text that is not TOML."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{source}: not valid TOML: {error}") from error
    return Table(data, (), text, source)


def read(path: Path) -> Table:
    """The root table of a profile file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: cannot be read: {error}") from error
    return parse(text, str(path))


def describe(place: Place) -> str:
    """`("model", 2, "files", 0, "repo")` → `model[3].files[1].repo`, counted from 1."""
    out = ""
    for part in place:
        out += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if out else part
    return out


def find_line(text: str, place: Place) -> int:
    """The line (from 1) of a key; of its table's header where the key is absent; else 1."""
    lines = text.splitlines()
    start, names = 0, [part for part in place if isinstance(part, str)]
    header: list[str] = []
    for depth, part in enumerate(place):
        if not isinstance(part, str):
            continue
        header.append(part)
        index = place[depth + 1] if depth + 1 < len(place) else None
        found = _find_header(lines, start, ".".join(header), index if isinstance(index, int) else 0)
        if found is None:
            header.pop()
            return _find_key(lines, start, names[len(header) :], place)
        start = found
    return start + 1


def _find_header(lines: list[str], start: int, name: str, index: int) -> int | None:
    """The line of the index-th `[name]` or `[[name]]` from `start` on, within the same parent."""
    parent = name.rpartition(".")[0]
    seen = -1
    for number in range(start, len(lines)):
        match = re.match(r"\s*\[\[?\s*([\w.-]+)\s*\]\]?", lines[number])
        if match is None:
            continue
        if match[1] == name:
            seen += 1
            if seen == index:
                return number
        elif parent and match[1] == parent and number > start:
            return None
    return None


def _find_key(lines: list[str], start: int, keys: list[str], place: Place) -> int:
    """The line of `keys[0]` after `start`; for an inline table in a list, the line of its entry."""
    if not keys:
        return start + 1
    for number in range(start, len(lines)):
        if number > start and re.match(r"\s*\[\[?\s*[\w.-]+\s*\]\]?\s*(#.*)?$", lines[number]):
            break
        if re.match(rf"\s*\"?{re.escape(keys[0])}\"?\s*=", lines[number]):
            entry = place[-2] if len(keys) > 1 else None
            if not isinstance(entry, int):
                return number + 1
            opened = [n for n in range(number, len(lines)) if re.match(r".*\{", lines[n])]
            return opened[entry] + 1 if entry < len(opened) else number + 1
    return start + 1
