"""A kept result (`bench --json`, or the data folder), read back and checked key by key.

What is said about finished runs (comparison, page) starts from here, never from the raw JSON: a
damaged file is told by the place of its damage.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, get_args

from specctl import paths
from specctl.bench.report import IdentityCount, PromptSpeed, Speed, Undrafted, Verdict
from specctl.bench.results import BUSY, SCHEMA
from specctl.bench.run import PLAIN
from specctl.errors import UsageError
from specctl.units import format_bytes, printable

MAX_BYTES = 256 * 1024 * 1024  # of a file; 41 prompts × 10 arms × 10 repeats are some 4 MB
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model by its file name and size in bytes."""

    file: str
    size: int

    def __str__(self) -> str:
        return f"{self.file} ({format_bytes(self.size, 2)})"


@dataclass(frozen=True, slots=True)
class StoredRow:
    """One arm on one workload, or on all (`workload` None); see `report.Row` and `metrics`."""

    workload: str | None
    arm: str
    prompts: int
    speed: Speed
    acceptance_rate: float | None
    accepted_per_cycle: float | None
    tokens_per_pass: float | None
    acceptance_by_position: tuple[float, ...]
    coverage: float | None
    draft_share: float | None
    verify_share: float | None
    break_even: float | None
    plain_ttft: float
    ttft: float
    identity: IdentityCount


@dataclass(frozen=True, slots=True)
class Stored:
    """One finished benchmark. Mappings are as the document holds them, keys in its order."""

    specctl: str
    engine: str
    date: str
    wall_seconds: float
    machine: Mapping[str, object]
    threads: int
    model: ModelFile
    draft: ModelFile | None
    settings: Mapping[str, object]
    sampling: Mapping[str, object]
    interrupted: bool
    max_tokens: int
    repeats: int
    arms: Mapping[str, Mapping[str, object]]  # name → its SpecSettings; plain first
    prompts: Mapping[str, tuple[int, str]]  # key → (tokens, their hash)
    plain_texts: Mapping[str, str]  # prompt → hash of plain's answer, first repeat
    drafted_at: Mapping[str, tuple[int, ...]]  # arm → [i]: cycles that drafted more than i tokens
    rows: tuple[StoredRow, ...]  # by workload, then the totals
    prompt_speeds: tuple[PromptSpeed, ...]
    undrafted: tuple[Undrafted, ...]
    failures: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def compared(self) -> tuple[str, ...]:
        """The arms without plain, in the asked order."""
        return tuple(name for name in self.arms if name != PLAIN)

    @property
    def totals(self) -> tuple[StoredRow, ...]:
        """Each arm on all prompts."""
        return tuple(row for row in self.rows if row.workload is None)

    @property
    def shown(self) -> tuple[StoredRow, ...]:
        """What a table shows: all rows, or the totals alone where there is but one workload."""
        several = len({row.workload for row in self.rows}) > 2
        return self.rows if several else self.totals

    def never_drafted(self, row: StoredRow) -> bool:
        """Is this a drafting arm none of whose cycles had a draft?"""
        return any((u.workload, u.arm) == (row.workload, row.arm) for u in self.undrafted)

    @property
    def busy(self) -> float | None:
        """The load average of other programs, before or after, where it was high; else None."""
        before, after, cores = (
            self.machine.get(name) for name in ("load_before", "load_after", "logical_cores")
        )
        loads = [load for load in (before,) if isinstance(load, int | float)]
        loads += [load - self.threads for load in (after,) if isinstance(load, int | float)]
        most = BUSY * (cores if isinstance(cores, int) else 1)
        return max(loads) if loads and max(loads) > most else None


def load(name: str) -> Stored:
    """A result by path, or by the name under which the data folder keeps it.

    Raises:
        UsageError: no such file, unreadable, or no (whole) result; names the place.
    """
    return parse(read_json(find(name)), name)


def find(name: str) -> Path:
    """The file of this name, here or in the data folder.

    Raises:
        UsageError: there is none.
    """
    path = paths.expanded(name)
    kept = paths.data_dir() / "bench"
    for one in (path, kept / name, kept / f"{name}.json"):
        if one.is_file():
            return one
    if path.exists():
        raise UsageError(f"{name} is not a file", "a result that `specctl bench --json` wrote")
    raise UsageError(f"no result {name}, neither here nor in {kept}")


def read_json(path: Path) -> object:
    """What the file holds.

    Raises:
        UsageError: unreadable, or not JSON.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path} is larger than {format_bytes(MAX_BYTES, 0)}: no result")
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a result: {error or 'nested too deep'}") from error


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def parse(document: object, name: str = "result") -> Stored:
    """The checked form of `results.document(outcome)`; `name` is what errors call it.

    Raises:
        UsageError: another kind or schema, or a damaged one; names the key.
    """
    if not isinstance(document, dict) or not str(document.get("schema")).startswith("specctl-"):
        raise UsageError(f"{name} is not a result of specctl bench", "it has no such schema")
    if document["schema"] != SCHEMA:
        raise UsageError(f"{name} has the schema {document['schema']!r}; this reads {SCHEMA!r}")
    top = _Node(document, name)
    report = top["report"]
    return Stored(
        specctl=top["specctl"].text(),
        engine=top["engine"].text(),
        date=top["date"].text(),
        wall_seconds=top["wall_seconds"].number(),
        machine=_plain(top["machine"]),
        threads=top["machine"]["threads"].count(),
        model=_model(top["model"]),
        draft=top["draft"].maybe(_model),
        settings=_plain(top["settings"]),
        sampling=_plain(top["sampling"]),
        interrupted=top["interrupted"].flag(),
        max_tokens=top["max_tokens"].count(),
        repeats=top["repeats"].count(),
        arms={one["name"].text(): _plain(one["spec"]) for one in top["arms"].items()},
        prompts={
            one["prompt"].text(): (one["tokens"].count(), one["tokens_hash"].text())
            for one in top["prompts"].items()
        },
        plain_texts={
            run["prompt"].text(): run["tokens_hash"].text()
            for run in top["runs"].items()
            if run["arm"].text() == PLAIN and run["repeat"].count() == 0
        },
        drafted_at=_drafted_at(top["runs"]),
        rows=tuple(_row(one) for one in report["rows"].items()),
        prompt_speeds=tuple(
            PromptSpeed(one["prompt"].text(), one["arm"].text(), _speed(one))
            for one in report["prompts"].items()
        ),
        undrafted=tuple(_undrafted(one) for one in report["undrafted"].items()),
        failures=tuple(one.text() for one in report["failures"].items()),
        notes=tuple(one.text() for one in report["notes"].items()),
    )


@dataclass(frozen=True, slots=True)
class _Node:
    """A value that knows its place. Every reader raises UsageError for what is not there."""

    value: object
    where: str

    def __getitem__(self, key: str) -> _Node:
        if not isinstance(self.value, dict) or key not in self.value:
            raise UsageError(f"{self.where} is damaged: no {key!r}")
        return _Node(self.value[key], f"{self.where}, {key}")

    def _not(self, what: str) -> UsageError:
        return UsageError(f"{self.where} is damaged: {self.value!r:.60} is not {what}")

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self._not("a text")
        return printable(self.value)

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self._not("true or false")
        return self.value

    def count(self) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int) or self.value < 0:
            raise self._not("a count")
        return self.value

    def number(self) -> float:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._not("a number")
        if abs(value) > 1e15 or not math.isfinite(value):
            raise self._not("a number that can be")
        return float(value)

    def rate(self) -> float:
        """A number above 0."""
        if (value := self.number()) <= 0:
            raise self._not("above 0")
        return value

    def share(self) -> float:
        if not 0 <= (value := self.number()) <= 1:
            raise self._not("in 0 … 1")
        return value

    def maybe(self, read: Callable[[_Node], T]) -> T | None:
        return None if self.value is None else read(self)

    def items(self) -> list[_Node]:
        if not isinstance(self.value, list | tuple):
            raise self._not("a list")
        return [_Node(one, f"{self.where}[{index}]") for index, one in enumerate(self.value)]


def _plain(node: _Node) -> dict[str, object]:
    if not isinstance(node.value, dict):
        raise UsageError(f"{node.where} is damaged: not a table")
    return dict(node.value)


def _model(node: _Node) -> ModelFile:
    return ModelFile(node["file"].text(), node["bytes"].count())


def _drafted_at(runs: _Node) -> dict[str, tuple[int, ...]]:
    sums: dict[str, tuple[int, ...]] = {}
    for run in runs.items():
        arm, counts = run["arm"].text(), run["totals"]["drafted_at"].items()
        pairs = itertools.zip_longest(sums.get(arm, ()), (n.count() for n in counts), fillvalue=0)
        sums[arm] = tuple(a + b for a, b in pairs)
    return sums


def _speed(node: _Node) -> Speed:
    said = node["verdict"].text()
    verdict = next((one for one in get_args(Verdict) if one == said), None)
    if verdict is None:
        raise UsageError(f"{node.where} is damaged: {said!r:.60} is not a verdict")
    return Speed(
        plain_rate=node["plain_rate"].maybe(_Node.rate),
        rate=node["rate"].maybe(_Node.rate),
        speedup=node["speedup"].maybe(_Node.rate),
        low=node["low"].maybe(_Node.rate),
        high=node["high"].maybe(_Node.rate),
        noise=node["noise"].rate(),
        repeats=node["repeats"].count(),
        verdict=verdict,
    )


def _row(node: _Node) -> StoredRow:
    identity = node["identity"]
    return StoredRow(
        workload=node["workload"].maybe(_Node.text),
        arm=node["arm"].text(),
        prompts=node["prompts"].count(),
        speed=_speed(node),
        acceptance_rate=node["acceptance_rate"].maybe(_Node.share),
        accepted_per_cycle=node["accepted_per_cycle"].maybe(_Node.number),
        tokens_per_pass=node["tokens_per_pass"].maybe(_Node.number),
        acceptance_by_position=tuple(one.share() for one in node["acceptance_by_position"].items()),
        coverage=node["coverage"].maybe(_Node.share),
        draft_share=node["draft_share"].maybe(_Node.share),
        verify_share=node["verify_share"].maybe(_Node.share),
        break_even=node["break_even"].maybe(_Node.number),
        plain_ttft=node["plain_ttft"].number(),
        ttft=node["ttft"].number(),
        identity=IdentityCount(
            *(identity[name].count() for name in ("same", "ties", "bugs", "law_only"))
        ),
    )


def _undrafted(node: _Node) -> Undrafted:
    reasons = []
    for one in node["reasons"].items():
        pair = one.items()
        if len(pair) != 2:
            raise UsageError(f"{one.where} is damaged: not a reason and its count")
        reasons.append((pair[0].text(), pair[1].count()))
    return Undrafted(
        node["workload"].maybe(_Node.text),
        node["arm"].text(),
        node["cycles"].count(),
        tuple(reasons),
    )
