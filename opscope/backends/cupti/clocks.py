"""Relate CUPTI's clock to the recorder's, by pairs of readings, once it is known which clock the records
use."""

from __future__ import annotations

import time
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

#: A pair of readings: CUPTI's time, the recorder's, half the time that the reading took; all in ns.
Pair = tuple[int, int, int]
#: The clocks that the records may have, the likeliest first.
OURS: Final = "the recorder's clock"
CUPTI: Final = "CUPTI's clock"
UNIX: Final = "the system's clock"
#: Tolerance: records lie within the window of their recording, give or take this.
_NEAR_NS: Final = 1_000_000_000


def bracket(read: Callable[[], int]) -> Pair:
    """Return the tightest of eight readings of a clock, each between two readings of the recorder's."""
    best: Pair = (0, 0, 1 << 62)
    for _ in range(8):
        before = perf_counter_ns()
        theirs = read()
        after = perf_counter_ns()
        if after - before < 2 * best[2]:
            best = (theirs, (before + after) // 2, (after - before + 1) // 2)
    return best


class Clocks:
    """The pairs of one recording.

    ``registered``: CUPTI was given the recorder's clock. Whether its records really use it is decided by the
    first records of calls; ``read`` reads CUPTI's own clock.
    """

    def __init__(self, read: Callable[[], int], registered: bool) -> None:
        self._read = read
        self._since = perf_counter_ns()
        self._waiting: dict[str, list[Pair]] = {OURS: [], CUPTI: [], UNIX: []}
        self._candidates = [OURS, CUPTI, UNIX] if registered else [CUPTI, UNIX]
        #: Whether the records should have the recorder's clock.
        self.registered = registered
        #: The clock of the records; None until it is known.
        self.chosen: str | None = None

    def read(self) -> None:
        """Take a pair of readings of each clock that the records may use. Raises CuptiError."""
        now = perf_counter_ns()
        for name in self._candidates if self.chosen is None else (self.chosen,):
            pair = (
                (now, now, 0)
                if name == OURS
                else bracket(self._read if name == CUPTI else time.time_ns)
            )
            self._waiting[name].append(pair)

    def choose(self, first: int, last: int, at_end: bool = False) -> bool:
        """Choose the clock on which the calls' records, from ``first`` to ``last``, lie within the recording.

        Without records (0), choose the likeliest, but only ``at_end``. Returns False if no clock fits.
        """
        if self.chosen is not None:
            return True
        if not first:
            if at_end:
                self.chosen = self._candidates[0]
            return True
        for name in self._candidates:
            if not self._waiting[name]:
                continue
            theirs, ours, _ = self._waiting[name][-1]
            begin, end = self._since - _NEAR_NS, perf_counter_ns() + _NEAR_NS
            if begin <= first - theirs + ours and last - theirs + ours <= end:
                self.chosen = name
                return True
        if at_end:
            self.chosen = self._candidates[0]
        return False

    def take(self) -> list[Pair]:
        """Return the new pairs of the chosen clock; none before one is chosen."""
        if self.chosen is None:
            return []
        pairs = self._waiting[self.chosen]
        self._waiting[self.chosen] = []
        return pairs
