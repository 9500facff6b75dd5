"""Records to JSON lines and back. A recorded file replays into every screen and report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from specctl.errors import SpecctlError
from specctl.events import Record, from_dict, to_dict


def write_line(record: Record, out: TextIO) -> None:
    """One record as one line of JSON."""
    out.write(json.dumps(to_dict(record), ensure_ascii=True) + "\n")


def appending(path: Path) -> TextIO:
    """A file that records go to the end of. Raises SpecctlError: it cannot be written."""
    try:
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise SpecctlError(f"cannot write {path}: {error.strerror}") from error


def tee(records: Iterable[Record], out: TextIO | None) -> Iterator[Record]:
    """Pass records on, writing each to `out` first (flushed, so a killed run keeps its lines)."""
    for record in records:
        if out is not None:
            write_line(record, out)
            out.flush()
        yield record


def read(path: Path) -> Iterator[Record]:
    """The records of a file.

    Raises:
        SpecctlError: not readable, or a line that is no record; names the line.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _parse(line, path, number)
    except OSError as error:
        raise SpecctlError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SpecctlError(f"{path} is not a text file", "records are lines of JSON") from error


def _parse(line: str, path: Path, number: int) -> Record:
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise SpecctlError(f"{path}, line {number}: not JSON ({error.msg})") from error
    except (ValueError, RecursionError) as error:  # endless digits, endless brackets
        raise SpecctlError(f"{path}, line {number}: not a record") from error
    if not isinstance(data, dict):
        raise SpecctlError(f"{path}, line {number}: not a record")
    try:
        return from_dict(data)
    except SpecctlError as error:
        raise SpecctlError(f"{path}, line {number}: {error.message}", error.hint) from error
