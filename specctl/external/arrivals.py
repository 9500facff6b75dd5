"""When the texts of a streamed answer came: did they come as they were written?

A proxy or a server that holds a stream back passes it on in one piece, or in a few large ones. The
time from the first text to the last is then not that of the tokens between them, and its rate would
be any number.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

SHORT = 0.10  # of the whole answer's time
_SEVERAL = 4  # tokens after the first from which an answer can be judged
_GAP_SHARE, _GAP_MOST = 0.01, 0.002  # a pause: this share of the whole time, or these seconds
_PAUSES = 2  # real streams have more; one that was held back may hiccup once
_CROWD = 5  # texts at once at the beginning that are a piece


def in_one_piece(times: Sequence[float], tokens_after: int) -> bool:
    """Was the answer held back? `times`: seconds from the request to each text and to the
    end, ascending. `tokens_after`: how many tokens are said to have come after the first text.

    True where the texts lie within a tenth of the time that the answer took, with less than two
    pauses among them. A long wait before an ordinary stream does not make it one.
    """
    if tokens_after < _SEVERAL or not times:
        return False
    pauses = sum(gap >= _pause(times[-1]) for gap in _gaps(times))
    return times[-1] - times[0] < SHORT * times[-1] and pauses < _PAUSES


def crowd(times: Sequence[float]) -> int:
    """Texts that came at once at the beginning, before a pause much longer than they took; 1 where
    the first came alone. Their tokens were written before the first text was seen.
    """
    if not times:
        return 1
    gaps = _gaps(times)
    count = 1 + next((i for i, gap in enumerate(gaps) if gap >= _pause(times[0])), len(gaps))
    if not _CROWD <= count < len(times):
        return 1
    took = times[count - 1] - times[0]
    return count if took < SHORT * times[0] and gaps[count - 1] > 3 * took else 1


def _gaps(times: Sequence[float]) -> list[float]:
    return [late - early for early, late in itertools.pairwise(times)]


def _pause(seconds: float) -> float:
    return min(_GAP_SHARE * seconds, _GAP_MOST)
