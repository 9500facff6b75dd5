"""The little YAML that a configuration needs: nested mappings of scalars."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

Scalar = bool | int | str
Tree = Mapping[str | int, "Scalar | Tree"]

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def emit(tree: Tree, depth: int = 0) -> str:
    """The text, a line a value, two spaces a level. A JSON string is a YAML string too."""
    lines = []
    for key, value in tree.items():
        head = "  " * depth + _scalar(key) + ":"
        if isinstance(value, Mapping):
            lines.append(f"{head}\n{emit(value, depth + 1)}" if value else f"{head} {{}}\n")
        else:
            lines.append(f"{head} {_scalar(value)}\n")
    return "".join(lines)


def _scalar(value: Scalar) -> str:
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)
