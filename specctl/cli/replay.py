"""`specctl replay`: a recording on the dashboard, at original speed or any other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specctl import paths, recording
from specctl.cli import screen
from specctl.cli.render import err, out
from specctl.errors import SpecctlError, UsageError
from specctl.events import Record

File = Annotated[Path, typer.Argument(metavar="FILE", help="Made by chat --record, or F9.")]
Speed = Annotated[float, typer.Option("--speed", help="Times the original; 0.1 to 100.")]
Once = Annotated[bool, typer.Option("--once", help="Print the final panel and end.")]
Theme = Annotated[str | None, typer.Option("--theme", help="textual-light, nord, …")]
Svg = Annotated[
    Path | None, typer.Option("--svg", help="Save the final screen as a picture, open none.")
]
Size = Annotated[str, typer.Option("--size", help="Of the picture, columns x lines.")]
At = Annotated[
    float | None, typer.Option("--at", help="Begin (or take the picture) here, seconds.")
]


def replay(
    file: File,
    speed: Speed = 1.0,
    once: Once = False,
    at: At = None,
    svg: Svg = None,
    size: Size = "120x40",
    theme: Theme = None,
) -> None:
    """Play a recording: pause, step by cycle, change speed, jump. F1 lists the keys.

    Where the full screen cannot open, and with --once, the final panel is printed.
    """
    if not 0.1 <= speed <= 100:
        raise UsageError(f"--speed {speed:g} is not in 0.1 … 100")
    read = list(recording.read(file))
    records = list(recording.whole(read))
    if at is not None and not 0 <= at < 1e9:
        raise UsageError(f"--at {at:g} is no moment of a recording", "seconds from its start")
    if not records:
        raise SpecctlError(f"{file} holds no records", "chat --record FILE writes them")
    if len(records) > len(read):
        err().print(f"note: {recording.IN_THE_MIDDLE}")
    if svg is not None and svg.suffix.lower() != ".svg":
        raise UsageError(f"--svg {svg} is no .svg file", "name the picture like screen.svg")
    if svg is not None:
        _picture(records, svg, picture_size(size), theme, at)
    elif once or screen.why_not() is not None:
        _panel(records, at)
    else:
        _play(records, speed, at, theme)


def picture_size(text: str) -> tuple[int, int]:
    """Columns and lines of `120x40`, at most 400 and 200. Raises UsageError."""
    columns, _, lines = text.lower().replace("×", "x").partition("x")
    if not (columns.isdecimal() and lines.isdecimal() and int(columns) >= 40 and int(lines) >= 10):
        raise UsageError(f"--size {text!r} is not a size", "write it like 120x40; at least 40x10")
    return min(int(columns), 400), min(int(lines), 200)


def _panel(records: list[Record], at: float | None) -> None:
    """The figures of the whole recording, or of its part up to `at`, as lines."""
    from specctl.tui.panel import panel_lines
    from specctl.tui.player import Player

    player = Player(records)
    player.finish() if at is None else player.seek(at)
    console = out()
    for line in panel_lines(player.live, console.width, screen.ascii_only()):
        console.print(line)


def _play(records: list[Record], speed: float, at: float | None, theme: str | None) -> None:
    from specctl.tui.player import Player
    from specctl.tui.screens.replay import ReplayScreen

    player = Player(records)
    if at is not None:
        player.seek(at)
    exports = paths.data_dir() / "exports"
    ascii_only = screen.ascii_only()
    screen.run(
        lambda: ReplayScreen(player, speed=speed, exports=exports, ascii_only=ascii_only), theme
    )


def _picture(
    records: list[Record], path: Path, size: tuple[int, int], theme: str | None, at: float | None
) -> None:
    from specctl.tui.panel import picture

    text = picture(records, size, theme, at)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpecctlError(f"cannot write {path}: {error.strerror}") from error
