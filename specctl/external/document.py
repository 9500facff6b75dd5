"""A server's numbers for scripts: one JSON document, and Prometheus text under our definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from specctl.external.exposition import Series, render
from specctl.external.recognise import Seen
from specctl.external.remark import Remark
from specctl.metrics import Totals

SCHEMA = 1
# name → what it is; the names are those of metrics.Totals
NUMBERS = {
    "acceptance_rate": "accepted over drafted tokens",
    "mean_draft_length": "drafted tokens per drafted pass",
    "accepted_per_cycle": "accepted tokens per drafted pass",
    "tokens_per_pass": "generated tokens over all target passes; 1 is no gain",
    "mean_acceptance_length": "1 + accepted per drafted pass",
    "coverage": "share of passes with a draft",
    "tokens_per_second": "generated tokens over the time of generation",
    "draft_share": "drafting's share of the time",
    "verify_share": "the target's share of the time",
    "break_even": "accepted per drafted pass needed to be level with plain decoding",
    "estimated_speedup": "against plain decoding, an estimate",
}
_COUNTS = {
    "cycles": ("passes_total", "target passes", "passes_known"),
    "drafted_cycles": ("drafts_total", "passes with a draft", "drafted_passes_known"),
    "drafted": ("drafted_tokens_total", "drafted tokens", ""),
    "accepted": ("accepted_tokens_total", "accepted tokens", ""),
    "emitted": ("generated_tokens_total", "generated tokens", "emitted_known"),
}
_PREFIX = "specctl_watch_"


def document(
    seen: Seen,
    totals: Totals | None,
    since: str,
    remarks: Iterable[Remark] = (),
    running: int | None = None,
) -> dict[str, Any]:
    """All that is known; null for the rest. `since`: what stretch the sums are of."""
    said = list(remarks)
    t = totals if totals is not None else Totals()
    return {
        "schema": SCHEMA,
        "url": seen.url,
        "engine": seen.engine,
        "version": seen.version or None,
        "model": seen.model or None,
        "speculates": seen.speculates,
        "method": seen.method or None,
        "since": since,
        "running": running,
        "passes": _known(t, "cycles", totals),
        "drafts": _known(t, "drafted_cycles", totals),
        "drafted": _known(t, "drafted", totals),
        "accepted": _known(t, "accepted", totals),
        "generated": _known(t, "emitted", totals),
        **{name: getattr(t, name) for name in NUMBERS},
        "acceptance_by_position": list(t.acceptance_by_position) or None,
        "acceptance_of_drafted": list(t.acceptance_of_drafted) or None,
        "standing": t.standing,
        "exact": t.exact if totals is not None else None,
        "alerts": [one.text for one in said if one.kind == "alert"],
        "notes": [one.text for one in said if one.kind != "alert"],
    }


def _known(t: Totals, name: str, given: Totals | None) -> int | None:
    flag = _COUNTS[name][2]
    if given is None or (flag and not getattr(t, flag)):
        return None
    count: int = getattr(t, name)
    return count


def prometheus(seen: Seen, whole: Totals, recent: Totals, up: bool = True) -> str:
    """Counters of all that was watched, gauges of the recent stretch. The unknown is left out."""
    labels: Mapping[str, str] = {"engine": seen.engine, "model": seen.model, "url": seen.url}
    series = [_one("up", "gauge", "the server answers", float(up))]
    for name, (suffix, about, _) in _COUNTS.items():
        count = _known(whole, name, whole)
        if count is not None:
            series.append(_one(suffix, "counter", about, float(count)))
    for name, about in NUMBERS.items():
        value = getattr(recent, name)
        if value is not None:
            series.append(_one(name, "gauge", about, float(value)))
    for name, shares in (
        ("acceptance_by_position", recent.acceptance_by_position),
        ("acceptance_of_drafted", recent.acceptance_of_drafted),
    ):
        if shares:
            values = tuple(({"position": str(at)}, share) for at, share in enumerate(shares))
            about = "acceptance by draft position, from 0"
            series.append(Series(_PREFIX + name, "gauge", about, values))
    return render(series, labels)


def _one(name: str, kind: str, about: str, value: float) -> Series:
    return Series(_PREFIX + name, kind, about, (({}, value),))
