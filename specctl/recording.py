"""Records to JSON lines and back. A recorded file replays into every screen and report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TextIO

from specctl.errors import SpecctlError
from specctl.events import Cycle, Interval, Record, Started, from_dict, to_dict

IN_THE_MIDDLE = "the recording begins in the middle of an answer: what was before is not in it"
_LOOK = 64  # records that tell of what kind a recording is


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


def head(path: Path) -> Started | None:
    """How a recording begins, a stand-in where it begins in the middle; None: it holds nothing.

    Raises:
        SpecctlError: as `read`, of the records that are looked at.
    """
    records = whole(list(islice(read(path), _LOOK)))
    first = records[0] if records else None
    return first if isinstance(first, Started) else None


def whole(records: Sequence[Record]) -> Sequence[Record]:
    """The records, with a `Started` before them where they begin in the middle of an answer. What
    cannot be known in it is empty or 0; the spec types are who drafted, and a note says so.
    """
    if not records or isinstance(records[0], Started):
        return records
    first = records[0]
    drafted = dict.fromkeys(one.source for one in records if isinstance(one, Cycle) and one.source)
    if isinstance(first, Interval):
        drafted = {first.source: None}
    started = Started(
        model="unknown model",
        draft_model=None,
        spec_types=tuple(name for name in drafted if name) or ("none",),
        k_max=0,
        prompt_tokens=first.n_past + 1 if isinstance(first, Cycle) else 0,
        n_ctx=0,
        threads=0,
        temperature=0.0,
        seed=0,
        unix_time=0.0,
        notes=(IN_THE_MIDDLE,),
    )
    return [started, *records]


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
