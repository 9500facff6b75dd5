"""Rows of the home screen: the words and figures of doctor, recommend, models and bench."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from specctl import paths, recording, resolve
from specctl.bench import stored, words
from specctl.bench.stored import Stored, StoredRow
from specctl.cli import doctor
from specctl.cli import recommend as ranked
from specctl.cli.fetching import size_words
from specctl.errors import ModelError, SpecctlError
from specctl.hardware.advice import engine_advice
from specctl.hardware.machine import Machine
from specctl.hub.remote import hub_from_environment
from specctl.plan.budget import NO_GPU
from specctl.plan.candidates import Configuration, Wish
from specctl.plan.explain import chat_name, run_command
from specctl.plan.recommend import Recommendation
from specctl.resolve import Missing
from specctl.tui.home_state import Action, MachineRow, Proposal, ResultRow, Seen, Verdict
from specctl.units import format_bytes, number

TOP = 6  # as `specctl recommend`
NEWEST = 30  # results and recordings that are read
MESSAGE = 60  # signs of a recording's first message
NOTHING = "nothing measured yet: b on a model above, or specctl bench --quick; F9 in a chat records"


def run_actions(name: str, spec: tuple[str, ...] = ()) -> tuple[Action, ...]:
    """What can be done with a model of this machine, by its name. `spec`: flags that it needs."""
    chat = ("chat", "--model", name, *spec)
    bench = ("bench", "--quick", "--tui", "--model", name, *spec)
    return (
        Action("chat", chat, "chat with it"),
        Action("bench", bench, "bench it: three prompts, plain against speculative"),
        Action("tune", ("tune", name), "tune it: the fastest settings, about five minutes"),
    )


def pull_action(name: str, what: str, size: str) -> Action:
    """Fetch something, after a question with bytes and destination."""
    folder = paths.models_dir()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = format_bytes(shutil.disk_usage(folder).free)
    ask: tuple[str, ...] = (f"{what}: {size} to fetch", f"into {paths.models_dir()}, {free} free")
    offline = hub_from_environment().offline
    if offline:
        ask += (f"{offline} forbids asking the network: it will be refused",)
    return Action("pull", ("pull", name), "Pull it?", ask)


# ---------------------------------------------------------------- machine


def machine(found: Machine, final: bool) -> Seen:
    """What `specctl doctor` prints. Not `final`: the engine has not been asked yet."""
    rows = [(label, text) for label, text in doctor.rows(found) if final or label != "Engine"]
    notes = (*found.notes, *(engine_advice(found) if final else ()))
    action = Action("page", ("doctor",), "this machine")
    about = f"simulated: {', '.join(found.overrides)}" if found.simulated else ""
    row = MachineRow("machine", tuple(rows), doctor.conclusion(found), notes, (action,))
    return Seen("machine", (row,), about, final=final)


# ---------------------------------------------------------------- recommended


def recommended(found: Machine) -> Seen:
    """What `specctl recommend` ranks for `specctl chat`."""
    result = ranked.rank_machine(found, Wish(), TOP)
    budget = result.budget
    beside_gpu = budget.gpu is None and budget.gpu_words != NO_GPU
    return Seen(
        "recommended",
        tuple(_proposal(one, result) for one in result.ranked),
        "all speeds are estimates (≈)",
        f"{ranked.nothing(result)} Why: specctl recommend --all",
        (budget.gpu_words,) if beside_gpu else (),
    )


def _proposal(one: Configuration, result: Recommendation) -> Proposal:
    name, lacking = chat_name(one), ""
    actions: tuple[Action, ...] = ()
    try:
        found = resolve.resolve_selection(one.selection)
    except ModelError as error:  # a local profile whose file is gone
        lacking = error.message
    else:
        if isinstance(found, Missing):
            lacking = size_words(found)
            actions = (pull_action(one.selection.pull_name, found.name, lacking),)
        else:
            chat = shlex.split(run_command(one, result.wish.ctx, result.budget))[1:]
            actions = (Action("chat", tuple(chat), "chat with it"), *run_actions(name)[1:])
    return Proposal(
        one.selection.name,
        f"{one.model.id} {one.selection.file.quant}",
        ranked.drafter_words(one),
        f"≈{ranked.speed_words(one)} tok/s",
        lacking,
        (
            one.model.licence,
            f"{ranked.memory_words(one)} GiB",
            f"class {one.quality:g}",
            f"ctx ≤ {ranked.ctx_words(one)}",
        ),
        actions,
    )


# ---------------------------------------------------------------- results


def results() -> Seen:
    """Kept results and recordings, the newest first."""
    kept = _newest(paths.data_dir() / "bench", "*.json")
    recorded = _newest(paths.data_dir() / "recordings", "*.jsonl")
    newest = sorted((*kept, *recorded), reverse=True)
    rows = [
        _recording(path, when) if path.suffix == ".jsonl" else _result(path, when)
        for when, path in islice(newest, NEWEST)
    ]
    rows.sort(key=lambda row: row.date, reverse=True)
    about = f"the newest of {len(newest)}" if len(newest) > NEWEST else ""
    return Seen("results", tuple(rows), about, NOTHING)


def _newest(folder: Path, pattern: str) -> list[tuple[float, Path]]:
    if folder.exists():
        os.listdir(folder)  # an unreadable folder is told, not taken for an empty one
    return [(path.stat().st_mtime, path) for path in folder.glob(pattern) if path.is_file()]


def _stamp(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(when))


def _result(path: Path, when: float) -> ResultRow:
    try:
        kept = stored.parse(stored.read_json(path), path.name)
    except SpecctlError as error:
        return ResultRow(str(path), _stamp(when), path.name, broken=error.message)
    draft = f" + {kept.draft.file}" if kept.draft else ""
    action = Action("page", ("bench", "page", path.stem), "its report")
    return ResultRow(
        str(path),
        kept.date[:16].replace("T", " "),
        kept.model.file + draft,
        tuple(_arms(kept)),
        "stopped early" if kept.interrupted else "",
        actions=(action,),
    )


def _arms(kept: Stored) -> Iterator[tuple[Verdict, str]]:
    """The fastest arm, a proven gain before a larger figure inside the noise; what is slower than
    plain, never drafted or changed the text, each by name; then how many more there are.
    """
    totals = sorted(
        (row for row in kept.totals if row.arm in kept.compared),
        key=lambda row: (row.speed.verdict != "faster", -(row.speed.speedup or 0.0)),
    )
    more: Counter[Verdict] = Counter()
    for index, row in enumerate(totals):
        verdict = _verdict(row, kept)
        alike = verdict in ("faster", "no difference shown") and not row.identity.differs
        if index and alike:
            more[verdict] += 1
        else:
            yield verdict, _said(row, verdict)
    for verdict, count in more.items():
        yield verdict, f"{count} more: {words.SHORT[verdict]}"


def _verdict(row: StoredRow, kept: Stored) -> Verdict:
    if row.identity.bugs:
        return "differs"
    silent = words.verdict(row.speed, kept.never_drafted(row)) == words.NEVER
    return "never drafted" if silent else row.speed.verdict


def _said(row: StoredRow, verdict: Verdict) -> str:
    if verdict == "differs":
        return f"{row.arm} changes the text: {words.text(row.identity)}"
    differing = f", text: {words.text(row.identity)}" if row.identity.differs else ""
    if verdict == "never drafted":
        return f"{row.arm} {words.NEVER}{differing}"
    if row.speed.speedup is None and row.speed.rate is not None:
        return f"{row.arm} speed-up {words.UNKNOWN}{differing}"
    figure = number(row.speed.speedup, ".2f", "×")
    return f"{row.arm} {figure} {words.SHORT[verdict]} ({words.spread(row.speed)}){differing}"


def _recording(path: Path, when: float) -> ResultRow:
    try:
        first = recording.head(path)
    except SpecctlError as error:
        return ResultRow(str(path), _stamp(when), path.name, broken=error.message)
    if first is None:
        why = f"{path} holds no recording"
        return ResultRow(str(path), _stamp(when), path.name, broken=why)
    model = first.model.replace("\\", "/").rpartition("/")[2]
    note = ",".join(first.spec_types)
    message = " ".join(first.message.split())
    if message:
        note += f": “{message[:MESSAGE]}{'…' if len(message) > MESSAGE else ''}”"
    action = Action("replay", ("replay", str(path)), "replay it")
    return ResultRow(str(path), _stamp(when), f"recording, {model}", (), note, actions=(action,))
