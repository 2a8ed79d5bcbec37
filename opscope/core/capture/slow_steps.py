"""Decide whether a step is slow: it took longer than ``factor`` times the median of the steps before it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import Final

#: The median is taken of this many earlier steps; with fewer than ``LEAST`` there is no median.
OF: Final = 51
LEAST: Final = 10
#: ns. A step that is longer than the median by less is not slow: the system's scheduler alone can do that.
FLOOR_NS: Final = 5_000_000
FACTOR: Final = 3.0


class SlowSteps:
    """Judges steps by the median of the last ``of`` steps; one step costs about 1 µs.

    A slow step counts like any other for the steps after it, so a training that becomes slower for good is
    slow for ``of / 2`` steps, not for ever. Raises ValueError for a factor that is not above 1.
    """

    __slots__ = ("_last", "_least", "_sorted", "factor", "floor")

    def __init__(
        self, factor: float = FACTOR, of: int = OF, least: int = LEAST, floor: int = FLOOR_NS
    ) -> None:
        if not factor > 1:
            raise ValueError(f"a slow step takes more than 1 median step, not {factor!r}")
        self.factor = factor
        self.floor = floor
        self._least = least
        self._last: deque[int] = deque(maxlen=of)
        self._sorted: list[int] = []

    @property
    def median(self) -> int | None:
        """The median of the last steps in ns; None before ``least`` steps."""
        count = len(self._sorted)
        return self._sorted[count // 2] if count >= self._least else None

    def is_slow(self, ns: int) -> bool:
        """Whether a step of ``ns`` is slow; it then counts among the last steps."""
        last, ordered = self._last, self._sorted
        count = len(ordered)
        slow = False
        if count >= self._least:
            middle = ordered[count // 2]
            slow = ns > self.factor * middle and ns - middle > self.floor
        if count == last.maxlen:
            del ordered[bisect_left(ordered, last[0])]
        last.append(ns)
        insort(ordered, ns)
        return slow
