"""What a search for the best settings has measured so far, kept while it is measured.

One JSON object a line, appended as soon as it is known: the head (what is searched; another head is
another search), stages as they are planned, runs, and what was found of their texts. A line that
was cut off by a kill is dropped; `seconds` of the lines add up to what the search has cost.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specctl.bench.identity import Identity
from specctl.bench.run import Pass, Run, RunKey
from specctl.bench.workloads import Prompt
from specctl.errors import SpecctlError
from specctl.metrics import Totals
from specctl.paths import write_whole

SCHEMA = "specctl-tune/1"
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Stage:
    """One round of the search: these candidates on the first `prompts` prompts."""

    name: str
    candidates: tuple[str, ...]
    prompts: int
    repeats: int
    max_tokens: int
    threads: int

    def runs(self, groups: int = 1) -> int:
        """Runs that count; plain is measured once in each group."""
        return (len(self.candidates) + groups) * self.prompts * self.repeats


@dataclass(slots=True)
class Part:
    """The runs of one stage that share a session; `identities` once they were all done."""

    runs: list[Run]
    identities: dict[RunKey, Identity] | None = None


class State:
    """The file of one search. Nothing is written before something is known."""

    def __init__(
        self,
        path: Path,
        head: Mapping[str, Any],
        prompts: Iterable[Prompt],
        clock: Clock = time.monotonic,
        fresh: bool = False,
    ) -> None:
        self.path = path
        self.stages: list[Stage] = []
        self.lengths: tuple[int, ...] | None = None  # of the prompts, tokens
        self.seconds = 0.0
        self.replaced = False  # the file held another search
        self._parts: dict[tuple[int, int], Part] = {}
        self._head = {"schema": SCHEMA, **json.loads(json.dumps(head))}
        self._prompts = {prompt.key: prompt for prompt in prompts}
        self._clock, self._mark = clock, clock()
        lines = [] if fresh else self._read()
        known = bool(lines) and lines[0] == self._head
        self.replaced = bool(lines) and not known
        good = self._take(lines[1:]) if known else 0
        self._begun = known
        if known:  # without what was cut off
            write_whole(self.path, "".join(map(_line, lines[: good + 1])))

    @property
    def runs(self) -> int:
        """Runs that count, of all stages."""
        return sum(len(part.runs) for part in self._parts.values())

    def part(self, stage: int, group: int) -> Part:
        """What is known of one group of one stage."""
        return self._parts.setdefault((stage, group), Part([]))

    # ------------------------------------------------------------ writing

    def add_lengths(self, lengths: Sequence[int]) -> None:
        """Tokens of each prompt."""
        self.lengths = tuple(lengths)
        self._append({"kind": "lengths", "lengths": list(lengths)})

    def add_stage(self, stage: Stage) -> None:
        """A stage is planned."""
        self.stages.append(stage)
        self._append({"kind": "stage", "stage": dataclasses.asdict(stage)})

    def add_run(self, stage: int, group: int, run: Run) -> None:
        """One more run."""
        self.part(stage, group).runs.append(run)
        self._append({"kind": "run", "stage": stage, "group": group, "run": _run_out(run)})

    def add_identities(self, stage: int, group: int, found: Mapping[RunKey, Identity]) -> None:
        """All runs of a group are done and their texts compared."""
        self.part(stage, group).identities = dict(found)
        rows = [[*key, dataclasses.asdict(identity)] for key, identity in found.items()]
        self._append({"kind": "texts", "stage": stage, "group": group, "texts": rows})

    def finish(self) -> None:
        """The search is over: the next one starts anew."""
        self.path.unlink(missing_ok=True)

    def _append(self, line: dict[str, Any]) -> None:
        now = self._clock()
        took, self._mark = now - self._mark, now
        self.seconds += took
        lines = [{**line, "seconds": round(took, 4)}]
        if not self._begun:
            lines.insert(0, self._head)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a" if self._begun else "w", encoding="utf-8") as f:
                f.writelines(_line(one) for one in lines)
            self._begun = True
        except OSError as error:
            raise SpecctlError(f"cannot write {self.path}: {error.strerror}") from error

    # ------------------------------------------------------------ reading

    def _read(self) -> list[dict[str, Any]]:
        """Whole lines only."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError):
            return [{}]
        lines = []
        for line in text.split("\n"):
            if not line:
                continue
            try:
                data = json.loads(line)
            except ValueError:
                break
            if not isinstance(data, dict):
                break
            lines.append(data)
        empty: dict[str, Any] = {}
        return lines or [empty]

    def _take(self, lines: Sequence[dict[str, Any]]) -> int:
        """How many lines could be used: up to the first that is damaged."""
        for index, line in enumerate(lines):
            try:
                self._take_one(line)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError):
                return index
        return len(lines)

    def _take_one(self, line: dict[str, Any]) -> None:
        seconds = float(line["seconds"])
        if line["kind"] == "lengths":
            self.lengths = tuple(map(int, line["lengths"]))
        elif line["kind"] == "stage":
            values = line["stage"]
            self.stages.append(Stage(**{**values, "candidates": tuple(values["candidates"])}))
        elif line["kind"] == "run":
            run = _run_in(line["run"], self._prompts)
            self.part(int(line["stage"]), int(line["group"])).runs.append(run)
        elif line["kind"] == "texts":
            self.part(int(line["stage"]), int(line["group"])).identities = {
                (prompt, arm, repeat): Identity(**values)
                for prompt, arm, repeat, values in line["texts"]
            }
        else:
            raise ValueError(line["kind"])
        self.seconds += seconds


def _line(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"


def _run_out(run: Run) -> dict[str, Any]:
    return {**dataclasses.asdict(run), "prompt": run.prompt.key}


def _run_in(data: dict[str, Any], prompts: Mapping[str, Prompt]) -> Run:
    totals: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in data["totals"].items()
    }
    changed = {
        "prompt": prompts[data["prompt"]],
        "totals": Totals(**totals),
        "tokens": tuple(data["tokens"]),
        "prompt_tokens": tuple(data["prompt_tokens"]),
        "passes": tuple(Pass(tuple(p["drafted"]), p["emitted"]) for p in data["passes"]),
        "undrafted": tuple((reason, count) for reason, count in data["undrafted"]),
        "notes": tuple(data["notes"]),
    }
    return Run(**{**data, **changed})
