"""Prometheus text, read and written: the one parser for every engine's series.

prometheus-client parses; what is kept of it here are sums over labels, checked to be counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from specctl.external.errors import JunkError

_MOST = float(1 << 53)  # the largest whole number that a Prometheus value can hold exactly
_FURTHEST = 256  # draft positions; more is no draft
_ODD = (ValueError, IndexError, KeyError, TypeError, AttributeError)  # the parser's, on junk

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples of one scrape: name → (labels, value)."""

    by_name: Mapping[str, tuple[tuple[Labels, float], ...]]

    def has(self, prefix: str) -> bool:
        """A series of this prefix is there."""
        return any(name.startswith(prefix) for name in self.by_name)

    def total(self, name: str) -> float | None:
        """The sum over all labels; None where there is no such series.

        Raises:
            JunkError: not a number, or negative.
        """
        found = self.by_name.get(name)
        return None if found is None else _checked(name, math.fsum(value for _, value in found))

    def count(self, name: str) -> int | None:
        """The same as a whole number."""
        total = self.total(name)
        return None if total is None else round(total)

    def most(self, name: str) -> float | None:
        """The largest over all labels: a gauge that every rank repeats."""
        found = self.by_name.get(name)
        return None if found is None else _checked(name, max(value for _, value in found))

    def label(self, name: str, label: str) -> str | None:
        """What a series that only informs says in a label; None where it is not there."""
        found = self.by_name.get(name)
        return found[0][0].get(label) if found else None

    def by_position(self, name: str, label: str = "position") -> tuple[int, ...]:
        """Sums by a label that counts from 0; what is missing in between is 0.

        Raises:
            JunkError: a position that is no small whole number.
        """
        sums: dict[int, float] = {}
        for labels, value in self.by_name.get(name, ()):
            text = labels.get(label, "")
            small = text.isascii() and text.isdecimal() and len(text) <= 9
            if not (small and int(text) < _FURTHEST):
                raise JunkError(f"{name}: {label} {text!r} is no draft position")
            sums[int(text)] = sums.get(int(text), 0.0) + value
        most = max(sums, default=-1)
        return tuple(round(_checked(name, sums.get(at, 0.0))) for at in range(most + 1))


def _checked(name: str, value: float) -> float:
    if not 0 <= value < _MOST:  # NaN is neither
        raise JunkError(f"{name} is {value:g}, which is no count")
    return value


def parse(text: str) -> Samples:
    """The samples of a page of Prometheus text.

    Raises:
        JunkError: it is something else.
    """
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, list[tuple[Labels, float]]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, float(sample.value)))
    except _ODD as error:
        raise JunkError(f"not Prometheus text ({str(error)[:80]})") from error
    return Samples({name: tuple(samples) for name, samples in found.items()})


@dataclass(frozen=True, slots=True)
class Series:
    """A series to write: `values` are (further labels, value)."""

    name: str
    kind: str  # counter or gauge
    about: str
    values: tuple[tuple[Labels, float], ...]


def render(series: Iterable[Series], labels: Labels) -> str:
    """The series as Prometheus text, each sample with `labels`."""
    lines: list[str] = []
    for one in series:
        lines.append(f"# HELP {one.name} {_escaped(one.about, quote=False)}")
        lines.append(f"# TYPE {one.name} {one.kind}")
        for more, value in one.values:
            pairs = ",".join(
                f'{key}="{_escaped(text)}"' for key, text in {**labels, **more}.items()
            )
            lines.append(f"{one.name}{{{pairs}}} {value!r}" if pairs else f"{one.name} {value!r}")
    return "\n".join(lines) + "\n"


def _escaped(text: str, quote: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text
