"""Two clocks made one: the offset and drift that put every bracketed call inside its bracket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from opscope.core.intervals import Ints

_Floats = npt.NDArray[np.float64]

#: No two clocks of one machine run apart faster than this (crystals: under 100 ppm).
MAX_DRIFT: Final = 1e-3
#: Readings farther apart than this cannot tell drift from the width of their brackets.
MIN_SPAN_NS: Final = 10_000_000
_GOLDEN: Final = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class ClockFit:
    """``ours = theirs + offset + drift · (theirs - origin)``, all in ns, drift without unit.

    ``error_ns`` bounds how far that may be off between the readings, given that each call really
    ran inside its bracket. ``slack_ns`` is the room that the fit leaves: negative when no offset
    and drift fit all brackets, so that some reading is not what it was taken for.
    """

    origin: int
    offset: int
    drift: float
    error_ns: int
    slack_ns: int
    readings: int

    def apply(self, theirs: Ints) -> Ints:
        """Times of their clock on ours."""
        since = (theirs - self.origin).astype(np.float64)
        moved: Ints = theirs + self.offset + np.rint(self.drift * since).astype(np.int64)
        return moved


def fit(before: Ints, after: Ints, start: Ints, end: Ints) -> ClockFit:
    """The fit of readings: our clock read ``before`` and ``after`` calls that they saw [start, end].

    Each reading says that the offset at that moment is between ``before - start`` and
    ``after - end``. For a given drift the offsets that satisfy all readings are one interval; its
    width is concave in the drift, so a golden-section search finds the drift that leaves most room,
    and the offset is the middle. True offset and drift satisfy every reading however long a bracket
    was interrupted, so delays do no harm and the tightest brackets decide. Raises ValueError without
    a reading.
    """
    if not len(before):
        raise ValueError("no readings to fit")
    origin, base = int(start[0]), int(before[0] - start[0])
    at = (start - origin).astype(np.float64)
    low = (before - start - base).astype(np.float64)
    high = (after - end - base).astype(np.float64)

    def room(drift: float) -> tuple[float, float]:
        least, most = float((low - drift * at).max()), float((high - drift * at).min())
        return most - least, (most + least) / 2

    drift = 0.0
    if np.ptp(at) >= MIN_SPAN_NS:
        left, right = -MAX_DRIFT, MAX_DRIFT
        inner, outer = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
        for _ in range(80):  # the interval shrinks by 0.618 each time: to 1e-17 of itself
            if room(inner)[0] < room(outer)[0]:
                left, inner = inner, outer
                outer = left + _GOLDEN * (right - left)
            else:
                right, outer = outer, inner
                inner = right - _GOLDEN * (right - left)
        drift = (left + right) / 2
    slack, offset = room(drift)
    here = offset + drift * at
    off_by: _Floats = np.maximum(high - here, here - low)
    # the best reading early and the best one late hold the line between them
    third = np.ptp(at) / 3
    error = max(
        float(off_by[at <= at.min() + third].min()), float(off_by[at >= at.max() - third].min())
    )
    return ClockFit(
        origin, base + round(offset), drift, int(np.ceil(error)), int(np.floor(slack)), len(before)
    )


def match(before: Ints, after: Ints, start: Ints, end: Ints, guess: int, reach: int) -> Ints | None:
    """Which of their calls each reading is: an index for each, -1 for none; None if nothing fits.

    ``start`` is sorted. ``guess`` is about what to add to their times (from the two Unix clocks),
    right to within ``reach``. Of all shifts that put the first reading's call somewhere in reach,
    the one is taken under which most readings find a call inside their bracket, the nearest to
    ``guess`` among equals.
    """
    if not len(before) or not len(start):
        return None
    width = after - before
    best: tuple[int, int] | None = None
    found: Ints | None = None
    # any reading may be the one that the trace lacks: the tightest few each propose shifts
    for pivot in np.argsort(width, kind="stable")[:4]:
        middle = (start + end) // 2
        shifts = (before[pivot] + after[pivot]) // 2 - middle
        near = np.flatnonzero(np.abs(shifts - guess) <= reach)
        for shift in shifts[near[np.argsort(np.abs(shifts[near] - guess), kind="stable")[:512]]]:
            rows = _inside(before, after, start + shift, end + shift, int(width[pivot]))
            score = (int((rows >= 0).sum()), -abs(int(shift) - guess))
            if best is None or score > best:
                best, found = score, rows
    return found


def _inside(before: Ints, after: Ints, start: Ints, end: Ints, margin: int) -> Ints:
    """For each bracket, widened by ``margin``, the call that lies in it; -1 for none or several."""
    first = np.searchsorted(start, before - margin)
    past = np.searchsorted(start, after + margin)
    row = np.minimum(first, len(start) - 1)
    rows: Ints = np.where((past - first == 1) & (end[row] <= after + margin), row, -1)
    return rows
