"""How a figure of a benchmark is said, the same in tables, pages and pictures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from specctl.bench.report import ONE_RUN_BAND, IdentityCount, Speed

SHORT = {"faster": "faster", "slower": "slower", "no difference shown": "no difference"}
NEVER = "never drafted"
UNKNOWN = "not known"
WHERE_ASKED = " where it was asked from"  # of other programs: not on the machine of the server


def spread(speed: Speed) -> str:
    """`1.41–1.58`, or with one run of each the assumed band: `one, ±10%`."""
    if speed.low is None or speed.high is None:
        return f"one, ±{speed.noise * 100:.0f}%" if speed.speedup is not None else "–"
    return f"{speed.low:.2f}–{speed.high:.2f}"


def verdict(speed: Speed, undrafted: bool = False) -> str:
    """`faster`; `never drafted` (`undrafted`: see `report.is_undrafted`) whatever the speed;
    without plain decoding to compare with `not known`.
    """
    if undrafted:
        return NEVER
    if speed.speedup is None and speed.rate is not None:
        return UNKNOWN
    return SHORT[speed.verdict]


def text(found: IdentityCount) -> str:
    """Is the text plain decoding's? The worst that was found."""
    if found.bugs:
        return f"BUG {found.bugs}"
    if found.differs:
        return f"diff {found.differs}"
    if found.ties:
        return f"tie {found.ties}"
    if found.same:
        return "same"
    return "law" if found.law_only else "–"


def short_time(seconds: float | None) -> str:
    """`212 ms`, `4.5 s`; `–` where it is not known."""
    if seconds is None:
        return "–"
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


SPEED_UP = (
    "tok/s count generation, not the prompt. Speed-up: total tokens over total seconds, against "
    "the same prompts decoded plainly."
)
TIES = (
    "A tie is a place where two tokens were so close that the rounding of a batched pass decided; "
    "both ways were decoded again to prove it. Anything else is a bug."
)


DIFFERS = (
    "A text that differs and was not decoded again is only that: whether it is a tie (two tokens "
    "so close that the rounding of a batched pass decided) or a bug is not known. Over HTTP it "
    "cannot be, nor after a stopped check; specctl verify tells it, in-process."
)


class Compared(Protocol):
    """A row whose texts were compared."""

    @property
    def identity(self) -> IdentityCount:
        """How many were what."""


def differing(rows: Iterable[Compared]) -> str:
    """What is to be said where texts are not plain's; empty where all are."""
    found = [row.identity for row in rows]
    if any(one.differs for one in found):
        return DIFFERS
    return TIES if any(one.ties or one.bugs for one in found) else ""


BATCHES = (
    "So many requests at once; tok/s are all tokens of a wave over the seconds from its first "
    "request to its last token, prompts included."
)


def noise(assumed: bool, largest: float) -> str:
    """What the ± of a result means; `largest` is that of its totals."""
    if assumed:
        return (
            f"With one run of each, ± is assumed: {ONE_RUN_BAND:.0%}, and more where plain passes "
            "changed their pace between the arms; no difference is claimed within it."
        )
    return (
        "Spread: smallest and largest speed-up of one repeat. Faster and slower are said only "
        f"beyond the 95 % interval of the repeats (in total ±{largest:.1%} here)."
    )
