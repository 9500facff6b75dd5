"""Defaults for flags from the user's `config.toml`: a table for each command, keys as flags.

    [chat]
    model = "demo-f16"
    temperature = 0.2

    [bench]
    spec-type = ["auto", "ngram-mod"]

The command line beats the file, the file beats what is built in. What flags a command has, and of
what type, is read from its function: nothing here knows a flag.
"""

from __future__ import annotations

import difflib
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from typer.models import OptionInfo

from specctl.errors import UsageError
from specctl.paths import expanded

_NAMES: dict[type, str] = {
    str: "a text",
    Path: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the file says for one command: `values` by parameter name, `flags` as it is written."""

    values: Mapping[str, object] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    file: Path | None = None

    def __str__(self) -> str:
        return f"defaults from {self.file}: {', '.join(self.flags)}"


@dataclass(frozen=True, slots=True)
class Flag:
    """One option: its parameter, the type of a value, and whether it may be given several times."""

    parameter: str
    kind: type
    repeatable: bool


def read(
    file: Path, command: str, function: Callable[..., Any], commands: Iterable[str]
) -> Defaults:
    """The defaults of one command; none where the file is missing.

    Raises:
        UsageError: unreadable, not TOML, an unknown table or key, or a value of another type.
    """
    tables = _tables(file, tuple(commands))
    given = tables.get(command, {})
    if not given:
        return Defaults()
    known = flags_of(function)
    values: dict[str, object] = {}
    for key, value in given.items():
        where = f"{file}, [{command}] {key}"
        flag = known.get(key)
        if flag is None:
            raise UsageError(
                f"{file}: [{command}] has no {key!r}{_near(key, known)}",
                f"keys are the long flags of `specctl {command}` without the dashes",
            )
        if flag.parameter in values:
            raise UsageError(f"{where}: the same flag stands there under another name")
        values[flag.parameter] = _value(flag, value, where)
    return Defaults(values, tuple(given), file)


def _tables(file: Path, commands: tuple[str, ...]) -> dict[str, dict[str, object]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):  # HOME=/dev/null: there can be none
        return {}
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text") from error
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of 5000 digits
        raise UsageError(f"{file} is not TOML: {error}") from error
    for name, table in data.items():
        if name not in commands:
            hint = "a table for each command: " + ", ".join(f"[{one}]" for one in commands)
            raise UsageError(f"{file}: {name!r} is not a command{_near(name, commands)}", hint)
        if not isinstance(table, dict):
            raise UsageError(f"{file}: {name!r} is a value, not a table", f"write [{name}]")
    return data


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def flags_of(function: Callable[..., Any]) -> dict[str, Flag]:
    """The options of a command by their long names (`top-k`), aliases included."""
    flags: dict[str, Flag] = {}
    for parameter, hint in typing.get_type_hints(function, include_extras=True).items():
        for option in getattr(hint, "__metadata__", ()):
            if isinstance(option, OptionInfo):
                kind, repeatable = _kind(hint.__origin__)
                for name in _long_names(option):
                    flags[name] = Flag(parameter, kind, repeatable)
    return flags


def _long_names(option: OptionInfo) -> list[str]:
    """Inside Annotated, typer keeps the first name where it keeps a default elsewhere."""
    names = (option.default, *(option.param_decls or ()))
    return [name[2:] for name in names if isinstance(name, str) and name.startswith("--")]


def _kind(hint: Any) -> tuple[type, bool]:
    """The type of one value, and whether there may be several: `list[str] | None` → str, True."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        (hint,) = (one for one in typing.get_args(hint) if one is not type(None))
    if typing.get_origin(hint) is list:
        return typing.get_args(hint)[0], True
    return hint, False


def _value(flag: Flag, value: object, where: str) -> object:
    if not flag.repeatable:
        return _one(flag.kind, value, where)
    return [_one(flag.kind, one, where) for one in (value if isinstance(value, list) else [value])]


def _one(kind: type, value: object, where: str) -> object:
    fits = isinstance(value, str if kind is Path else kind)
    if kind is float:
        fits = isinstance(value, int | float)
    if not fits or (isinstance(value, bool) and kind is not bool):
        shown = f'"{value}"' if isinstance(value, str) else repr(value)
        raise UsageError(f"{where} = {shown:.60}: that is not {_NAMES[kind]}")
    return str(expanded(str(value))) if kind is Path else value
