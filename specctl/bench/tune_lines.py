"""The lines of a search's file: values to JSON, and back with every value checked by its name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from specctl.bench.identity import Identity, Status
from specctl.bench.node import Node
from specctl.bench.run import PLAIN, Pass, Run, RunKey
from specctl.bench.workloads import Prompt
from specctl.metrics import Totals

# Plain decoding of this prompt tells the threads apart, in rounds of their own.
COUNTING = Prompt("threads", "count", "Count from one to one hundred, in words.")
_AFTER = {  # which rounds may follow
    None: ("threads",),
    "threads": ("threads", "first"),
    "first": ("half", "final"),
    "half": ("final",),
    "final": (),
}
TOKEN_MOST = 2**31 - 1
_SIGNED = ("t_o", "known_worth", "judged_t_c", "known_t_c")  # t_o is a remainder
_LINES = {
    "lengths": ("lengths",),
    "stage": ("stage",),
    "run": ("stage", "group", "run"),
    "texts": ("stage", "group", "texts"),
}


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


def dump(data: Mapping[str, Any]) -> str:
    """One line."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"


def run_out(run: Run) -> dict[str, Any]:
    """A run, its prompt by name."""
    return {**dataclasses.asdict(run), "prompt": run.prompt.key}


# ---------------------------------------------------------------- reading


def kind_of(line: Node) -> str:
    """What the line holds; no other key than it needs."""
    kind = line["kind"].one_of(tuple(_LINES))
    line.only(("kind", "seconds", *_LINES[kind]))
    return kind


def lengths_in(node: Node, prompts: int) -> tuple[int, ...]:
    """Tokens of each of so many prompts."""
    return tuple(one.count(1) for one in node.items(prompts))


def stage_in(node: Node, before: tuple[Stage, ...], prompts: int) -> Stage:
    """A stage that can follow those `before`, on at most so many prompts."""
    node.only([one.name for one in dataclasses.fields(Stage)])
    name = node["name"].one_of(_AFTER[before[-1].name if before else None])
    candidates = tuple(one.string() for one in node["candidates"].items())
    if not candidates or len(set(candidates)) < len(candidates):
        raise node["candidates"].damaged("a list of different candidates")
    if name == "threads" and candidates != ("none",):
        raise node["candidates"].damaged("plain decoding alone")
    stage = Stage(
        name=name,
        candidates=candidates,
        prompts=node["prompts"].count(1),
        repeats=node["repeats"].count(1),
        max_tokens=node["max_tokens"].count(1),
        threads=node["threads"].count(1),
    )
    if stage.prompts > prompts:
        raise node["prompts"].damaged(f"at most the {prompts} prompts of this search")
    return stage


def place_in(line: Node, stages: tuple[Stage, ...]) -> tuple[int, int]:
    """(stage, group) that a line belongs to; the stage is planned, a group has a candidate."""
    stage = line["stage"].count()
    if stage >= len(stages):
        raise line["stage"].damaged(f"one of the {len(stages)} stages before it")
    group = line["group"].count()
    if group >= len(stages[stage].candidates):
        raise line["group"].damaged("a group of that stage")
    return stage, group


def run_in(node: Node, stage: Stage, prompts: Mapping[str, Prompt]) -> Run:
    """A run of this stage."""
    node.only([one.name for one in dataclasses.fields(Run)])
    run = Run(
        prompt=prompts[node["prompt"].one_of(_prompts_of(stage, prompts))],
        arm=node["arm"].one_of((PLAIN, *stage.candidates)),
        repeat=node["repeat"].count(),
        totals=_totals(node["totals"]),
        ttft=node["ttft"].amount(),
        tokens=tuple(map(_token, node["tokens"].items())),
        prompt_tokens=tuple(map(_token, node["prompt_tokens"].items())),
        prompt_seconds=node["prompt_seconds"].amount(),
        passes=tuple(map(_pass, node["passes"].items())),
        undrafted=tuple(map(_reason, node["undrafted"].items())),
        single_seconds=node["single_seconds"].amount(),
        finish=node["finish"].string(),
        notes=tuple(one.string() for one in node["notes"].items()),
    )
    if run.repeat >= stage.repeats:
        raise node["repeat"].damaged(f"below the {stage.repeats} repeats of its stage")
    if len(run.tokens) > stage.max_tokens:
        raise node["tokens"].damaged(f"at most {stage.max_tokens} tokens")
    if not run.prompt_tokens:
        raise node["prompt_tokens"].damaged("a prompt")
    _check_sums(node, run)
    return run


def key_in(node: Node, stage: Stage, prompts: Mapping[str, Prompt]) -> tuple[RunKey, Identity]:
    """What was found of the text of one run."""
    prompt, arm, repeat, found = node.items(4)
    key = (
        prompt.one_of(_prompts_of(stage, prompts)),
        arm.one_of(stage.candidates),
        repeat.count(),
    )
    found.only([one.name for one in dataclasses.fields(Identity)])
    status: Status = next(
        one for one in get_args(Status) if one == found["status"].one_of(get_args(Status))
    )
    return key, Identity(
        status=status,
        index=found["index"].maybe(Node.count),
        plain_token=found["plain_token"].maybe(_token),
        arm_token=found["arm_token"].maybe(_token),
        gap=found["gap"].maybe(Node.amount),
        delta=found["delta"].maybe(Node.amount),
        rounding=found["rounding"].maybe(Node.amount),
        why=found["why"].string(),
    )


def _prompts_of(stage: Stage, prompts: Mapping[str, Prompt]) -> tuple[str, ...]:
    return (COUNTING.key,) if stage.name == "threads" else tuple(prompts)[: stage.prompts]


def _totals(node: Node) -> Totals:
    """Every sum, by the type of its default."""
    node.only([one.name for one in dataclasses.fields(Totals)])
    values: dict[str, Any] = {}
    for one in dataclasses.fields(Totals):
        own = node[one.name]
        if isinstance(one.default, bool):
            values[one.name] = own.flag()
        elif isinstance(one.default, int):
            values[one.name] = own.count()
        elif isinstance(one.default, tuple):
            values[one.name] = tuple(item.count() for item in own.items())
        else:
            values[one.name] = own.number() if one.name in _SIGNED else own.amount()
    return Totals(**values)


def _check_sums(node: Node, run: Run) -> None:
    """What is told twice must be the same: of a run that was changed by hand it is not."""
    totals, sums = run.totals, node["totals"]
    drafts = [len(one.drafted) for one in run.passes]
    for name, found in (
        ("cycles", len(run.passes)),
        ("drafted_cycles", sum(map(bool, drafts))),
        ("drafted", sum(drafts)),
        ("emitted", len(run.tokens)),
        ("emitted", sum(one.emitted for one in run.passes)),
    ):
        if getattr(totals, name) != found:
            raise sums[name].damaged(f"the {found} that its tokens and passes make")
    if totals.accepted > totals.drafted:
        raise sums["accepted"].damaged(f"at most the {totals.drafted} drafted")
    if run.single_passes != totals.cycles - totals.drafted_cycles:
        raise node["undrafted"].damaged("as many as there are cycles without a draft")
    if totals.seconds <= 0:
        raise sums["t_v"].damaged("a time above 0 with the others")


def _token(node: Node) -> int:
    token = node.count()
    if token > TOKEN_MOST:
        raise node.damaged("a token")
    return token


def _pass(node: Node) -> Pass:
    node.only(("drafted", "emitted"))
    return Pass(tuple(map(_token, node["drafted"].items())), node["emitted"].count())


def _reason(node: Node) -> tuple[str, int]:
    reason, count = node.items(2)
    return reason.string(), count.count()
