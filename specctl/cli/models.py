"""`specctl models`: what is on this machine, whether it is whole, and what may go."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from specctl import demo
from specctl.cli.render import err, out
from specctl.demo import DEMO, DEMO_F16
from specctl.errors import ModelError, UsageError
from specctl.hub import elsewhere, store
from specctl.hub.errors import DamagedError
from specctl.hub.store import Entry
from specctl.units import format_bytes

T = TypeVar("T")
ACTIONS = ("list", "verify", "remove", "import")

Action = Annotated[str, typer.Argument(help="list, verify, remove or import.")]
Names = Annotated[
    list[str] | None, typer.Argument(help="Models by name or path; for import: files.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")]
Json = Annotated[bool, typer.Option("--json", help="list: as JSON.")]


def models(
    action: Action = "list", names: Names = None, yes: Yes = False, as_json: Json = False
) -> None:
    """List, verify, remove or import model files.

    list shows specctl's own store and, read-only, what the Hugging Face cache, llama.cpp, LM Studio
    and Ollama have. verify hashes files again (all of the store without a name), and looks whether
    those without the hub's hash are whole GGUF files. remove deletes from specctl's own store only.
    import takes a file into it: a hard link where the disk allows.
    """
    store.check_folder()
    if action == "list":
        _list(names or [], as_json)
    elif action == "verify":
        _verify(names or [])
    elif action == "remove":
        _remove(names or [], yes)
    elif action == "import":
        _import(names or [])
    else:
        raise UsageError(f"{action!r} is not an action", "one of " + ", ".join(ACTIONS))


def _everything() -> list[Entry]:
    return [*store.entries(), *elsewhere.everything()]


def _list(names: list[str], as_json: bool) -> None:
    entries, parts = _everything(), store.parts()
    if names:
        entries, parts = store.select(names, entries), []
    if as_json:
        _list_json(entries, parts)
        return
    beside = "" if names else _demos()
    if not entries and not parts:
        but = f" but {beside}" if beside else ""
        err().print(
            f"no models on this machine{but}; `specctl recommend` names some to pull",
            soft_wrap=True,
        )
        return
    from rich.table import Table

    table = Table("name", "size", "where", "verified", box=None, pad_edge=False)
    table.columns[0].overflow = "fold"
    table.columns[1].justify = "right"
    for entry in entries:
        table.add_row(entry.name, format_bytes(entry.size), entry.where, entry.verified)
    for part in parts:
        of = f" of {format_bytes(part.size)}" if part.size else ""
        table.add_row(part.name, format_bytes(part.have) + of, store.OWN, "half-fetched")
    out().print(table)
    if beside:
        err().print(f"also here: {beside}", style="dim", soft_wrap=True)


def _demos() -> str:
    """The demo models in words, where their package is installed: they lie in no store."""
    try:
        size = demo.demo_model().stat().st_size
    except (ModelError, OSError):
        return ""
    return (
        f"the demo models: {DEMO} (SmolLM2-135M Q4_1, {format_bytes(size)}) and {DEMO_F16} "
        "(the same as F16)"
    )


def _list_json(entries: list[Entry], parts: list[store.Part]) -> None:
    rows: list[dict[str, object]] = [
        {
            "name": entry.name,
            "path": str(entry.path),
            "size": entry.size,
            "where": entry.where,
            "verified": entry.verified,
            "repo": entry.repo,
            "sha256": entry.sha256,
        }
        for entry in entries
    ]
    rows += [
        {"name": p.name, "path": str(p.path), "have": p.have, "size": p.size, "where": store.OWN}
        for p in parts
    ]
    json.dump(rows, sys.stdout, indent=1)
    print()


def _verify(names: list[str]) -> None:
    chosen = store.select(names, _everything()) if names else store.entries()
    wrong = []
    for entry in chosen:
        flaw = store.flaw(entry)
        good = False if flaw else _run(store.verify(entry), f"hashing {entry.name}")
        if good is False:
            wrong.append(entry)
        unknown = "no hash known; recorded this one" if entry.own else "whole; no hash known"
        verdict = {True: "ok", False: "DAMAGED", None: unknown}[good]
        print(f"{entry.name}\t{verdict}{f': {flaw}' if flaw else ''}")
    if wrong:
        raise DamagedError(
            "damaged: " + ", ".join(entry.name for entry in wrong),
            "specctl models remove NAME, then pull it again, or import it",
        )


def _remove(names: list[str], yes: bool) -> None:
    if not names:
        raise UsageError("remove what?", "specctl models remove NAME")
    chosen = store.select(names, _everything())
    for entry in chosen:
        if not entry.own:
            store.remove(entry)  # says whose it is
    freed = format_bytes(sum(entry.size for entry in chosen))
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"removing {freed} needs a yes", "add --yes")
        what = ", ".join(entry.name for entry in chosen)
        if not typer.confirm(f"remove {what} ({freed})?", err=True):
            raise typer.Exit(1)
    for entry in chosen:
        store.remove(entry)
        print(f"removed {entry.name} ({format_bytes(entry.size)})")


def _import(names: list[str]) -> None:
    if not names:
        raise UsageError("import what?", "specctl models import FILE.gguf")
    for name in names:
        entry = _run(store.import_file(Path(name).expanduser()), f"hashing {name}")
        print(entry.path)


def _run(steps: Generator[object, None, T], what: str) -> T:
    """Run a job of steps with a spinner; returns its result."""
    with err().status(what):
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
