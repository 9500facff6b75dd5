"""A kept result (`bench --json`, or the data folder), read back and checked key by key.

What is said about finished runs (comparison, page) starts from here, never from the raw JSON: a
damaged file is told by the place of its damage.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from specctl import paths
from specctl.bench import words
from specctl.bench.node import Node
from specctl.bench.report import (
    IdentityCount,
    PromptSpeed,
    Speed,
    Undrafted,
    Verdict,
    is_undrafted,
)
from specctl.bench.results import SCHEMA, SERVED_SCHEMA, load_of_others
from specctl.bench.run import PLAIN
from specctl.errors import UsageError
from specctl.units import format_bytes

MAX_BYTES = 256 * 1024 * 1024  # of a file; 41 prompts × 10 arms × 10 repeats are some 4 MB


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model by its file name and size in bytes; of a server by what that calls it."""

    file: str
    size: int | None

    def __str__(self) -> str:
        return self.file if self.size is None else f"{self.file} ({format_bytes(self.size, 2)})"


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
    plain_ttft: float | None
    ttft: float
    identity: IdentityCount


@dataclass(frozen=True, slots=True)
class StoredServed:
    """What a benchmark of servers has beside the rest; see `served.Setup`."""

    engine: str
    title: str
    servers: str
    started: bool
    ignore_eos: bool
    method: str
    failure: str
    batches: tuple[StoredRow, ...]
    batch_undrafted: tuple[Undrafted, ...] = ()
    batch_failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """One finished benchmark. Mappings are as the document holds them, keys in its order.

    `threads` 0: a server does not tell. `prompt_texts` and `plain_texts` of files of earlier
    versions: None, and of tokens.
    """

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
    prompts: Mapping[str, tuple[int, str | None]]  # key → (tokens, their hash)
    plain_texts: Mapping[str, str]  # prompt → hash of plain's answer, first repeat
    ignore_eog: bool
    prompt_texts: Mapping[str, str | None]  # key → hash of what was asked
    written: Mapping[str, str | None]  # prompt → hash of the text of plain's answer
    drafted_at: Mapping[str, tuple[int, ...]]  # arm → [i]: cycles that drafted more than i tokens
    rows: tuple[StoredRow, ...]  # by workload, then the totals
    prompt_speeds: tuple[PromptSpeed, ...]
    undrafted: tuple[Undrafted, ...]
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    conditions: tuple[str, ...] = ()
    served: StoredServed | None = None

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

    @property
    def where(self) -> str:
        """The engine that ran it: `in-process`, or a server's kind."""
        return self.served.engine if self.served else "in-process"

    @property
    def threads_said(self) -> str:
        """`2 threads`, in words where they are not told."""
        if not self.threads:
            return "threads not told"
        return f"{self.threads} thread{'s' * (self.threads != 1)}"

    def never_drafted(self, row: StoredRow) -> bool:
        """Is this a drafting arm none of whose cycles had a draft?"""
        return is_undrafted(row, (*self.undrafted, *self._of_batches))

    @property
    def _of_batches(self) -> tuple[Undrafted, ...]:
        """A row of a batch has its size for a workload; their total is shown nowhere."""
        found = self.served.batch_undrafted if self.served else ()
        return tuple(one for one in found if one.workload is not None)

    @property
    def is_of_theirs(self) -> bool:
        """Of a server that was not started here: `machine` is the one that asked."""
        return self.served is not None and not self.served.started

    def asked_from(self, machine: str) -> str:
        """A machine's name, with what it was."""
        return f"asked from {machine}" if self.is_of_theirs else machine

    @property
    def busy_where(self) -> str:
        """On which machine other programs ran, where that is not the server's."""
        return words.WHERE_ASKED if self.is_of_theirs else ""

    @property
    def busy(self) -> float | None:
        """The load average of other programs, before or after, where it was high; else None."""
        before, after, cores = (
            self.machine.get(name) for name in ("load_before", "load_after", "logical_cores")
        )
        before, after = (
            load if isinstance(load, int | float) else None for load in (before, after)
        )
        return load_of_others(before, after, self.threads, cores if isinstance(cores, int) else 1)


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
    if document["schema"] not in (SCHEMA, SERVED_SCHEMA):
        raise UsageError(
            f"{name} has the schema {document['schema']!r}; this reads {SCHEMA!r} and "
            f"{SERVED_SCHEMA!r}"
        )
    top = Node(document, name)
    report = top["report"]
    return Stored(
        specctl=top["specctl"].text(),
        engine=top["engine"].text(),
        date=top["date"].text(),
        wall_seconds=top["wall_seconds"].number(),
        machine=top["machine"].table(),
        threads=top["machine"]["threads"].count(),
        model=_model(top["model"]),
        draft=top["draft"].maybe(_model),
        settings=top["settings"].table(),
        sampling=top["sampling"].table(),
        interrupted=top["interrupted"].flag(),
        max_tokens=top["max_tokens"].count(),
        repeats=top["repeats"].count(),
        arms={one["name"].text(): one["spec"].table() for one in top["arms"].items()},
        prompts={
            one["prompt"].text(): (one["tokens"].count(), one["tokens_hash"].maybe(Node.text))
            for one in top["prompts"].items()
        },
        plain_texts={
            run["prompt"].text(): (run["tokens_hash"].maybe(Node.text) or run["text_hash"].text())
            for run in _first_plain(top["runs"])
        },
        ignore_eog=top.has("ignore_eog") and top["ignore_eog"].flag(),
        prompt_texts={
            one["prompt"].text(): one["text_hash"].text() if one.has("text_hash") else None
            for one in top["prompts"].items()
        },
        written={
            run["prompt"].text(): run["text_hash"].text() if run.has("text_hash") else None
            for run in _first_plain(top["runs"])
        },
        drafted_at=_drafted_at(top["runs"]),
        rows=tuple(_row(one) for one in report["rows"].items()),
        prompt_speeds=tuple(
            PromptSpeed(
                one["prompt"].text(),
                one["arm"].text(),
                _speed(one),
                one["drafted"].flag() if one.has("drafted") else True,
            )
            for one in report["prompts"].items()
        ),
        undrafted=tuple(_undrafted(one) for one in report["undrafted"].items()),
        failures=tuple(one.text() for one in report["failures"].items()),
        notes=tuple(one.text() for one in report["notes"].items()),
        conditions=tuple(one.text() for one in _maybe_items(report, "conditions")),
        served=_served(top["served"]) if document["schema"] == SERVED_SCHEMA else None,
    )


def _first_plain(runs: Node) -> Iterator[Node]:
    for run in runs.items():
        if run["arm"].text() == PLAIN and run["repeat"].count() == 0:
            yield run


def _served(node: Node) -> StoredServed:
    return StoredServed(
        engine=node["engine"].text(),
        title=node["title"].text(),
        servers=node["servers"].text(),
        started=node["started"].flag(),
        ignore_eos=node["ignore_eos"].flag(),
        method=node["method"].text(),
        failure=node["failure"].text(),
        batches=tuple(_row(one) for one in node["batches"].items()),
        batch_undrafted=tuple(_undrafted(one) for one in _maybe_items(node, "batch_undrafted")),
        batch_failures=tuple(one.text() for one in _maybe_items(node, "batch_failures")),
    )


def _maybe_items(node: Node, key: str) -> Sequence[Node]:
    """What files of earlier versions do not have."""
    return node[key].items() if node.has(key) else ()


def _model(node: Node) -> ModelFile:
    return ModelFile(node["file"].text(), node["bytes"].maybe(Node.count))


def _drafted_at(runs: Node) -> dict[str, tuple[int, ...]]:
    sums: dict[str, tuple[int, ...]] = {}
    for run in runs.items():
        arm, counts = run["arm"].text(), run["totals"]["drafted_at"].items()
        pairs = itertools.zip_longest(sums.get(arm, ()), (n.count() for n in counts), fillvalue=0)
        sums[arm] = tuple(a + b for a, b in pairs)
    return sums


def _speed(node: Node) -> Speed:
    said = node["verdict"].text()
    verdict = next((one for one in get_args(Verdict) if one == said), None)
    if verdict is None:
        raise UsageError(f"{node.where} is damaged: {said!r:.60} is not a verdict")
    return Speed(
        plain_rate=node["plain_rate"].maybe(Node.rate),
        rate=node["rate"].maybe(Node.rate),
        speedup=node["speedup"].maybe(Node.rate),
        low=node["low"].maybe(Node.rate),
        high=node["high"].maybe(Node.rate),
        noise=node["noise"].rate(),
        repeats=node["repeats"].count(),
        verdict=verdict,
    )


def _row(node: Node) -> StoredRow:
    return StoredRow(
        workload=node["workload"].maybe(Node.text),
        arm=node["arm"].text(),
        prompts=node["prompts"].count(),
        speed=_speed(node),
        acceptance_rate=node["acceptance_rate"].maybe(Node.share),
        accepted_per_cycle=node["accepted_per_cycle"].maybe(Node.number),
        tokens_per_pass=node["tokens_per_pass"].maybe(Node.number),
        acceptance_by_position=tuple(one.share() for one in node["acceptance_by_position"].items()),
        coverage=node["coverage"].maybe(Node.share),
        draft_share=node["draft_share"].maybe(Node.share),
        verify_share=node["verify_share"].maybe(Node.share),
        break_even=node["break_even"].maybe(Node.number),
        plain_ttft=node["plain_ttft"].maybe(Node.number),
        ttft=node["ttft"].number(),
        identity=_identity(node["identity"]),
    )


def _identity(node: Node) -> IdentityCount:
    return IdentityCount(
        same=node["same"].count(),
        ties=node["ties"].count(),
        bugs=node["bugs"].count(),
        law_only=node["law_only"].count(),
        differs=node["differs"].count() if node.has("differs") else 0,
    )


def _undrafted(node: Node) -> Undrafted:
    reasons = []
    for one in node["reasons"].items():
        pair = one.items()
        if len(pair) != 2:
            raise UsageError(f"{one.where} is damaged: not a reason and its count")
        reasons.append((pair[0].text(), pair[1].count()))
    return Undrafted(
        node["workload"].maybe(Node.text),
        node["arm"].text(),
        node["cycles"].count(),
        tuple(reasons),
    )
