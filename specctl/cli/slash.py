"""The commands of a chat: /spec, /k, /temp, /stats, /system, /save, /load, /reset, /help, /quit."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from specctl import paths
from specctl.errors import UsageError
from specctl.metrics import RULE_OF_THUMB
from specctl.tui.words import needed, within_noise
from specctl.units import format_seconds, number, percent

if TYPE_CHECKING:
    from specctl.engine.dialogue import Dialogue


Say = Callable[[str], None]  # a line for the person
_DECISIONS = 4  # that /stats shows


class Quit(Exception):  # noqa: N818 - not an error
    """The user wants to leave."""


def run_command(dialogue: Dialogue, note: Say, line: str) -> None:
    """Run one slash command.

    Raises:
        UsageError: no such command, or an argument it does not take. Quit: the user leaves.
    """
    name, _, argument = line.partition(" ")
    command = _COMMANDS.get("/quit" if name == "/exit" else name)
    if command is None:
        raise UsageError(f"{name} is not a command", "/help lists them")
    command[0](dialogue, note, argument.strip())


def _spec(dialogue: Dialogue, note: Say, argument: str) -> None:
    from specctl.cli.aliases import in_session

    spec = dialogue.session.spec
    if argument:
        types = tuple(part.strip() for part in argument.split(",") if part.strip())
        spec, became = in_session(dataclasses.replace(spec, types=types), dialogue.session)
        if became:
            note(became)
        for line in dialogue.session.use(spec):
            note(line)
    now = dialogue.session.spec
    note(f"spec type {','.join(now.types)}" + (f", k {now.k}" if now.k else ""))


def _k(dialogue: Dialogue, note: Say, argument: str) -> None:
    if argument:
        if not argument.isdecimal():
            raise UsageError(f"/k takes a number of tokens, not {argument!r}")
        for line in dialogue.session.use(
            dataclasses.replace(dialogue.session.spec, k=int(argument))
        ):
            note(line)
    note(f"k {dialogue.session.spec.k or 'as each drafter likes'}")


def _temp(dialogue: Dialogue, note: Say, argument: str) -> None:
    sampling = dialogue.manner.sampling
    if argument:
        try:
            temperature = float(argument)
        except ValueError:
            raise UsageError(f"/temp takes a number, not {argument!r}", "0 is greedy") from None
        sampling = dataclasses.replace(sampling, temperature=temperature)
        dialogue.sample(sampling)
    note(f"temperature {sampling.temperature:g}" + (" (greedy)" if sampling.greedy else ""))


def _stats(dialogue: Dialogue, note: Say, _argument: str) -> None:
    totals = dialogue.totals
    if not totals.cycles:
        note("nothing generated yet")
        return
    note(
        f"since the start: {totals.emitted} tokens in {totals.cycles} cycles, "
        f"{number(totals.tokens_per_second, '.1f')} tok/s, "
        f"{number(totals.tokens_per_pass)} tokens per pass"
    )
    if totals.drafted_cycles:
        positions = " ".join(f"{p * 100:.0f}" for p in totals.acceptance_by_position[:12])
        note(
            f"drafted {totals.drafted}, accepted {totals.accepted} "
            f"(α {percent(totals.acceptance_rate)}), coverage {percent(totals.coverage)}"
        )
        note(f"acceptance by position: {positions} %")
        noise = f" ({within_noise(totals)})" if within_noise(totals) else ""
        note(
            f"accepted per cycle {number(totals.accepted_per_cycle)}; break-even measured "
            f"{needed(totals)}{noise}, rule of thumb {RULE_OF_THUMB:.1f}"
        )
        note(
            f"cycle: draft {percent(totals.draft_share)}, verify {percent(totals.verify_share)}; "
            f"net gain {_signed_seconds(totals.net_gain)}"
        )
    _decisions(dialogue, note)


def _decisions(dialogue: Dialogue, note: Say) -> None:
    """Who drafted lately, and the last few decisions in words."""
    last = list(dialogue.last_cycles)
    sources = Counter(cycle.source or "plain" for cycle in last)
    shares = ", ".join(f"{count} {source}" for source, count in sources.most_common())
    note(f"last {len(last)} cycles by who drafted: {shares}; the latest:")
    for cycle in last[-_DECISIONS:]:
        outcome = f"{cycle.accepted} of {len(cycle.drafted)} accepted" if cycle.drafted else "plain"
        note(f"  cycle {cycle.index}: {cycle.decision.reason or 'fixed length'} → {outcome}")


def _signed_seconds(seconds: float) -> str:
    return ("+" if seconds >= 0 else "") + format_seconds(seconds)


def _system(dialogue: Dialogue, note: Say, argument: str) -> None:
    dialogue.conversation.system = argument or None
    _reset(dialogue, note, "")


def _save(dialogue: Dialogue, note: Say, argument: str) -> None:
    from specctl.engine.transcript import save

    path = _file("/save", argument)
    save(dialogue, path)
    turns = dialogue.conversation.turns
    note(f"saved {turns} turn{'s' * (turns != 1)} to {path}")


def _load(dialogue: Dialogue, note: Say, argument: str) -> None:
    from specctl.engine.transcript import load, restore

    for line in restore(dialogue, load(_file("/load", argument))):
        note(line)


def _file(command: str, argument: str) -> Path:
    if not argument:
        raise UsageError(f"{command} takes a file", f"{command} chat.json")
    return paths.expanded(argument)


def _reset(dialogue: Dialogue, note: Say, _argument: str) -> None:
    dialogue.reset()
    note(
        "a new conversation" + (" with the system message" if dialogue.conversation.system else "")
    )


def _help(_dialogue: Dialogue, note: Say, _argument: str) -> None:
    for name, (_, usage) in _COMMANDS.items():
        note(f"{name:8} {usage}")
    note("@file    in a message stands for the file's text")


def _quit(_dialogue: Dialogue, _note: Say, _argument: str) -> None:
    raise Quit


_COMMANDS: dict[str, tuple[Callable[[Dialogue, Say, str], None], str]] = {
    "/spec": (_spec, "TYPE[,TYPE…]: draft this way from now on; alone: say which"),
    "/k": (_k, "N: most tokens drafted per cycle"),
    "/temp": (_temp, "T: temperature; 0 is greedy"),
    "/stats": (_stats, "what drafting brought so far, and why"),
    "/system": (_system, "TEXT: set the system message, start over"),
    "/save": (_save, "FILE: keep this conversation"),
    "/load": (_load, "FILE: go on with a kept one"),
    "/reset": (_reset, "forget the conversation"),
    "/help": (_help, "this"),
    "/quit": (_quit, "leave (also /exit, Ctrl-D)"),
}
