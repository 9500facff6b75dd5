"""What a target pass of b rows costs, in plain steps: measured, and filled in between."""

from __future__ import annotations

from bisect import bisect_left

# Rows at which the curve has knots. Passes of other sizes count for the nearest knot above.
KNOTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128)
FIRST_GUESS = 0.3  # plain steps per further row, before anything was measured
_WEIGHT = 0.25  # of a new measurement against what was known of its knot
_OUTLIER = 3.0  # one measurement counts as at most so many times what was expected
_FRESH = 40  # measurements of others after which a knot moves along with them by half


class CostCurve:
    """T(b) / t_1 for passes of b rows; T(1) is 1 by definition.

    Each knot remembers the mean cost of one further row, (T(b) / t_1 - 1) / (b - 1). Knots without
    measurements take the value between, or of, their measured neighbours; those not measured for
    long move along with the ones that are, for costs change together (context, load, heat).
    """

    def __init__(self, first_guess: float = FIRST_GUESS) -> None:
        self._per_row: list[float | None] = [None] * len(KNOTS)
        self._age = [0] * len(KNOTS)
        self._filled = [first_guess] * len(KNOTS)

    def ratio(self, rows: int) -> float:
        """T(rows) / t_1."""
        at = min(bisect_left(KNOTS, rows), len(KNOTS) - 1)
        return 1.0 + self._filled[at] * (rows - 1)

    def learn(self, rows: int, ratio: float) -> None:
        """A pass of `rows` ≥ 2 took `ratio` plain steps."""
        at = min(bisect_left(KNOTS, rows), len(KNOTS) - 1)
        ratio = min(ratio, _OUTLIER * self.ratio(rows))
        value = max(0.0, (ratio - 1.0) / (rows - 1))
        known = self._per_row[at]
        self._per_row[at] = value if known is None else known + _WEIGHT * (value - known)
        if known:
            self._move_others(at, min(max(value / known, 0.5), 2.0))
        self._age[at] = 0
        self._fill()

    def _move_others(self, measured: int, change: float) -> None:
        for at, value in enumerate(self._per_row):
            if value is not None and at != measured:
                self._age[at] += 1
                share = 0.5 * min(1.0, self._age[at] / _FRESH)
                self._per_row[at] = value * (1.0 + _WEIGHT * share * (change - 1.0))

    def _fill(self) -> None:
        known = [(at, value) for at, value in enumerate(self._per_row) if value is not None]
        for at in range(len(KNOTS)):
            below = next((pair for pair in reversed(known) if pair[0] <= at), known[0])
            above = next((pair for pair in known if pair[0] >= at), known[-1])
            if above[0] == below[0]:
                self._filled[at] = below[1]
            else:
                share = (at - below[0]) / (above[0] - below[0])
                self._filled[at] = below[1] + share * (above[1] - below[1])
