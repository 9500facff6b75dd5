"""What a target pass of b rows costs, in plain steps: measured, and filled in between."""

from __future__ import annotations

from bisect import bisect_left

# Rows at which the curve has knots. Passes of other sizes count for the nearest knot above.
KNOTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128)
FIRST_GUESS = 0.3  # plain steps per further row, before anything was measured
_GUESS_ROWS = 4.0  # the first guess counts as a pass of so many further rows
_WEIGHT = 0.25  # of a new measurement against what was known of its knot
_FASTER_WEIGHT = 0.5  # of one that is cheaper: what disturbs a measurement makes it dearer
_OUTLIER = 2.5  # one measurement counts as at most so many times what was expected
_MOST_ROWS = 60.0  # evidence of one knot counts as at most so many further rows
_FRESH = 20  # measurements of others after which a knot moves along with them


class CostCurve:
    """T(b) / t_1 for passes of b rows; T(1) is 1 by definition.

    Each knot remembers the mean cost of one further row, (T(b) / t_1 - 1) / (b - 1). A pass of few
    rows says little of it, for whatever disturbed the pass counts as cost of those few; so a first
    measurement is weighed against the guess by its rows. Knots without measurements take the value
    between their measured neighbours; beyond them, the mean of all by their rows. Those not
    measured for long move along with the ones that are: costs change together (context, load).
    """

    def __init__(self, first_guess: float = FIRST_GUESS) -> None:
        self._guess = first_guess
        self._per_row: list[float | None] = [None] * len(KNOTS)
        self._rows = [0.0] * len(KNOTS)  # evidence, further rows measured
        self._age = [0] * len(KNOTS)
        self._filled = [first_guess] * len(KNOTS)

    @property
    def trusted_rows(self) -> int:
        """Rows up to which a pass may go on what is known: short ones first, then any."""
        return int(9 + 4 * sum(self._rows))

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
        if known is None:
            weight = (rows - 1) / (rows - 1 + _GUESS_ROWS)
            self._per_row[at] = self._filled[at] + weight * (value - self._filled[at])
        else:
            weight = _FASTER_WEIGHT if value < known else _WEIGHT
            self._per_row[at] = known + weight * (value - known)
            if known:
                self._move_others(at, min(max(value / known, 0.5), 2.0), weight)
        self._rows[at] = min(_MOST_ROWS, self._rows[at] + rows - 1)
        self._age[at] = 0
        self._fill()

    def _move_others(self, measured: int, change: float, weight: float) -> None:
        for at, value in enumerate(self._per_row):
            if value is not None and at != measured:
                self._age[at] += 1
                share = min(1.0, self._age[at] / _FRESH)
                self._per_row[at] = value * (1.0 + weight * share * (change - 1.0))

    def _fill(self) -> None:
        known = [(at, value) for at, value in enumerate(self._per_row) if value is not None]
        rows = _GUESS_ROWS + sum(self._rows)
        mean = self._guess * _GUESS_ROWS + sum(value * self._rows[at] for at, value in known)
        for at in range(len(KNOTS)):
            below = next((pair for pair in reversed(known) if pair[0] <= at), None)
            above = next((pair for pair in known if pair[0] >= at), None)
            if below is None or above is None:
                self._filled[at] = mean / rows
            elif above[0] == below[0]:
                self._filled[at] = below[1]
            else:
                share = (at - below[0]) / (above[0] - below[0])
                self._filled[at] = below[1] + share * (above[1] - below[1])
