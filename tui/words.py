"""What the numbers mean, in sentences. The only place for these words; knows no Textual.

Sentences come in several lengths, longest first, so that a narrow screen says less, not garbage.
Estimates carry ≈; the acceptance rate never stands without its coverage.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from specctl.events import Cycle
from specctl.metrics import AT_BAND, RULE_OF_THUMB, Totals
from specctl.units import GIB, number, percent

PLAINLY = ((), ("none",))  # spec types of plain decoding
FULL_CONTEXT = 0.90  # from here on the context meter warns
RARELY, SLIGHTLY = 0.5, 1.1  # below such coverage and speed-up "above" is said of drafted cycles
FEW = 8  # drafted cycles from which a break-even below 0 is called noise, not too few cycles
FULL_VRAM = 0.98  # from here on drivers that can spill may do so

VRAM_IS_FULL = "VRAM is full: the driver may spill to system RAM; a smaller --ctx or draft"

_FIGURES = re.compile(r"\d+(\.\d+)?")


def kind_of(reason: str) -> str:
    """A reason without its figures: `match 7` and `match 9` are one kind."""
    return _FIGURES.sub("#", reason)


def commonest_reason(cycles: Iterable[Cycle]) -> tuple[str, int, int]:
    """Why cycles went without a draft: the commonest reason in its latest form, how often it was
    given, and the number of all cycles.
    """
    latest: dict[str, str] = {}
    kinds: Counter[str] = Counter()
    count = 0
    for cycle in cycles:
        count += 1
        if not cycle.drafted:
            reason = cycle.decision.reason or "nothing to propose"
            kinds[kind_of(reason)] += 1
            latest[kind_of(reason)] = reason
    if not kinds:
        return "", 0, count
    kind, times = kinds.most_common(1)[0]
    return latest[kind], times, count


def times_faster(totals: Totals) -> str:
    """`≈ 1.9×`, `≈ 0.84×`: an estimate from one arm; two figures, three near 1."""
    value = totals.estimated_speedup
    if value is None:
        return "≈ –"
    return f"≈ {value:.1f}×" if value >= 1.5 else f"≈ {value:.2f}×"


def needed(totals: Totals) -> str:
    """Break-even as a figure. Below 0 (a drafted cycle measured cheaper than a plain step) is
    noise: nothing less than 0.00 can be needed.
    """
    return number(None if totals.break_even is None else max(0.0, totals.break_even))


def within_noise(totals: Totals) -> str:
    """Why no break-even can be told from 0.00, where it measured below 0; else nothing."""
    if totals.break_even is None or totals.break_even >= 0:
        return ""
    if totals.judged_drafted_cycles < FEW:
        return "too few cycles yet"
    return "drafted cycles cost no more than plain ones here"


def standing_word(totals: Totals, spec_types: Sequence[str]) -> str:
    """`above ≈ 1.9×`, the shortest answer to whether it pays."""
    return standing_forms(totals, spec_types)[-1]


def standing_sentence(
    totals: Totals,
    spec_types: Sequence[str],
    cycles: Iterable[Cycle] = (),
    width: int = 80,
    keys: bool = True,
) -> str:
    """Does it pay, why, and what to press, in at most `width` cells where a form is that short.

    `totals` and `cycles` are the same stretch. `keys` False leaves out what to press.
    """
    forms = standing_forms(totals, spec_types, cycles, keys)
    return next((form for form in forms if len(form) <= width), forms[-1])


def standing_forms(
    totals: Totals, spec_types: Sequence[str], cycles: Iterable[Cycle] = (), keys: bool = True
) -> tuple[str, ...]:
    """All lengths of the standing sentence, longest first; one cell a character."""
    if tuple(spec_types) in PLAINLY:
        pressed = ("plain decoding: F2 switches speculation on", "plain decoding: F2 speculates")
        return (*(pressed if keys else ()), "plain decoding")
    if not totals.emitted and not totals.cycles:
        return ("nothing generated yet",)
    if not totals.drafted:
        return _undrafted(totals, tuple(spec_types), list(cycles), keys)
    if totals.standing is None:
        return _unmeasured(totals)
    return _measured(totals, tuple(spec_types), keys)


def _measured(totals: Totals, spec_types: tuple[str, ...], keys: bool) -> tuple[str, ...]:
    standing, times = totals.standing, times_faster(totals)
    word = "at break-even" if standing == "at" else standing
    need, got = needed(totals), number(totals.accepted_per_cycle)
    noise = within_noise(totals)
    if noise and totals.judged_drafted_cycles < FEW:
        count = f"{totals.judged_drafted_cycles} of {FEW} drafted"
        return _by_length((f"{noise} to measure break-even ({count})", f"{noise} ({count})", noise))
    forms = [
        f"{word}: {times}   you need {need} accepted per cycle, you get {got}",
        f"{word}: {times}  need {need} per cycle, get {got}",
        f"{word} {times}: need {need}, get {got}",
        f"{word} {times}",
    ]
    if noise:
        forms[0] = f"{word}: {times}   need {need} per cycle, get {got}: {noise}"
        forms[1] = f"{word}: {times}  need {need} (within noise) per cycle, get {got}"
        forms[2] = f"{word} {times}: need {need} (noise), get {got}"
    speedup = totals.estimated_speedup
    seldom = totals.coverage is not None and totals.coverage < RARELY
    if standing == "above" and speedup is not None and speedup < (SLIGHTLY if seldom else 1.0):
        forms[:2] = [
            f"above where it drafts ({percent(totals.coverage)} of cycles), {times} in all: "
            f"need {need}, get {got}",
            f"above in {percent(totals.coverage)} of cycles, {times} in all",
        ]
    doubtful = "auto" in spec_types and speedup is not None and speedup >= 1 - AT_BAND
    if keys and standing == "below" and not doubtful:  # auto decodes plainly there by itself
        other = "F3 other drafter" if "auto" in spec_types else "F5 smaller K"
        forms = [
            f"{forms[0]}: press F2 to switch off, {other}",
            f"{forms[1]}: F2 switches off, {other}",
            f"{forms[2]}; F2 switches off",
            f"{forms[3]}: F2 switches off",
            forms[3],
        ]
    return _by_length(forms)


def _unmeasured(totals: Totals) -> tuple[str, ...]:
    per_cycle = totals.accepted_per_cycle
    if not totals.t_c:  # sums of another engine: there is no plain step to compare with
        lead = "break-even not measured: this source shows no cycles"
        short = "break-even not measured"
    else:
        lead = short = "break-even not measured yet"
    if per_cycle is None:
        return _by_length((lead, short))
    rule = f"rule of thumb {number(per_cycle)} {'>' if per_cycle > RULE_OF_THUMB else '≤'} 1"
    return _by_length((f"{lead}; {rule}", f"{short}; {rule}", short))


def _undrafted(
    totals: Totals, spec_types: tuple[str, ...], cycles: Sequence[Cycle], keys: bool
) -> tuple[str, ...]:
    reason, times, count = commonest_reason(cycles)
    if not reason:
        return ("no drafts yet", "no drafts")
    reason = reason.removeprefix("off: ")
    share = f"{times} of {count} cycles"
    lead = "auto decodes plainly" if "auto" in spec_types else "no drafts yet"
    short = reason.replace(" accepted per cycle", "")
    forms = [
        f"{lead}: {reason} ({share})",
        f"{lead}: {reason}",
        f"{lead}: {short}",
        f"no drafts: {short}",
        "no drafts",
    ]
    if keys and "auto" not in spec_types:
        forms.insert(0, f"{forms[0]}: F3 picks another drafter")
    return _by_length(forms)


def _by_length(forms: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(dict.fromkeys(forms), key=len, reverse=True))


def acceptance(totals: Totals) -> str:
    """`α 0.71 of the drafts in 96 % of cycles`: the rate with its coverage, never alone."""
    if not totals.drafted:
        return f"α –, drafted {percent(totals.coverage)}"
    coverage = percent(totals.coverage) if totals.coverage is not None else "? %"
    return f"α {number(totals.acceptance_rate)}, drafted {coverage}"


def plain_speed(t_1: float | None, given: bool = False) -> str:
    """What one plain step a token gives, or that it is not known. `given`: by the user."""
    if given:
        return f"plain {1 / t_1:.1f} (given)" if t_1 else "plain not known"
    return f"plain {1 / t_1:.1f} (measured)" if t_1 else "plain not measured yet"


def watched(totals: Totals) -> str:
    """A stretch of a watched server in one line: what is known of it, the standing last."""
    parts = [f"{number(totals.tokens_per_second, '.1f')} tok/s", acceptance(totals)]
    if totals.drafted:
        parts += [
            f"K {number(totals.mean_draft_length, '.1f')}",
            f"α×K {number(totals.accepted_per_cycle)}",
        ]
    parts.append(f"tokens/pass {number(totals.tokens_per_pass)}")
    if totals.standing is not None:
        word = "at break-even" if totals.standing == "at" else totals.standing
        parts.append(f"{word} {times_faster(totals)}, needs {needed(totals)}")
        if within_noise(totals):
            parts.append(within_noise(totals))
    elif totals.estimated_speedup is not None:
        parts.append(times_faster(totals))
    return " · ".join(parts)


def gain(seconds: float) -> str:
    """Seconds won or lost against plain decoding, an estimate: `≈ +1.2 s`."""
    return f"≈ {seconds:+.1f} s"


def bytes_of(used: int | None, total: int | None) -> str:
    """`14.1 of 16.0 GiB`, or what is known of it."""
    if total is None:
        return f"{number(None if used is None else used / GIB, '.1f')} GiB"
    return f"{number(None if used is None else used / GIB, '.1f')} of {total / GIB:.1f} GiB"


def vram_warning(used: int | None, total: int | None) -> str:
    """A sentence where video memory is full, else nothing."""
    return VRAM_IS_FULL if used and total and used >= FULL_VRAM * total else ""


def context_warning(held: int, n_ctx: int) -> str:
    """A sentence where the context is nearly full, else nothing."""
    if not n_ctx or held < FULL_CONTEXT * n_ctx:
        return ""
    return f"context {percent(held / n_ctx)} full: /reset starts a new conversation"
