"""What a search for the best settings has measured so far, kept while it is measured.

One JSON object a line, appended as soon as it is known: the head (what is searched; another head is
another search), stages as they are planned, runs, and what was found of their texts. A last line
that was cut off by a kill is dropped; any other line that cannot be is refused by its number, the
head too: only one that can be read and is another's says that this is another search.
`seconds` of the lines add up to what the search has cost.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specctl.bench import tune_lines as lines
from specctl.bench.identity import Identity
from specctl.bench.node import Node
from specctl.bench.run import PLAIN, Run, RunKey
from specctl.bench.tune_lines import COUNTING, Stage
from specctl.bench.workloads import Prompt
from specctl.errors import SpecctlError, UsageError
from specctl.paths import write_whole

SCHEMA = "specctl-tune/1"
Clock = Callable[[], float]


@dataclass(slots=True)
class Part:
    """The runs of one stage that share a session; `identities` once they were all done."""

    runs: list[Run]
    identities: dict[RunKey, Identity] | None = None


class State:
    """The file of one search. Nothing is written before something is known.

    Raises:
        SpecctlError: a line of this search's file that cannot be; names the line and the value.
    """

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
        self._at: dict[object, int] = {}  # what was read → the number of its line
        self._head = {"schema": SCHEMA, **json.loads(json.dumps(head))}
        self._prompts = {prompt.key: prompt for prompt in prompts}
        self._clock, self._mark = clock, clock()
        self._begun = False
        if not fresh:
            self._read()

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
        self._append({"kind": "run", "stage": stage, "group": group, "run": lines.run_out(run)})

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
        new = [{**line, "seconds": round(took, 4)}]
        if not self._begun:
            new.insert(0, self._head)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a" if self._begun else "w", encoding="utf-8") as f:
                f.writelines(lines.dump(one) for one in new)
            self._begun = True
        except OSError as error:
            raise SpecctlError(f"cannot write {self.path}: {error.strerror}") from error

    # ------------------------------------------------------------ reading

    def _read(self) -> None:
        """All of the file where it is of this search; without what was cut off at its end."""
        try:
            text = self.path.read_bytes().decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            return
        except OSError as error:
            raise SpecctlError(f"cannot read {self.path}: {error.strerror}") from error
        rows = text.split("\n")
        if lines.dump(self._head).startswith(text):  # killed before anything was known
            return
        if not self._is_ours(rows[0]):
            self.replaced = True
            return
        cut = rows[-1] != "" and _json(rows[-1]) is None
        for number, row in enumerate(rows[1 : len(rows) - cut], 2):
            if row.strip():
                self._take(row, number)
        self._begun = True
        kept = text[: len(text) - len(rows[-1])] if cut else text
        kept += "" if kept.endswith("\n") else "\n"
        if kept != text:
            write_whole(self.path, kept)

    def _is_ours(self, row: str) -> bool:
        """Whether the first line is this search's head; False where it is another search's.

        Raises:
            SpecctlError: it is the head of none.
        """
        head = _json(row)
        if head == self._head:
            return True
        said = "not a JSON object" if head is None else "not the head of a search"
        if head is not None and "schema" in head:
            said = f"its schema is {head['schema']!r:.60}, not {SCHEMA!r}"
        if head is None or head.get("schema") != SCHEMA:
            raise _refused(
                f"{self.path}, line 1 is damaged: {said}",
                "what was measured is in the lines after it: mend line 1, or start over with "
                "--fresh",
            )
        return False

    def _take(self, row: str, number: int) -> None:
        where = f"{self.path}, line {number}"
        line = _json(row)
        if line is None:
            raise _refused(f"{where} is damaged: not a JSON object")
        try:
            self._take_one(Node(line, where), number)
        except UsageError as error:
            raise _refused(error.message) from error

    def _take_one(self, line: Node, number: int) -> None:
        seconds = line["seconds"].amount()
        kind, stages = lines.kind_of(line), tuple(self.stages)
        if kind == "lengths":
            self._once(line, "lengths", number)
            self.lengths = lines.lengths_in(line["lengths"], len(self._prompts))
        elif kind == "stage":
            self._at["stage", len(stages)] = number
            self.stages.append(lines.stage_in(line["stage"], stages, len(self._prompts)))
        else:
            place = lines.place_in(line, stages)
            stage, prompts = stages[place[0]], {**self._prompts, COUNTING.key: COUNTING}
            if kind == "run":
                run = lines.run_in(line["run"], stage, prompts)
                self._once(line, (*place, run.key), number)
                self.part(*place).runs.append(run)
            else:
                self._once(line, (*place, "texts"), number)
                self._take_texts(line["texts"], place, stage, prompts)
        self.seconds += seconds

    def _take_texts(
        self, node: Node, place: tuple[int, int], stage: Stage, prompts: Mapping[str, Prompt]
    ) -> None:
        """They are written when every run is there, and of every run that is not plain's."""
        part = self.part(*place)
        found = [lines.key_in(one, stage, prompts) for one in node.items()]
        part.identities = dict(found)
        runs = {run.key for run in part.runs}
        arms = {PLAIN, *(arm for _, arm, _ in runs)}
        due = stage.prompts * stage.repeats
        short = [one for one in arms if sum(arm == one for _, arm, _ in runs) != due]
        if short:
            raise UsageError(f"{node.where} is damaged: runs of {', '.join(short)} are missing")
        drafted = {key for key in runs if key[1] != PLAIN}
        if len(found) != len(drafted) or set(part.identities) != drafted:
            raise UsageError(f"{node.where} is damaged: not one text for each run before it")

    def _once(self, line: Node, what: object, number: int) -> None:
        if what in self._at:
            raise UsageError(f"{line.where} is damaged: line {self._at[what]} holds the same")
        self._at[what] = number

    # ------------------------------------------------------------ what the search knows of it

    def check_alone(self, index: int, stage: Stage) -> None:
        """A planned round of threads must be the one that is due. Raises SpecctlError."""
        if index < len(self.stages) and self.stages[index] != stage:
            due = f"{stage.repeats} × {stage.max_tokens} tokens with {stage.threads} threads"
            raise self._damaged(("stage", index), f"plain decoding, {due} is due")

    def check_stage(self, index: int, allowed: Iterable[str], threads: Iterable[int]) -> None:
        """A planned stage must be of candidates that are tried there, with threads that were.

        Raises:
            SpecctlError: it is not; names the line.
        """
        stage = self.stages[index]
        for name in sorted(set(stage.candidates).difference(allowed)):
            raise self._damaged(("stage", index), f"{name!r:.60} is no candidate of this round")
        if stage.threads not in threads:
            raise self._damaged(("stage", index), f"{stage.threads} threads are not tried here")

    def check_groups(self, index: int, count: int) -> None:
        """No run may be of a group beyond the stage's. Raises SpecctlError."""
        for (stage, group), part in self._parts.items():
            if stage == index and group >= count and part.runs:
                at = (stage, group, part.runs[0].key)
                raise self._damaged(at, f"group {group} of {count}, counted from 0")

    def check_arms(self, index: int, group: int, arms: Iterable[str]) -> None:
        """Known runs of a group must be of its arms, all of them once their texts are there.

        Raises:
            SpecctlError: they are not; names the line.
        """
        part, due = self.part(index, group), {PLAIN, *arms}
        for run in part.runs:
            if run.arm not in due:
                said = f"{run.arm!r:.60} is not in group {group} of its stage"
                raise self._damaged((index, group, run.key), said)
        missing = due.difference(run.arm for run in part.runs)
        if part.identities is not None and missing:
            said = f"no runs of {', '.join(sorted(missing))} are before it"
            raise self._damaged((index, group, "texts"), said)

    def _damaged(self, what: object, why: str) -> SpecctlError:
        return _refused(f"{self.path}, line {self._at.get(what, '?')} is damaged: {why}")


def _json(row: str) -> dict[str, Any] | None:
    try:
        data = json.loads(row)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _refused(message: str, hint: str = "") -> SpecctlError:
    usual = "mend that line or take it out, or start over with --fresh"
    return SpecctlError(message, hint or usual)
