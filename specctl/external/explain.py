"""Flags of a launch command, as typed: which are today's, and what the others are now."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from specctl.external.flags import ENGINES, KEYS, SOURCES, flag_of, look_up
from specctl.external.oldflags import OLD, OURS, Old, Verdict


@dataclass(frozen=True, slots=True)
class Reading:
    """One flag as one engine reads it. `source` names the text it was read in."""

    typed: str
    engine: str
    verdict: Verdict
    today: str
    why: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A flag, key or bare word of a line, and its value where one follows."""

    name: str
    value: str | None
    key: bool = False

    @property
    def typed(self) -> str:
        return self.name if self.value is None else f"{self.name} {self.value}"


def explain(words: Sequence[str]) -> tuple[Reading, ...]:
    """A launch command, or some flags of one. Raises no error: what nobody knows is unverified.

    Where the words name an engine its own reading is given, else that of every engine which
    knows the flag.
    """
    tokens = list(words)
    if len(tokens) == 1 and " " in tokens[0].strip():
        tokens = _split(tokens[0])
    engine = recognise(tokens)
    engines = [engine] if engine else list(ENGINES)
    found: list[Reading] = []
    for piece in _pieces(tokens):
        readings = [one for name in engines if (one := _read(name, piece))]
        if not readings and (piece.key or flag_of(piece.name)):
            where = ENGINES[engine].title if engine else "any engine"
            readings = [
                Reading(piece.typed, engine or "", "unverified", "", f"not in the table of {where}")
            ]
        found += readings
    return tuple(dict.fromkeys(found))


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line.replace("\\\n", " "))
    except ValueError:  # a quote that is not closed
        return line.split()


def recognise(tokens: Sequence[str]) -> str | None:
    """The engine that a command line starts."""
    for token in tokens:
        word = token.rpartition("/")[2]
        if word in ("llama-server", "llama-server.exe", "llama-cli"):
            return "llama-server"
        if word == "vllm" or token.startswith("vllm.entrypoints"):
            return "vllm"
        if word == "sglang" or token.startswith("sglang."):
            return "sglang"
        if word == "trtllm-serve":
            return "trtllm"
    return None


def _pieces(tokens: Sequence[str]) -> list[_Piece]:
    pieces: list[_Piece] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        flag = flag_of(token)
        at += 1
        if token == "-m" and at < len(tokens) and tokens[at].startswith(("sglang.", "vllm.")):
            continue  # python -m MODULE
        if token.endswith(":") and at < len(tokens) and flag_of(tokens[at]) is None:
            pieces.append(_Piece(token[:-1], tokens[at], key=True))
            at += 1
            continue
        if flag is None:
            pieces += _bare(token)
            continue
        value = token.partition("=")[2] if "=" in token else None
        if value is None and at < len(tokens) and flag_of(tokens[at]) is None:
            value, at = tokens[at], at + 1
        pieces.append(_Piece(flag, value))
        if flag in ("--speculative-config", "-sc") and value:
            pieces += _json_keys(value)
    return pieces


def _bare(token: str) -> list[_Piece]:
    """A line of a YAML file, an environment variable, or a word that is no flag."""
    match = re.fullmatch(r"([A-Za-z_][\w.]*?)\s*[:=]\s*(\S+)", token)
    if match:
        return [_Piece(match[1], match[2], key=True)]
    return [_Piece(token.rstrip(":"), None)]


def _json_keys(text: str) -> list[_Piece]:
    try:
        found = json.loads(text)
    except ValueError:
        return [_Piece("--speculative-config", "no JSON", key=True)]
    if not isinstance(found, dict):
        return []
    return [
        _Piece(str(key), json.dumps(value).strip('"'), key=True) for key, value in found.items()
    ]


def _read(engine: str, piece: _Piece) -> Reading | None:
    entry = _entry(engine, piece)
    if entry is not None:
        value = piece.value if piece.value is not None else "N"
        today = entry.today.replace("{}", value)
        return Reading(piece.typed, engine, entry.verdict, today, entry.why)
    known = None
    if piece.key:
        known = KEYS.get(engine, {}).get(piece.name)
    elif flag_of(piece.name):
        known = look_up(engine, piece.name)
    if known is None or known.grade == "unverified":
        return None
    return Reading(piece.typed, engine, "valid", "", "", SOURCES[known.source])


def _entry(engine: str, piece: _Piece) -> Old | None:
    """The most telling entry: flag with value, then the flag."""
    exact = [f"{piece.name}={piece.value}", piece.name]
    if piece.name == "--spec-type" and piece.value:  # a comma list
        exact = [f"--spec-type={one}" for one in piece.value.split(",")]
    for name in exact:
        for old in OLD:
            if old.engine == engine and old.name == name:
                return old
    return None


def hints(argv: Sequence[str]) -> tuple[str, ...]:
    """For a specctl command line that was refused: specctl's form of other engines' flags."""
    found = []
    for piece in _pieces(list(argv)):
        ours = OURS.get(piece.name)
        if piece.name == "-md":
            ours = "--draft {}"
        if ours is not None:
            found.append(f"{piece.name} is {ours.replace('{}', piece.value or 'N')} in specctl")
    return tuple(dict.fromkeys(found))
