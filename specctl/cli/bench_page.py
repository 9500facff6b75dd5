"""`specctl bench page RESULT`: a kept result in the terminal, as an HTML page or a picture."""

from __future__ import annotations

from typing import Annotated

import typer

from specctl.bench.results import check_writable
from specctl.bench.stored import find, load, read_json
from specctl.cli.bench import Html, Svg, write_pages
from specctl.cli.bench_kept import show
from specctl.cli.render import out
from specctl.errors import UsageError


def bench_page(
    result: Annotated[
        str, typer.Argument(metavar="RESULT", help="A result, by path or kept name.")
    ],
    html: Html = None,
    svg: Svg = None,
) -> None:
    """Show a result of specctl bench: in the terminal, or as a page with all of it, or a chart.

    The page is one file without scripts: charts, tables, and the result itself to
    download. The picture is readable on light and dark grounds.
    """
    asked = [file for file in (html, svg) if file is not None]
    if not asked:
        show(out(), load(result))
        return
    for file in asked:
        check_writable(file)
    source = find(result)
    names = [file.absolute() for file in (*asked, source)]
    if len(set(names)) < len(names):
        raise UsageError("one file cannot be two things", "RESULT, --html and --svg must differ")
    data = read_json(source)
    if not isinstance(data, dict):
        raise UsageError(f"{result} is not a result of specctl bench")
    write_pages(data, source.stem, html, svg)
