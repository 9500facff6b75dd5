"""`specctl recommend --ask`: the use and skip rules as a few questions."""

from __future__ import annotations

from dataclasses import replace

import typer

from specctl.cli.render import err
from specctl.plan.candidates import Wish
from specctl.plan.profile import USES

RULE = "rule"
MEASURED = "measured here"


def ask_wish(wish: Wish) -> Wish:
    """Questions on stderr, answers from stdin; every conclusion says what it rests on."""
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
    err().print(
        f"  {MEASURED}: nothing yet; `specctl bench` settles it for your machine and your text",
        style="dim",
    )
    return wish


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
    return str(typer.prompt(question, default=default, err=True)).strip()
