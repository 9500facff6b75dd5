"""The names of a split model's parts."""

from __future__ import annotations

import re
from pathlib import Path

from specctl.errors import UsageError

_SPLIT = re.compile(r"(?P<stem>.*)-(?P<index>\d{5})-of-(?P<total>\d{5})\.gguf")


def split_parts(file: str) -> tuple[str, ...]:
    """The names of all parts of a split model, whichever one is named; one name if not split.

    Raises:
        UsageError: a part number beyond the total.
    """
    match = _SPLIT.fullmatch(file)
    if match is None:
        return (file,)
    index, total = int(match["index"]), int(match["total"])
    if not 1 <= index <= total:
        raise UsageError(f"{file!r} is part {index} of {total}", "parts count from 1 to the total")
    return tuple(
        f"{match['stem']}-{number:05d}-of-{total:05d}.gguf" for number in range(1, total + 1)
    )


def part_paths(path: Path) -> tuple[Path, ...]:
    """The same of a file of this machine: all parts lie beside each other. Raises UsageError."""
    return tuple(path.with_name(name) for name in split_parts(path.name))
