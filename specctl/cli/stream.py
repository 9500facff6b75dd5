"""Cycle records to a terminal: accepted draft tokens tinted, thinking dim, one line of numbers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

from specctl.cli import screen
from specctl.engine.thinking import ThinkSplitter
from specctl.events import Cycle, Finished, Record
from specctl.metrics import Totals
from specctl.tui.widgets.flow import Cleaner
from specctl.tui.words import commonest_reason, needed
from specctl.units import number, percent

_TINTS = {"draft-simple": "32", "ngram-simple": "36", "ngram-suffix": "36", "ngram-mod": "34"}
_OTHER_TINT = "35"
_DIM = "2"


def use_colour(no_color: bool) -> bool:
    """Tint only for a person at a terminal who has not said no (NO_COLOR, TERM=dumb)."""
    wanted = not no_color and not os.environ.get("NO_COLOR")
    return wanted and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class Printer:
    """Writes the answer to stdout as it comes: to a terminal without what would steer it (escape
    sequences, carriage returns, direction marks: `␛[2J`), elsewhere as the model wrote it.
    """

    def __init__(self, colour: bool, thinking: bool) -> None:
        self._colour = colour
        self._splitter = ThinkSplitter(thinking)
        self._cleaner = Cleaner(screen.ascii_only()) if sys.stdout.isatty() else None

    def show(self, record: Record) -> None:
        """Print what a record adds to the answer; other records show nothing."""
        if isinstance(record, Cycle):
            for index, piece in enumerate(record.pieces):
                tint = self._tint(record) if index < record.accepted else None
                self._write(self._splitter.push(piece), tint)
        elif isinstance(record, Finished):
            self._write([*self._splitter.push(record.text), *self._splitter.finish()], None)
            sys.stdout.write(self._cleaner.finish() if self._cleaner is not None else "")
        sys.stdout.flush()

    def _tint(self, cycle: Cycle) -> str:
        return _TINTS.get(cycle.source or "", _OTHER_TINT)

    def _write(self, parts: Iterable[tuple[str, bool]], tint: str | None) -> None:
        for text, thinking in parts:
            if self._cleaner is not None:
                text = self._cleaner.push(text)
            codes = [code for code in (_DIM if thinking else None, tint) if code]
            if self._colour and codes:
                sys.stdout.write(f"\x1b[{';'.join(codes)}m{text}\x1b[0m")
            else:
                sys.stdout.write(text)


def summary(totals: Totals, finished: Finished, n_ctx: int) -> str:
    """The line after an answer. `≈` marks the estimate from one arm."""
    parts = [
        f"{number(totals.tokens_per_second, '.1f')} tok/s",
        f"{totals.emitted} tokens",
    ]
    if totals.drafted_cycles:
        parts += [
            f"α {percent(totals.acceptance_rate)}",
            f"{number(totals.accepted_per_cycle)} accepted/cycle",
            f"coverage {percent(totals.coverage)}",
            _standing(totals),
        ]
    held = min(finished.prompt_tokens + finished.emitted_tokens, n_ctx)  # the last is not decoded
    parts.append(f"context {held}/{n_ctx}")
    if finished.reason not in ("eog", "stop"):
        parts.append(
            {"length": "max-tokens", "context": "context full"}.get(
                finished.reason, finished.reason
            )
        )
    return " · ".join(parts)


def _standing(totals: Totals) -> str:
    if totals.standing is None:
        return "break-even not measured yet"
    return f"break-even {needed(totals)}: {totals.standing} (≈{number(totals.estimated_speedup)}×)"


def why_no_drafts(cycles: Iterable[Cycle]) -> str:
    """`0 of 96 cycles drafted: nothing to propose`, with the commonest reason."""
    reason, _, count = commonest_reason(cycles)
    return f"0 of {count} cycles drafted: {reason or 'no cycles'}"


def json_lines(records: Iterable[Record]) -> Iterator[Record]:
    """Pass records on, each written to stdout as one line of JSON first."""
    from specctl.recording import tee

    return tee(records, sys.stdout)
