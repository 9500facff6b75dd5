"""`specctl pull`: whole pairs onto this machine; one bar, or plain lines where nobody watches."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from specctl.cli.render import err
from specctl.errors import UsageError
from specctl.hub.errors import GatedError
from specctl.hub.fetch import FetchPolicy
from specctl.hub.lookup import look_up, parse_reference
from specctl.hub.profiles import choose, elsewhere_on_the_hub, wanted
from specctl.hub.progress import Done, Event, Note, Progress, Ready
from specctl.hub.pull import check_room
from specctl.hub.pull import pull as pull_files
from specctl.hub.remote import Hub, Wanted, hub_from_environment
from specctl.plan import catalog
from specctl.units import format_bytes, format_seconds

LINE_SECONDS = 5.0
BAR_WIDTH = 14  # what the bar keeps of the line, with the spaces around it
DEFAULT = FetchPolicy()

What = Annotated[
    list[str], typer.Argument(help="Profiles (id, id:QUANT, id:QUANT+METHOD) or hf:repo/file.")
]
Quant = Annotated[str | None, typer.Option("--quant", help="Of a profile; default: its usual one.")]
DraftMethod = Annotated[
    str | None, typer.Option("--draft", help="Method whose draft comes along: draft-simple, …")
]
NoDraft = Annotated[bool, typer.Option("--no-draft", help="The target alone.")]
Revision = Annotated[str | None, typer.Option("--revision", help="Branch, tag or commit of hf:.")]
Offline = Annotated[bool, typer.Option("--offline", help="Never ask the network.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be fetched, and stop.")]
Json = Annotated[bool, typer.Option("--json", help="Every step as one JSON line on stdout.")]
Stall = Annotated[float, typer.Option("--stall", help="Seconds of silence before reconnecting.")]
Retries = Annotated[int, typer.Option("--retries", help="In a row, without one new byte.")]


def pull(
    what: What,
    quant: Quant = None,
    draft: DraftMethod = None,
    no_draft: NoDraft = False,
    revision: Revision = None,
    offline: Offline = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    stall: Stall = DEFAULT.stall_seconds,
    retries: Retries = DEFAULT.attempts - 1,
) -> None:
    """Fetch the files of a whole pair; an interrupted pull goes on where it stopped.

    stdout gets the paths, one a line. HF_TOKEN, HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE are
    honoured, and the usual proxy and certificate variables.
    """
    if no_draft and draft:
        raise UsageError("--draft and --no-draft contradict each other")
    if not (0.1 <= stall <= 3600 and 0 <= retries <= 100):
        raise UsageError("--stall takes 0.1 … 3600 seconds, --retries 0 … 100")
    files = files_of(what, quant, "none" if no_draft else draft, revision)
    hub = hub_from_environment(offline)
    policy = dataclasses.replace(DEFAULT, stall_seconds=stall, attempts=retries + 1)
    if dry_run:
        _say_plan(files, hub, policy)
        return
    if as_json:
        for event in with_twins(pull_files(files, hub, policy), files):
            print(_line(event), flush=True)
        return
    for path in fetch_shown(files, hub, policy):
        print(path)


def fetch_shown(files: list[Wanted], hub: Hub, policy: FetchPolicy = DEFAULT) -> tuple[Path, ...]:
    """Fetch and show it on stderr; where each file lies, parts of split models in order.

    Raises:
        HubError: see specctl/hub/errors.py.
        typer.Exit: stopped by Ctrl-C.
    """
    paths: tuple[Path, ...] = ()
    try:
        with _shown() as show:
            for event in with_twins(pull_files(files, hub, policy), files):
                show.event(event)
                if isinstance(event, Done):
                    paths = event.paths
    except KeyboardInterrupt:
        err().print("\nstopped; what was fetched is kept: the same command resumes it")
        raise typer.Exit(130) from None
    return paths


def files_of(
    what: list[str],
    quant: str | None = None,
    draft: str | None = None,
    revision: str | None = None,
) -> list[Wanted]:
    """The files that these names mean, targets before their drafts; which draft goes to stderr.

    Raises:
        UsageError: no such profile, quant or draft, or a name that means no file of the hub.
    """
    files: list[Wanted] = []
    profiles = None
    for name in what:
        if name.startswith("hf:"):
            files.append(parse_reference(name, revision))
            continue
        if "/" in name:
            raise UsageError(f"{name!r} is no profile", f"a file on the hub is hf:{name}")
        profiles = profiles or catalog.load()
        selection = choose(profiles, name, quant, draft)
        err().print(f"{name}: {selection.name}", markup=False)
        files += wanted(selection)
    return files


def with_twins(events: Iterator[Event], files: list[Wanted]) -> Generator[Event, None, None]:
    """A gated repo: say where else the same model lies, if a profile knows."""
    try:
        yield from events
    except GatedError as error:
        names = tuple(want.file for want in files if want.repo == error.repo)
        twins = elsewhere_on_the_hub(catalog.load(), error.repo, names)
        if not twins:
            raise
        hint = f"{error.hint}\n  or take the same model elsewhere: {', '.join(twins[:3])}"
        raise GatedError(error.message, hint, error.repo) from error


def _say_plan(files: list[Wanted], hub: Hub, policy: FetchPolicy) -> None:
    steps = look_up(files, hub, policy)
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            job = end.value
            break
        if isinstance(step, Note):
            err().print(f"note: {step.text}", markup=False)
    for item in job.items:
        state = f"here, {item.found.where}" if item.found else "to fetch"
        if item.kept:
            state = f"{format_bytes(item.kept)} are here, the rest to fetch"
        print(f"{item.remote}\t{format_bytes(item.remote.size)}\t{state}")
    print(f"total\t{format_bytes(job.total)}\t{format_bytes(job.missing)} to fetch")
    check_room(job)


def _line(event: Event) -> str:
    fields = dataclasses.asdict(event)
    return json.dumps({"event": type(event).__name__.lower(), **fields}, default=str)


def _shown() -> AbstractContextManager[Plain]:
    return Bar() if err().is_terminal and not err().is_dumb_terminal else nullcontext(Plain())


class Plain:
    """Lines for a log: one every few seconds, and one for everything that happens."""

    def __init__(self) -> None:
        self._told = 0.0

    def event(self, event: Event) -> None:
        """Show one record."""
        if isinstance(event, Note):
            self.say(f"note: {event.text}")
        elif isinstance(event, Progress):
            self.progress(event)
        elif isinstance(event, Ready):
            self.say(ready_line(event))
        else:
            self.done(event)

    def progress(self, event: Progress) -> None:
        """Show how far the job is."""
        now = time.monotonic()
        if now - self._told >= LINE_SECONDS:
            self._told = now
            self.say(progress_line(event))

    def done(self, event: Done) -> None:
        """Say the sum."""
        if event.fetched:
            self.say(done_line(event))

    def say(self, text: str) -> None:
        """One line on stderr."""
        print(text, file=sys.stderr, flush=True)


def progress_line(event: Progress) -> str:
    """One line with bytes, rate and remaining time of the whole job."""
    parts = [
        f"{event.phase} {event.file} ({event.index}/{event.count})",
        f"{format_bytes(event.done)} of {format_bytes(event.total)}",
    ]
    if event.rate is not None:
        parts.append(f"{format_bytes(event.rate)}/s")
    if event.eta is not None and event.eta >= 1:
        parts.append(f"≈ {format_seconds(event.eta)} left")
    return ", ".join(parts)


def figures(event: Progress) -> str:
    """Bytes, rate and remaining time of the whole job, for beside a bar."""
    numbers = f"{format_bytes(event.done)} of {format_bytes(event.total)}"
    if event.rate is not None:
        numbers += f"  {format_bytes(event.rate)}/s"
    if event.eta is not None and event.eta >= 1:
        numbers += f"  ≈ {format_seconds(event.eta)}"
    return numbers


def done_line(event: Done) -> str:
    """What came, how long it took, and how fast that was."""
    return (
        f"{format_bytes(event.fetched)} fetched in {format_seconds(event.seconds)} "
        f"({format_bytes(event.fetched / max(event.seconds, 1e-3))}/s)"
    )


def ready_line(event: Ready) -> str:
    """What became of one file."""
    hashed = {True: "sha256 ok", False: "other sha256", None: "not verified"}[event.verified]
    how = "fetched" if event.fetched else f"already here ({event.where})"
    return f"{event.file}: {format_bytes(event.size)}, {how}, {hashed}"


def short_name(file: str, room: int) -> str:
    """The end of a file's name, where the quant is, in at most `room` characters."""
    name = file.rpartition("/")[2].removesuffix(".gguf")
    if len(name) <= room:
        return name
    return "…" + name[len(name) - room + 1 :] if room >= 4 else ""


class Bar(Plain):
    """One rich bar for the whole job: bytes, rate, remaining time."""

    def __enter__(self) -> Bar:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[numbers]}", markup=False),
            console=err(),
            transient=True,
            expand=True,
        )
        self._task = self._bar.add_task("looking up", total=None, numbers="")
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def progress(self, event: Progress) -> None:
        """Show how far the job is."""
        numbers = figures(event)
        count = f" {event.index}/{event.count}" if event.count > 1 else ""
        room = err().width - len(numbers) - len(count) - BAR_WIDTH
        self._bar.update(
            self._task,
            description=short_name(event.file, room) + count,
            total=event.total,
            completed=event.done,
            numbers=numbers,
        )

    def done(self, event: Done) -> None:
        """Say the sum."""
        self._bar.stop()
        super().done(event)

    def say(self, text: str) -> None:
        """One line on stderr."""
        err().print(text, markup=False, soft_wrap=True)
