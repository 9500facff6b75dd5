"""Bandwidth measured on this machine, remembered in `data_dir()/machine.json` with its date.

    {"schema": 1, "bandwidth": {"host": {"bytes_per_second": …, "how": …, "date": …, "of": …}}}

The key is `host`, or a device's UUID or PCI address; `of` is the CPU's or device's name, so that a
figure does not survive a change of the hardware.
"""

from __future__ import annotations

import datetime
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specctl.errors import SpecctlError
from specctl.hardware.device import Device
from specctl.paths import data_dir

SCHEMA = 1
HOST = "host"


@dataclass(frozen=True, slots=True)
class Measured:
    """One remembered figure: bytes per second, how it was measured, ISO date, of what."""

    bytes_per_second: float
    how: str
    date: str
    of: str


def key_of(device: Device) -> str:
    """Under which a device's bandwidth is remembered."""
    return device.uuid or device.pci or device.name


def _file() -> Path:
    return data_dir() / "machine.json"


def _load(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    good = isinstance(said, dict) and said.get("schema") == SCHEMA
    table = said.get("bandwidth") if good else None
    return table if isinstance(table, dict) else {}


def recall(key: str, of: str) -> Measured | None:
    """What was measured of this very thing, or None: never, damaged, or of other hardware."""
    entry: Any = _load(_file()).get(key)
    try:
        found = Measured(
            float(entry["bytes_per_second"]),
            str(entry["how"]),
            str(entry["date"]),
            str(entry["of"]),
        )
    except (TypeError, KeyError, ValueError):
        return None
    return found if found.of == of and 0 < found.bytes_per_second < 1e15 else None


def remember(key: str, of: str, bytes_per_second: float, how: str) -> Measured:
    """Keep a figure; other entries stay. The file is replaced whole, never half written.

    Raises:
        SpecctlError: the data folder cannot be written.
    """
    today = datetime.date.today().isoformat()
    path, found = _file(), Measured(bytes_per_second, how, today, of)
    table = _load(path)
    table[key] = {"bytes_per_second": bytes_per_second, "how": how, "date": today, "of": of}
    text = json.dumps({"schema": SCHEMA, "bandwidth": table}, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise SpecctlError(
            f"cannot remember the measurement in {path}: {error.strerror}",
            "SPECCTL_HOME moves specctl's folders",
        ) from error
    return found
