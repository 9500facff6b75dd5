"""`specctl engine run`: starts what `engine show` prints, sees that it speculates, and stops it."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from specctl import paths
from specctl.cli.engine import (
    BUILD,
    Adaptive,
    Ctx,
    Draft,
    EngineName,
    Extra,
    Host,
    K,
    Model,
    Nearest,
    Port,
    SpecType,
    Tp,
)
from specctl.cli.interrupt import ended_alike
from specctl.cli.render import err
from specctl.errors import RemoteError, UsageError
from specctl.external.launch import Launch, folded
from specctl.external.poll import open_server
from specctl.external.process import (
    GRACE,
    PATIENCE,
    Server,
    check_port,
    check_speculation,
    ended_meanwhile,
    find_program,
    title_of,
    wait_ready,
    write_files,
)
from specctl.external.recognise import Seen
from specctl.external.wire import Line, address
from specctl.external.wish import Options, make_wish
from specctl.plan import catalog

_POLL = 0.2


def engine_run(
    engine: EngineName,
    model: Model,
    extra: Extra = None,
    draft: Draft = None,
    spec_type: SpecType = None,
    k: K = None,
    ctx: Ctx = None,
    tp: Tp = 1,
    host: Host = "127.0.0.1",
    port: Port = None,
    adaptive: Adaptive = False,
    nearest: Nearest = False,
    binary: Annotated[
        Path | None, typer.Option("--bin", help="The engine's program, where not on PATH.")
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", help="Seconds until it must be ready.")
    ] = PATIENCE,
    grace: Annotated[
        float, typer.Option("--grace", help="Seconds between asking it to end and killing it.")
    ] = GRACE,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Send a first request, see it drafted for.")
    ] = True,
    watching: Annotated[
        bool, typer.Option("--watch", help="Go on to the dashboard; leaving it stops the server.")
    ] = False,
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", envvar="SPECCTL_API_KEY", help="Where -- FLAGS set one."),
    ] = None,
) -> None:
    """Start another engine with this target and method, until Ctrl-C.

    Waits until it is ready, says whether it really speculates, and shows the end of its log where
    it fails. Its whole process group ends with this command.
    """
    for name, value in (("wait", wait), ("grace", grace)):
        if not 0.1 <= value <= 86400:
            raise UsageError(f"--{name} {value:g} is not in 0.1 … 86400 seconds")
    options = Options(
        draft, spec_type, k, ctx, tp, 1, None, host, port, adaptive, nearest, tuple(extra or ())
    )
    launch = BUILD[engine](make_wish(engine, model, options, catalog.load()))
    command = find_program(launch, binary)
    check_port(launch)
    folder = paths.cache_dir() / "engines"
    command = write_files(launch, command, folder / f"{engine}-{launch.port}")
    _tell(launch, command)
    line = Line(address(launch.url), api_key)
    with contextlib.closing(line), ended_alike():
        try:
            with Server(command, folder / f"{engine}-{launch.port}.log", grace) as server:
                _run(server, line, launch, wait, check, watching)
        except KeyboardInterrupt:
            err().print(f"{title_of(launch)} is stopped", style="dim")


def _tell(launch: Launch, command: tuple[str, ...]) -> None:
    err().print(Text(folded(command), "dim"), soft_wrap=True)
    for note in launch.notes:
        err().print(Text(f"! {note}", "yellow"), soft_wrap=True)


def _run(
    server: Server, line: Line, launch: Launch, wait: float, check: bool, watching: bool
) -> None:
    def tell(text: str) -> None:
        err().print(Text(text, "dim"), soft_wrap=True)

    tell(f"starting {title_of(launch)}, process {server.pid}; its log: {server.log}")
    begin = time.monotonic()
    wait_ready(server, line, wait, tell)
    tell(f"ready after {time.monotonic() - begin:.1f} s")
    seen = None
    checking = check and launch.methods != ("none",)
    if checking or watching:
        try:
            seen, _ = open_server(line, probing=False)
            if checking:
                _check(line, seen, server)
        except RemoteError as error:
            died = ended_meanwhile(server, patience=1.0)
            if died is None:
                raise
            raise died from error
    print(launch.url, flush=True)
    if watching and seen is not None:
        from specctl.cli.watch import follow

        follow(line, seen)
        return
    tell(f"watch it: specctl watch {launch.url}   Ctrl-C stops it")
    while (ended := ended_meanwhile(server)) is None:
        time.sleep(_POLL)
    raise ended


def _check(line: Line, seen: Seen, server: Server) -> None:
    for remark in check_speculation(line, seen, server):
        style = "yellow" if remark.kind == "warning" else "green"
        mark = "! " if remark.kind == "warning" else ""
        err().print(Text(mark + remark.text, style), soft_wrap=True)
