"""`specctl watch`: the dashboard over somebody else's server, or its numbers for scripts."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TextIO

import typer
from rich.text import Text

from specctl import paths, recording
from specctl.cli import screen
from specctl.cli.render import err, out
from specctl.errors import UsageError
from specctl.events import Cycle, Finished, Interval, Record, Started, to_dict
from specctl.external.alerts import Alerts
from specctl.external.board import Board, exporting
from specctl.external.document import document, prometheus
from specctl.external.ledger import lifetime, why_wrong
from specctl.external.poll import Counters, Plan, open_server, probe, remarks_on
from specctl.external.poll import watch as watch_server
from specctl.external.probe import PROMPTS, started
from specctl.external.readings import Reading
from specctl.external.recognise import Seen
from specctl.external.remark import Remark
from specctl.external.wire import TIMEOUT, Line, address
from specctl.metrics import Totals, add, fold

Items = Iterator[Record | Remark]
_STYLES = {"note": "dim", "warning": "yellow", "alert": "bold yellow"}


def watch(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="A server of any known engine: host:port.")
    ],
    interval: Annotated[float, typer.Option("--interval", help="Seconds between looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="One look: all it has counted.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Records as lines; with --once one object.")
    ] = False,
    export: Annotated[
        str | None,
        typer.Option(
            "--prometheus", metavar="PORT", help="Re-export there; - prints one look as text."
        ),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="SPECCTL_API_KEY", help="Sent as a bearer.")
    ] = None,
    baseline: Annotated[
        float | None,
        typer.Option(
            "--baseline", metavar="TOK_S", help="Plain tok/s of this model: gives break-even."
        ),
    ] = None,
    probing: Annotated[
        bool,
        typer.Option("--probe", help="llama-server: send own prompts, see exact cycles."),
    ] = False,
    record: Annotated[
        Path | None, typer.Option("--record", help="Also append the records to this file.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Lines, not the full screen.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 1 if a rule of thumb was broken.")
    ] = False,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds for an answer.")] = TIMEOUT,
    theme: Annotated[str | None, typer.Option("--theme", help="textual-light, nord, …")] = None,
) -> None:
    """Watch a llama-server, vLLM, SGLang, TensorRT-LLM or specctl server speculate.

    The server is only read, unless --probe asks it something. What it does not tell stays unknown.
    """
    _check(interval, baseline, timeout, once, export)
    if once and record is not None:
        raise UsageError("--once records nothing", "without --once, --record FILE keeps records")
    if as_json and export == "-":
        raise UsageError("--json and --prometheus - are two outputs", "name one of them")
    line = Line(address(url), api_key, timeout, "--timeout SECONDS")
    plan = Plan(interval, 1 / baseline if baseline else None, probing)
    try:
        seen, reading = open_server(line, probing)
        if once or export == "-":
            raised = _once(line, seen, reading, plan, as_json, export)
        else:
            full = not (as_json or plain) and screen.why_not() is None
            raised = _go_on(line, seen, reading, plan, record, export, full, as_json, theme)
    finally:
        line.close()
    if strict and raised:
        raise typer.Exit(1)


def _check(
    interval: float, baseline: float | None, timeout: float, once: bool, export: str | None
) -> None:
    if not 0.1 <= interval <= 3600:
        raise UsageError(f"--interval {interval:g} is not in 0.1 … 3600 seconds")
    if baseline is not None and not 0.001 <= baseline <= 1e6:
        raise UsageError(f"--baseline {baseline:g} is no speed", "plain tokens per second")
    if not 0.1 <= timeout <= 600:
        raise UsageError(f"--timeout {timeout:g} is not in 0.1 … 600 seconds")
    if export not in (None, "-") and not (export.isascii() and export.isdecimal()):
        raise UsageError(f"--prometheus {export!r}", "a port, or - to print one look")
    if export not in (None, "-") and int(export[:6]) > 65535:
        raise UsageError(f"--prometheus {export} is not in 0 … 65535")
    if once and export not in (None, "-"):
        raise UsageError(f"--once with --prometheus {export} would serve nothing", "--prometheus -")


# ---------------------------------------------------------------- one look


def _once(
    line: Line, seen: Seen, reading: Reading | None, plan: Plan, as_json: bool, export: str | None
) -> int:
    """Print all that is known at once; how many rules are broken."""
    totals, remarks, since = _all_of(line, seen, reading, plan)
    said = Alerts().once(totals) if totals is not None else []
    remarks += said
    if export == "-":
        print(prometheus(seen, totals or Totals(), totals or Totals()), end="")
    elif as_json:
        running = reading.running if reading else None
        print(json.dumps(document(seen, totals, since, remarks, running), ensure_ascii=False))
    else:
        _panel(seen, totals, since)
    if not as_json:
        for remark in remarks:
            _say(remark)
    return len(said)


def _all_of(
    line: Line, seen: Seen, reading: Reading | None, plan: Plan
) -> tuple[Totals | None, list[Remark], str]:
    """The sums, what is to be said of them, and since when they count."""
    if plan.probe:
        items = [
            item
            for prompt in PROMPTS
            for item in probe(line, seen, prompt, plan.t_1, threading.Event().wait)
        ]
        records = [item for item in items if isinstance(item, Cycle)]
        return fold(records), [i for i in items if isinstance(i, Remark)], "own prompts just now"
    if reading is None:  # a specctl server: its counters beside its stream
        reading = Counters(line, seen).look()
    remarks = list(remarks_on(seen, reading))
    since = "the read before" if reading.drained else "the server's start"
    wrong = why_wrong(reading)
    if wrong:
        remarks.append(Remark(f"its counters do not fit together: {wrong}", "warning"))
        return None, remarks, since
    return fold([lifetime(reading, seen.engine, plan.t_1)]), remarks, since


def _panel(seen: Seen, totals: Totals | None, since: str) -> None:
    from specctl.tui import words
    from specctl.units import number

    console = out()
    head = " ".join(part for part in (seen.title, seen.version) if part)
    console.print(Text.assemble((head, "bold"), f"  {seen.model}  {seen.url}"), soft_wrap=True)
    on = {True: "on", False: "off", None: "not told"}[seen.speculates]
    method = f", {seen.method}" if seen.method else ""
    console.print(Text(f"speculation {on}{method}; sums since {since}"), soft_wrap=True)
    if totals is None:
        return
    console.print(Text(words.watched(totals)), soft_wrap=True)
    shares = totals.acceptance_by_position or totals.acceptance_of_drafted
    if shares:
        over = "" if totals.acceptance_by_position else " (of all drafts)"
        figures = " ".join(number(share) for share in shares[:16])
        console.print(Text(f"by position{over}: {figures}"), soft_wrap=True)


# ---------------------------------------------------------------- on and on


def follow(line: Line, seen: Seen) -> None:
    """Watch a server that was just recognised, until it is left."""
    _go_on(line, seen, None, Plan(), None, None, screen.why_not() is None, False, None)


def _go_on(
    line: Line,
    seen: Seen,
    first: Reading | None,
    plan: Plan,
    record: Path | None,
    export: str | None,
    full: bool,
    as_json: bool,
    theme: str | None,
) -> int:
    """Watch until it is left; how often rules were broken."""
    board, stop = Board(seen), threading.Event()
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(recording.appending(record)) if record else None
        if export is not None:
            where = stack.enter_context(exporting(board, int(export)))
            err().print(Text(f"re-exported at {where}", "dim"), soft_wrap=True)

        def items() -> Items:
            for item in watch_server(line, seen, plan, stop.wait, first=first):
                yield from board.enter(item)

        made = _recorded(items(), seen, sink)
        if full:
            _show(made, seen, plan, stop, record is not None, theme)
        else:
            _print(made, seen, as_json)
    return board.alerts.raised


def _recorded(items: Items, seen: Seen, sink: TextIO | None) -> Items:
    """Written as they pass, with a head that names the server."""
    headed = False
    for item in items:
        if sink is not None and not isinstance(item, Remark):
            if not headed and not isinstance(item, Started):
                recording.write_line(started(seen), sink)
            headed = True
            recording.write_line(item, sink)
            sink.flush()
        yield item


def _print(items: Items, seen: Seen, as_json: bool) -> None:
    """A line for each interval, or for each answer of a server that shows cycles."""
    from specctl.tui import words

    def say(totals: Totals) -> None:
        print(f"{time.strftime('%H:%M:%S')}  {words.watched(totals)}", flush=True)

    answer = Totals()
    head = f"watching {seen.title} at {seen.url}; Ctrl-C ends"
    err().print(Text(head, "dim"), soft_wrap=True)
    try:
        for item in items:
            if isinstance(item, Remark):
                _say(item)
            elif as_json:
                print(json.dumps(to_dict(item)), flush=True)
            elif isinstance(item, Interval):
                say(fold([item]))
            elif isinstance(item, Cycle):
                answer = add(answer, item)
            elif isinstance(item, Finished) and answer.cycles:
                say(answer)
                answer = Totals()
    except KeyboardInterrupt:  # the way to end it
        err().print()


def _say(remark: Remark) -> None:
    mark = "" if remark.kind == "note" else "! "
    err().print(Text(f"{mark}{remark.text}", _STYLES[remark.kind]), soft_wrap=True)


def _show(
    items: Items, seen: Seen, plan: Plan, stop: threading.Event, recorded: bool, theme: str | None
) -> None:
    from specctl.tui.feed import Feed
    from specctl.tui.messages import Event, Note, Ready
    from specctl.tui.screens.watch import WatchScreen

    head = started(seen)
    ready = Ready(
        model=head.model,
        draft_model=None,
        spec_types=head.spec_types,
        k=None,
        k_max=0,
        n_ctx=0,
        threads=0,
        temperature=0.0,
        device=f"{seen.title} {seen.version}".strip(),
    )

    def job() -> Iterator[Event]:
        yield ready
        if plan.t_1 is None and not plan.probe and not seen.cycles:
            yield Note("break-even needs the plain speed of this model: --baseline TOK_S")
        for item in items:
            if isinstance(item, Remark):
                yield Note(item.text, "note" if item.kind == "note" else "warning")
            else:
                yield item

    feed = Feed()
    try:
        screen.run(
            lambda: WatchScreen(
                feed,
                job,
                title=f"{seen.title} at {seen.url}",
                intervals=not (plan.probe or seen.cycles),
                recording=recorded,
                exports=paths.data_dir() / "exports",
                ascii_only=screen.ascii_only(),
            ),
            theme,
        )
    finally:
        stop.set()
        feed.close(1.0)  # a stream that is silent is left to end with the process
