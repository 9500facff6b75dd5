"""`specctl recommend --ask`: the use and skip rules as a few questions."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from specctl.cli.render import err
from specctl.paths import data_dir
from specctl.plan.candidates import Wish
from specctl.plan.profile import USES

RULE = "rule"
MEASURED = "measured here"
NEWEST = 20  # bench results looked at
LINES = 5
WORKLOADS = {  # specctl bench's texts that are like a use
    "code": ("code-gen", "code-edit"),
    "edit": ("code-edit", "template-fill"),
    "chat": ("chat", "summarise", "translate"),
    "reasoning": ("reasoning",),
    "creative": ("creative",),
}


def ask_wish(wish: Wish) -> Wish:
    """Questions on stderr, answers from stdin; every conclusion says what it rests on.

    Raises:
        typer.Exit: the answers ended before the questions (1), or Ctrl-C (130).
    """
    try:
        return _answers(wish)
    except (EOFError, KeyboardInterrupt) as end:
        err().print("\nno answer, so nothing was ranked; without --ask the flags are the answers")
        raise typer.Exit(130 if isinstance(end, KeyboardInterrupt) else 1) from None


def _answers(wish: Wish) -> Wish:
    use = _choice("What for", USES, wish.use)
    temperature = _number("Temperature (0 is greedy)", 0.0)
    users = int(_number("Requests at the same time", 1))
    ctx = int(_number("Context, tokens", wish.ctx))
    wish = replace(wish, use=use, ctx=ctx)
    for skip, words in _rules(use, temperature, users):
        err().print(f"  {RULE}: {words}", style="dim")
        if skip:
            wish = replace(wish, method="none")
    err().print(
        f"  {RULE}: targets under 3B gain little, from 7B up they gain; the ranking prices both",
        style="dim",
    )
    for line in measured_here(use):
        err().print(f"  {MEASURED}: {line}", style="dim", markup=False)
    return wish


def measured_here(use: str, folder: Path | None = None) -> list[str]:
    """What `specctl bench` found on this machine: newest first, texts of this use first.

    Not from a run beside other programs or of a server somewhere, and not of an arm that never
    drafted: neither says anything of drafting here.
    """
    found: list[tuple[bool, str]] = []
    folder = folder or data_dir() / "bench"
    for path in sorted(folder.glob("*.json"), reverse=True)[:NEWEST]:
        try:
            said: Any = json.loads(path.read_text(encoding="utf-8"))
            if _was_busy(said["machine"]) or _was_elsewhere(said):
                continue
            day, model = str(said["date"])[:10], said["model"]["file"]
            found += [
                (
                    row["workload"] not in WORKLOADS[use],
                    f"{row['arm']} on {row['workload']}: {row['speedup']:.2f}-fold,"
                    f" {row['verdict']} ({_runs(row['repeats'])}; {model}, {day})",
                )
                for row in said["report"]["rows"]
                if row["arm"] != "plain" and row["speedup"] is not None and row["coverage"]
            ]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # another schema, or damaged: it says nothing here
    if not found:
        return ["nothing yet; `specctl bench` settles it for your machine and your text"]
    return [line for _, line in sorted(found, key=lambda item: item[0])[:LINES]]


def _was_busy(machine: dict[str, Any]) -> bool:
    """Other programs ran, as specctl bench itself judges it."""
    from specctl.bench.results import load_of_others

    before, after = machine["load_before"], machine["load_after"]
    return load_of_others(before, after, machine["threads"], os.cpu_count() or 1) is not None


def _was_elsewhere(said: dict[str, Any]) -> bool:
    """By a server that was running: perhaps another machine's."""
    return "served" in said and not said["served"]["started"]


def _runs(repeats: int) -> str:
    return "one run" if repeats == 1 else f"{repeats} runs"


def _rules(use: str, temperature: float, users: int) -> list[tuple[bool, str]]:
    """(skip speculation?, the rule in words) of the guides, for what was answered."""
    rules: list[tuple[bool, str]] = []
    if users > 32:
        rules.append((True, "batches over 32 leave no idle compute: no speculation"))
    elif users > 1:
        rules.append((False, "gains shrink with the batch; specctl itself runs one sequence"))
    if temperature > 0.7:
        rules.append((True, "temperature above 0.7: acceptance falls, no speculation"))
    else:
        rules.append((False, "temperature 0 to 0.7 is where drafts are accepted"))
    if use == "creative":
        rules.append((True, "creative text: acceptance below 40 %, no speculation"))
    elif use in ("code", "edit"):
        rules.append((False, "code and edits repeat themselves: n-grams first, then a draft"))
    return rules


def _choice(question: str, choices: tuple[str, ...], default: str) -> str:
    while True:
        answer = _prompt(f"{question} ({', '.join(choices)})", default).lower()
        if answer in choices:
            return answer
        err().print(f"  one of {', '.join(choices)}")


def _number(question: str, default: float) -> float:
    while True:
        try:
            value = float(_prompt(question, f"{default:g}"))
        except ValueError:
            value = -1.0
        if 0 <= value <= 1e9:
            return value
        err().print("  a number of at least 0")


def _prompt(question: str, default: str) -> str:
    """Raises EOFError, KeyboardInterrupt; click's own prompt leaves a blank on stdout."""
    err().print(f"{question} [{default}]: ", end="", markup=False, soft_wrap=True)
    return input().strip() or default
