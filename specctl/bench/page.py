"""A result as one self-contained HTML page: charts, tables, and the document itself to download.

Pure: the page is a function of the document, which may come from a run or from a file. No script,
nothing from the network. Figures and words are those of the terminal's tables.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specctl.bench import svg, words
from specctl.bench.stored import Stored, StoredRow, parse
from specctl.bench.svg import clean
from specctl.units import format_seconds, number, percent

_STYLE = """
:root{color-scheme:light dark}
body{margin:0 auto;padding:24px 20px 60px;max-width:940px;line-height:1.45;
font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:15px;
background:#fff;color:#1f2328}
h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:34px 0 6px}
p{margin:6px 0}.sub,.note{color:#59636e}.note{font-size:13.5px;max-width:80ch}
.alarm,.warning{font-weight:600}.alarm{color:#cf222e}.warning{color:#9a6700}
svg{max-width:100%;height:auto;display:block}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:3px 10px 3px 0;text-align:right;white-space:nowrap}
th{font-weight:600;border-bottom:1px solid #d8dee4;vertical-align:bottom}
td{border-bottom:1px solid #eef1f4}
th.left,td.left{text-align:left}td.break{white-space:normal;overflow-wrap:anywhere}
td.faster{color:#1a7f37}td.slower,td.bug{color:#cf222e}td.same{color:#9a6700}
a{color:#0969da}
@media(prefers-color-scheme:dark){
body{background:#0d1117;color:#f0f6fc}.sub,.note{color:#9198a1}
th{border-color:#30363d}td{border-color:#21262d}
td.faster{color:#3fb950}td.slower,td.bug,.alarm{color:#f85149}td.same,.warning{color:#d29922}
a{color:#4493f8}}
"""
_POSITIONS = 16  # in the table; the chart shows all
Cell = tuple[str, str]  # (class, text)


def page(document: Mapping[str, Any], name: str = "result") -> str:
    """The whole page. `name` is the downloaded file's, without its suffix.

    Raises:
        UsageError: this is no whole result.
    """
    stored = parse(document, name)
    title = f"{stored.model.file}: does speculative decoding pay?"
    parts = [
        f"<h1>{clean(title)}</h1>",
        *(f'<p class="sub">{clean(line)}</p>' for line in svg.about(stored)[not stored.draft :]),
        *(f'<p class="alarm">{clean(failure)}</p>' for failure in stored.failures),
        *(f'<p class="warning">{clean(warning)}</p>' for warning in _warnings(stored)),
        "<h2>Does it pay?</h2>",
        svg.speedups(stored),
        _table(_SPEED_HEADS, [_speed_cells(stored, row) for row in stored.shown]),
        _note(svg.legend(stored)),
        *_why(stored),
        "<h2>Prompt by prompt</h2>",
        _table(_PROMPT_HEADS, list(_prompt_cells(stored))),
        "<h2>What was run</h2>",
        _table(("left ", "left "), [[("left", k), ("left break", v)] for k, v in _facts(stored)]),
        *(_note(note) for note in stored.notes),
        *_served(stored),
        f"<p>{_download(document, name)}</p>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{clean(title)}</title><style>{_STYLE}{svg.STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def picture(document: Mapping[str, Any], name: str = "result") -> str:
    """The speed-up chart alone, as an SVG file.

    Raises:
        UsageError: this is no whole result.
    """
    return svg.picture(parse(document, name))


def _served(stored: Stored) -> Iterable[str]:
    """Batch sizes, and how it was asked."""
    if stored.served and stored.served.batches:
        yield "<h2>How the gain changes with the batch</h2>"
        yield _note(words.BATCHES)
        heads = ("left batch", "left arm", *_SPEED_HEADS[2:])
        yield _table(heads, [_speed_cells(stored, row) for row in stored.served.batches])
        yield from (_note(f"in batches {one}") for one in stored.served.batch_failures)
        waves = sum(row.identity.differs for row in stored.served.batches)
        if waves:
            yield _note(f"waves with a differing text: {waves}. {words.DIFFERS}")
    if stored.conditions:
        yield "<h2>Read with it</h2>"
        yield from (_note(line) for line in stored.conditions)


def _download(document: Mapping[str, Any], name: str) -> str:
    """The document inside a link: it needs no server and no script."""
    data = base64.b64encode(json.dumps(document).encode()).decode()
    return (
        f'<a download="{clean(name)}.json" href="data:application/json;base64,{data}">'
        "Download this result as JSON</a> (for specctl bench compare)"
    )


def _warnings(stored: Stored) -> Iterable[str]:
    if stored.interrupted:
        yield "stopped early: this is about what every arm had done"
    if stored.served and stored.served.failure:
        yield stored.served.failure
    if stored.busy is not None:
        yield f"other programs were running{stored.busy_where} (load average {stored.busy:.1f})"


def _note(text: str) -> str:
    return f'<p class="note">{clean(text)}</p>'


# ---------------------------------------------------------------- tables


def _table(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """`heads`: a heading each; one that starts with `left ` is of a column of text."""
    head = "".join(
        f'<th class="left">{clean(one[5:])}</th>'
        if one[:5] == "left "
        else f"<th>{clean(one)}</th>"
        for one in heads
    )
    top = f"<thead><tr>{head}</tr></thead>" if any(one.strip() != "left" for one in heads) else ""
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{clean(text)}</td>' for kind, text in row) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table>{top}<tbody>{body}</tbody></table></div>'


_SPEED_HEADS = (
    *("left workload", "left arm", "plain tok/s", "spec. tok/s", "speed-up", "spread"),
    *("left text", "left verdict"),
)


def _first(stored: Stored, row: StoredRow) -> list[Cell]:
    name = row.workload or ("total" if len(stored.shown) > len(stored.totals) else "all prompts")
    return [("left", name), ("left", row.arm)]


def _speed_cells(stored: Stored, row: StoredRow) -> list[Cell]:
    speed = row.speed
    said = svg.word(stored, row)
    kind = (
        ""
        if said == words.NEVER
        else {"no difference shown": "same"}.get(speed.verdict, speed.verdict)
    )
    return [
        *_first(stored, row),
        ("", number(speed.plain_rate, ".1f")),
        ("", number(speed.rate, ".1f")),
        ("", number(speed.speedup, ".2f", "×")),
        ("", words.spread(speed)),
        ("left bug" if row.identity.bugs else "left", words.text(row.identity)),
        (f"left {kind}", said),
    ]


_WHY_HEADS = (
    *("left workload", "left arm", "α", "accepted/cycle", "break-even", "coverage", "draft %"),
    *("verify %", "first token plain", "first token spec."),
)


def _why(stored: Stored) -> Iterable[str]:
    """Accepted per cycle against break-even, shares of the time, positions, and who was silent."""
    yield "<h2>Why?</h2>"
    if any(row.accepted_per_cycle is not None for row in stored.shown):
        yield _note(
            "Tokens accepted per drafted cycle (dot) against the measured break-even (tick): what "
            "a drafted cycle must bring to be level with plain decoding. The scale is that of "
            "1 + accepted, so that equal distances are equal factors."
        )
        yield svg.break_even(stored)
    yield _table(_WHY_HEADS, [_why_cells(stored, row) for row in stored.shown])
    for silent in stored.undrafted:
        where = f" on {silent.workload}" if silent.workload else ""
        because = "; ".join(f"{reason} ({count})" for reason, count in silent.reasons[:3])
        yield _note(
            f"{silent.arm}{where}: 0 of {silent.cycles} cycles drafted, because: "
            f"{because or 'no reason given'}"
        )
    if any(row.acceptance_by_position for row in stored.totals):
        yield "<h2>Acceptance by position</h2>"
        yield _note(
            "Of the cycles that drafted so far, the share in which this token and all before it "
            f"stood, in %. Pale: fewer than {svg.FEW} cycles."
        )
        yield svg.positions(stored)
        heads = ("left arm", *(str(n + 1) for n in range(_positions_shown(stored))))
        yield _table(heads, [_position_cells(stored, row) for row in stored.totals])


def _why_cells(stored: Stored, row: StoredRow) -> list[Cell]:
    return [
        *_first(stored, row),
        ("", percent(row.acceptance_rate)),
        ("", number(row.accepted_per_cycle)),
        ("", number(row.break_even)),
        ("", percent(row.coverage)),
        ("", percent(row.draft_share)),
        ("", percent(row.verify_share)),
        ("", words.short_time(row.plain_ttft)),
        ("", words.short_time(row.ttft)),
    ]


def _positions_shown(stored: Stored) -> int:
    longest = max((len(row.acceptance_by_position) for row in stored.totals), default=0)
    return min(longest, _POSITIONS)


def _position_cells(stored: Stored, row: StoredRow) -> list[Cell]:
    shares = row.acceptance_by_position[:_POSITIONS]
    blank = _positions_shown(stored) - len(shares)
    return [
        ("left", row.arm),
        *(("", f"{share * 100:.0f}") for share in shares),
        *[("", "–")] * blank,
    ]


_PROMPT_HEADS = (
    *("left prompt", "left arm", "plain tok/s", "spec. tok/s", "speed-up", "spread"),
    "left verdict",
)


def _prompt_cells(stored: Stored) -> Iterable[list[Cell]]:
    last = None
    for one in stored.prompt_speeds:
        speed = one.speed
        kind = {"no difference shown": "same"}.get(speed.verdict, speed.verdict)
        yield [
            ("left", one.prompt if one.prompt != last else ""),
            ("left", one.arm),
            ("", number(speed.plain_rate, ".1f")),
            ("", number(speed.rate, ".1f")),
            ("", number(speed.speedup, ".2f", "×")),
            ("", words.spread(speed)),
            (f"left {kind}", words.verdict(speed)),
        ]
        last = one.prompt


def _facts(stored: Stored) -> Iterable[tuple[str, str]]:
    machine = stored.machine
    yield "model", str(stored.model)
    if stored.draft:
        yield "draft model", str(stored.draft)
    yield (
        "asked from" if stored.is_of_theirs else "machine",
        (
            f"{machine.get('cpu')}, {machine.get('physical_cores')} cores "
            f"({machine.get('logical_cores')} logical), {machine.get('memory_gib')} GiB, "
            f"{machine.get('system')} {machine.get('architecture')}"
        ),
    )
    yield "threads", stored.threads_said
    yield "software", f"specctl {stored.specctl}, {stored.engine}, Python {machine.get('python')}"
    yield "date", stored.date
    yield "took", format_seconds(stored.wall_seconds)
    if "n_ctx" in stored.settings:
        yield "context", f"{stored.settings['n_ctx']} tokens"
    target = stored.settings.get("target")
    if isinstance(target, dict):
        yield "KV cache", f"{target.get('kv_type_k')} / {target.get('kv_type_v')}"
    yield "sampling", ", ".join(f"{name} {value}" for name, value in stored.sampling.items())
    yield "prompts", ", ".join(f"{key} ({n} tokens)" for key, (n, _) in stored.prompts.items())
