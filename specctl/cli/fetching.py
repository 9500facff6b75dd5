"""From what a user named to files on this machine: asks to pull what is missing.

On a terminal (stdin and stderr) it is a question; elsewhere an error that names the command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from specctl.cli import bound
from specctl.cli.render import err
from specctl.errors import ModelError, UsageError
from specctl.hub.errors import OfflineError
from specctl.hub.lookup import look_up
from specctl.hub.pull import check_room
from specctl.hub.remote import Hub, hub_from_environment
from specctl.resolve import Missing, Placed, Resolved, resolve
from specctl.settings import EngineSettings, SpecSettings
from specctl.units import format_bytes


def resolved(model: str, draft: str | None = None) -> Resolved:
    """The files of a name, fetched after a yes where they are not here; its notes go to stderr.

    Raises:
        ModelError: missing, and nobody can be asked.
        ModelError, UsageError: as `specctl.resolve.resolve`; HubError: it could not be fetched.
        typer.Exit: the answer was no.
    """
    found = resolve(model, draft)
    if isinstance(found, Missing):
        found = resolve(model, draft, fetch(found))
    if isinstance(found, Missing):
        raise ModelError(f"{found.name} was fetched, and is not all there", "run it again")
    _check_two_files(found, draft)
    for note in found.notes:
        err().print(f"note: {note}", style="dim", markup=False)
    return found


def _check_two_files(found: Resolved, draft: str | None) -> None:
    """A model drafting for itself costs a step for each token that it saves one."""
    if draft is not None and found.draft is not None and found.draft.samefile(found.model):
        raise UsageError(
            f"--draft {draft}: target and draft are the same file, which can never be faster",
            "name a smaller model of the same family, or leave --draft out",
        )


def fetch(missing: Missing, ask: bool = True) -> Placed:
    """Pull the missing files, after a yes; where each of them lies now.

    Raises:
        ModelError: nobody can be asked; OfflineError: the network is forbidden.
        HubError: it could not be fetched.
        typer.Exit: the answer was no.
    """
    need_engine()
    hub = hub_from_environment()
    if hub.offline:
        names = ", ".join(map(str, missing.files))
        raise OfflineError(
            f"{_is_not(missing)} on this machine, and {hub.offline} forbids fetching: {names}",
            f"pull it while online: specctl pull {missing.pull}",
        )
    if ask and not can_ask():
        size = f" ({size_words(missing)})" if missing.bytes is not None else ""
        raise ModelError(
            f"{_is_not(missing)} on this machine{size}", f"fetch it: specctl pull {missing.pull}"
        )
    if ask:
        words = size_words(missing) if missing.bytes is not None else _asked_size(missing, hub)
        if not typer.confirm(
            f"{_is_not(missing)} here: {words}. Pull it now?", default=True, err=True
        ):
            err().print(f"nothing was fetched; later: specctl pull {missing.pull}", markup=False)
            raise typer.Exit(1)
    from specctl.cli.pull import fetch_shown

    files = list(missing.files)
    paths = fetch_shown(files, hub)
    return {(want.repo, want.file): path for want, path in zip(files, paths, strict=True)}


def can_ask() -> bool:
    """Is there a person who sees the question and can answer it?"""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _is_not(missing: Missing) -> str:
    return f"{missing.name} {'are' if ' and ' in missing.name else 'is'} not"


def size_words(missing: Missing) -> str:
    """`4.7 GiB`, `≈ 4.7 GiB` where it is no listed byte count."""
    if missing.bytes is None:
        return "size not known"
    return ("" if missing.exact else "≈ ") + format_bytes(missing.bytes)


def _asked_size(missing: Missing, hub: Hub) -> str:
    """The size as the hub tells it, less what an earlier pull has left; says no before asking."""
    from specctl.cli.pull import DEFAULT

    steps = look_up(missing.files, hub, DEFAULT)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            job = end.value
            break
    check_room(job)
    return format_bytes(job.missing)


def need_engine() -> None:
    """Before gigabytes are fetched for it: is there anything that could run them?

    Raises:
        EngineMissingError: llama-cpp-python is not installed, or does not load.
    """
    from specctl.llama.api import library

    library()


def say_unused_draft(files: Resolved, specs: Sequence[SpecSettings]) -> None:
    """A draft model that nothing asks for is not even opened: worth a line. A draft of the wrong
    kind is an error of the engine's, and no note.
    """
    types = {name for spec in specs for name in spec.types}
    if files.draft is None or _drafts_with(files.draft, specs):
        return
    how = "without a model"
    if "draft-mtp" in types and bound.has_heads(files.model):
        how = "with the target's own heads"
        types.remove("draft-mtp")
    if not any(name.startswith("draft-") for name in types):
        named = ", ".join(sorted({name for spec in specs for name in spec.types}))
        err().print(
            f"note: {files.draft.name} is not used: --spec-type {named} drafts {how}",
            style="dim",
            markup=False,
            soft_wrap=True,
        )


def _drafts_with(draft: Path, specs: Sequence[SpecSettings]) -> bool:
    types = {name for spec in specs for name in spec.types}
    return "auto" in types or bound.type_of(draft) in types


def say_tuned(
    files: Resolved,
    specs: Sequence[SpecSettings],
    flags: tuple[Sequence[SpecSettings], EngineSettings],
) -> None:
    """What of the name's tuning the flags leave, where it is anything: a line on stderr.

    `files` and `specs` are what runs; `flags` what the command line says, the tuning not yet in it,
    and no specs where it has a --spec-type.
    """
    if files.tuned is None:
        return
    drafted = files.draft is not None and _drafts_with(files.draft, specs)
    left = files.tuned.in_force(*flags, drafted=drafted)
    if left:
        err().print(
            f"note: tuned: {left} (specctl tune --show {files.tuned.id})",
            style="dim",
            markup=False,
            soft_wrap=True,
        )


def demo_without_asking(command: str) -> str:
    """The demo model for who named nothing and is not asked, with one line that says so.

    Raises:
        UsageError: it is not installed.
    """
    from specctl.demo import DEMO, demo_model

    try:
        demo_model()
    except ModelError as error:
        raise UsageError(
            f"no --model named, and {error.message}",
            f"`specctl recommend` names the best for this machine: specctl {command} --model NAME",
        ) from error
    err().print(
        "no --model named: the demo model, SmolLM2-135M; better ones for this machine: "
        "specctl recommend",
        style="dim",
        soft_wrap=True,
    )
    return DEMO
