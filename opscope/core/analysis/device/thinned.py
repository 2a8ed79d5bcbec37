"""Thin a curve to a bounded number of points that keep its extremes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.intervals import Ints

#: The most points of a curve: more than a screen has columns.
POINTS: Final = 4_000
_OF_EACH: Final = 4  # the first, smallest, largest and last point of each stretch of time


def thinned(time: Ints, value: NDArray[Any], most: int = POINTS) -> Ints:
    """Return the places of at most ``most`` points, in order; all if there are no more.

    ``time`` (ns) is in order. It is divided into stretches of equal length; of each stretch the first, the
    least, the greatest and the last point are kept, so the maxima and minima of the whole curve are
    preserved.
    """
    if len(time) <= most:
        return np.arange(len(time), dtype=np.int64)
    count = max(most // _OF_EACH, 1)
    low, length = int(time[0]), int(time[-1]) - int(time[0])
    width = length // count + 1
    stretch = (time - low) // width
    begin = np.flatnonzero(np.append(True, stretch[1:] != stretch[:-1]))
    end = np.append(begin[1:], len(time)) - 1
    # sorted by value within each stretch: the first and the last are the extremes
    order = np.lexsort((value, stretch))
    keep: Ints = np.unique(np.concatenate((begin, end, order[begin], order[end])))
    return keep
