"""The probability that equal programs give values in such an order: the exact test of Mann and Whitney.

H. B. Mann, D. R. Whitney, "On a test of whether one of two random variables is stochastically larger than the
other", Annals of Mathematical Statistics 18, 1947. It holds for noise of any distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import comb, erfc, sqrt
from typing import Final

import numpy as np

from opscope.core.analysis.diff.noise import Floats

#: Number of pairs up to which all orders are counted; above it, the normal approximation is as good.
_EXACT: Final = 2_500


def chance(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the probability that equal programs give values in an order as rare as that of ``a`` and
    ``b``, in either direction. A pair of equal values counts half."""
    pairs = len(a) * len(b)
    moved = abs(int(np.sign(np.subtract.outer(np.asarray(b), np.asarray(a))).sum()))
    if pairs <= _EXACT:
        return float(chances(len(a), len(b))[(pairs - moved + 1) // 2])
    spread = sqrt(pairs * (len(a) + len(b) + 1) / 12)
    return min(1.0, erfc((moved - 1) / 2 / spread / sqrt(2)))


@lru_cache(maxsize=256)
def chances(n: int, m: int) -> Floats:
    """Return the probability that ``n`` and ``m`` values of equal programs have at most 0, 1 … inversions,
    in either direction. An inversion is a pair in the rarer of the two orders."""
    row = [np.ones(1)] * (m + 1)
    for i in range(1, n + 1):  # recurrence by the side that has the largest of the i + j values
        ways = [np.ones(1)]
        for j in range(1, m + 1):
            both = np.zeros(i * j + 1)
            both[j:] += row[j]
            both[: i * (j - 1) + 1] += ways[j - 1]
            ways.append(both)
        row = ways
    likely: Floats = np.minimum(2 * np.cumsum(row[m]) / comb(n + m, n), 1.0)
    return likely
