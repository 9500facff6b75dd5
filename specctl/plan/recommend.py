"""Which configurations to run on a machine: ranked, explained, with those left out and why.

Ranking: what stays under 8 tok/s last, then by quality class, then by predicted speed. First the
best configuration of each model, then further ones of the same models. What needs llama-server is
ranked apart: `specctl chat` does not run it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from specctl.errors import UsageError
from specctl.plan.budget import Budget
from specctl.plan.candidates import (
    Configuration,
    Refusal,
    Wish,
    configurations,
    least_context,
    with_context,
)
from specctl.plan.catalog import Catalog
from specctl.plan.profile import IN_PROCESS, METHODS, USES
from specctl.plan.speed import middle

# A drafter is part of a row only from this middle of its predicted range on, whatever the method:
# in specctl chat, and where another engine would have to be set up for it. Judgements.
LEAST_GAIN = 1.05
LEAST_GAIN_ELSEWHERE = 1.10
NOT_CHOSEN = 8
NAMES = 3  # of those that share one reason
MANY = 10  # so many names are a count


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`ranked` runs in `specctl chat`, `elsewhere` needs llama-server.

    `refused` are those a reader would ask for, `all_refused` everything that was left out.
    """

    ranked: tuple[Configuration, ...]
    elsewhere: tuple[Configuration, ...]
    refused: tuple[Refusal, ...]
    all_refused: tuple[Refusal, ...]
    budget: Budget
    wish: Wish


def recommend(catalog: Catalog, budget: Budget, wish: Wish, top: int = 8) -> Recommendation:
    """Rank all configurations of the catalogue for one budget.

    Raises:
        UsageError: a wish that cannot be meant.
    """
    check(catalog, wish, top)
    found: list[Configuration] = []
    refused: list[Refusal] = []
    for model in catalog:
        if model.role == "draft":
            continue
        for answer in configurations(catalog, model, budget, wish):
            if isinstance(answer, Configuration):
                found.append(answer)
            else:
                refused.append(answer)
    found, older = _without_older(catalog, found)
    found, useless = _worth_showing(found, budget, wish)
    if wish.method is not None:
        found = [one for one in found if one.method == wish.method]
    ranked = _diverse([one for one in found if one.in_process], top)
    elsewhere = sorted((one for one in found if not one.in_process), key=lambda one: one.sort_key)
    shown = {one.model.id for one in (*ranked, *elsewhere[:top])}
    outdated = {one.model for one in older}
    refused = [one for one in (*useless, *refused) if one.model not in outdated]
    return Recommendation(
        ranked=tuple(with_context(one, budget, wish) for one in ranked),
        elsewhere=tuple(elsewhere[:top]),
        refused=_notable(_of_method([*refused, *older], wish.method), shown, ranked, wish),
        all_refused=(*refused, *older),
        budget=budget,
        wish=wish,
    )


def check(catalog: Catalog, wish: Wish, top: int) -> None:
    """Raises UsageError where a wish names something that does not exist."""
    if wish.use not in USES:
        raise UsageError(f"{wish.use!r} is not a use", "one of " + ", ".join(USES))
    if wish.method is not None and wish.method in IN_PROCESS.difference(METHODS):
        raise UsageError(
            f"nothing was measured that predicts {wish.method}: it cannot be ranked",
            "--method ngram-mod or draft-simple; specctl chat runs either by auto",
        )
    if wish.method is not None and wish.method not in METHODS:
        raise UsageError(
            f"{wish.method!r} is not a drafting method", "one of " + ", ".join(METHODS)
        )
    licences = sorted({model.licence for model in catalog})
    if wish.licence is not None and wish.licence.lower() not in licences:
        raise UsageError(f"no model has licence {wish.licence!r}", "one of " + ", ".join(licences))
    if wish.ctx < 256:
        raise UsageError(f"a context of {wish.ctx} tokens is too small", "at least 256")
    if top < 1:
        raise UsageError(f"--top {top} shows nothing", "at least 1")


def _without_older(
    catalog: Catalog, found: list[Configuration]
) -> tuple[list[Configuration], list[Refusal]]:
    """Drop models that have a later generation of the same size here, at no lower class."""
    best: dict[str, float] = {}
    for one in found:
        best[one.model.id] = max(best.get(one.model.id, 0.0), one.quality)
    keep: list[Configuration] = []
    refused: dict[str, Refusal] = {}
    for one in found:
        newer = one.model.successor
        while newer is not None and best.get(newer, -1.0) < best[one.model.id]:
            later = catalog.get(newer)
            newer = later.successor if later else None
        if newer is None:
            keep.append(one)
        else:
            reason = f"an older generation of {newer}"
            refused[one.model.id] = Refusal(one.model.name, reason, one.quality, one.model.id)
    return keep, list(refused.values())


def _worth_showing(
    found: list[Configuration], budget: Budget, wish: Wish
) -> tuple[list[Configuration], list[Refusal]]:
    """Drop drafting whose expected gain is too small, or that leaves too little context."""
    plain = {one.model.id: one for one in found if one.method == "none"}
    keep: list[Configuration] = []
    refused: list[Refusal] = []
    for one in found:
        timed = one if one.in_process else with_context(one, budget, wish)
        reason = _why_useless(timed, plain.get(one.model.id), budget, wish)
        if reason is None:
            keep.append(timed)
        else:
            name = f"{one.model.name} {one.selection.file.quant} + {one.method}"
            refused.append(Refusal(name, reason, one.quality, one.model.id))
    return keep, refused


def _why_useless(
    one: Configuration, plain: Configuration | None, budget: Budget, wish: Wish
) -> str | None:
    if one.method == "none":
        return None
    low, high = one.prediction.speedup
    gain = LEAST_GAIN if one.in_process else LEAST_GAIN_ELSEWHERE
    if middle((low, high)) < gain:
        what = "a drafter" if one.in_process else "llama-server"
        return (
            f"too little gain to expect: ≈{low:.2f} to {high:.2f}-fold, its middle under the"
            f" {gain:.2f} from which {what} is proposed"
        )
    least = least_context(one.model)
    if one.in_process or one.usable_ctx >= least:
        return None
    more = ""
    if plain is not None and (longer := with_context(plain, budget, wish).usable_ctx):
        more = f", {longer // 1024} K without" if longer > one.usable_ctx else ""
    return (
        f"at most {one.usable_ctx // 1024} K of context fit with it{more}; llama-server is "
        f"proposed from {least // 1024} K up"
    )


def _diverse(found: Iterable[Configuration], top: int) -> tuple[Configuration, ...]:
    """The best of each model first; where that leaves room, further ones; in rank order."""
    ordered = sorted(found, key=lambda one: one.sort_key)
    seen: set[str] = set()
    first: list[Configuration] = []
    second: list[Configuration] = []
    for one in ordered:
        (second if one.model.id in seen else first).append(one)
        seen.add(one.model.id)
    chosen = first[:top] + second[: max(0, top - len(first))]
    return tuple(sorted(chosen, key=lambda one: one.sort_key))


def _of_method(refused: list[Refusal], method: str | None) -> list[Refusal]:
    """Where one method was asked for, what was left out of it; names end with `+ METHOD`."""
    if method in (None, "none"):
        return refused
    return [one for one in refused if one.name.endswith(f" + {method}")]


def _notable(
    refused: Iterable[Refusal], shown: set[str], ranked: tuple[Configuration, ...], wish: Wish
) -> tuple[Refusal, ...]:
    """Those a reader would ask for: of the models shown, or as good as the best of them.

    Reasons other than memory first, then what nearly fits; where nothing fits, that first. Those
    with one reason become one.
    """
    least = ranked[0].quality if ranked else 0.0
    names: dict[str, list[Refusal]] = {}

    def order(one: Refusal) -> tuple[bool, int, float]:
        return not (ranked or wish.method or one.lacking), one.lacking, -one.quality

    for one in sorted(refused, key=order):
        if one.quality >= least or one.model in shown:
            names.setdefault(one.reason, []).append(one)
    merged = [replace(same[0], name=_together(same)) for same in names.values()]
    return tuple(merged[:NOT_CHOSEN])


def _together(same: list[Refusal]) -> str:
    """`A, B, C and 4 more`; from ten on only how many."""
    names = list(dict.fromkeys(one.name for one in same))
    if len(names) >= MANY:
        methods = {name.partition(" + ")[2] for name in names} - {""}
        return f"{len(names)} models" + (f" + {' or '.join(sorted(methods))}" if methods else "")
    more = len(names) - NAMES
    return ", ".join(names[:NAMES]) + (f" and {more} more" if more > 0 else "")
