"""Fit one clock to another: find the offset and drift that put every call inside its bracket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from opscope.core.tables.intervals import Ints

_Floats = npt.NDArray[np.float64]

#: Two clocks of one machine drift apart more slowly than this (crystals: under 100 ppm).
MAX_DRIFT: Final = 1e-3
#: The same limit between a profiler's clock and a program's clock, if the system corrects one of them to the
#: true time.
NEAR_DRIFT: Final = 2e-4
#: Readings over less time than this cannot distinguish drift from the width of their brackets.
MIN_SPAN_NS: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class ClockFit:
    """``ours = theirs + offset + drift · (theirs - origin)``, all in ns, drift without unit.

    ``error_ns`` bounds how far that may be off from the first reading's begin to the last one's end, given
    that each call really ran inside its bracket. ``slack_ns`` is the room that the fit leaves. It is negative
    if no offset and drift fit all brackets, so some reading was matched to a wrong call; the error is then
    the distance from the far end of the bracket that fits worst.
    """

    origin: int
    offset: int
    drift: float
    error_ns: int
    slack_ns: int
    readings: int

    def apply(self, theirs: Ints) -> Ints:
        """Return times of their clock on ours (ns)."""
        since = (theirs - self.origin).astype(np.float64)
        moved: Ints = theirs + self.offset + np.rint(self.drift * since).astype(np.int64)
        return moved


def fit(
    before: Ints, after: Ints, start: Ints, end: Ints, most_drift: float = MAX_DRIFT
) -> ClockFit:
    """Return the fit of readings: our clock ``before`` and ``after`` calls that took [start, end] on theirs.

    Each reading says that the offset at that moment is between ``before - start`` and ``after - end`` (ns).
    For a given drift, the offsets that satisfy all readings form one interval; the drift is the one that
    leaves most room, and the offset is the middle. The true offset and drift satisfy every reading, however
    long a bracket was interrupted, so delays do no harm and the tightest brackets decide. The error is how
    far any other offset and drift that satisfy the readings can be from the chosen ones. The clocks drift by
    less than ``most_drift``. Raises ValueError without a reading.
    """
    if not len(before):
        raise ValueError("no readings to fit")
    origin, base = int(start[0]), int(before[0] - start[0])
    at = (start - origin).astype(np.float64)
    low = (before - start - base).astype(np.float64)
    high = (after - end - base).astype(np.float64)
    # for any drift, only bounds on the hull matter: a few of hundreds of readings
    lower, upper = _hull(at, low), _hull(at, -high)

    def room(drift: _Floats) -> tuple[_Floats, _Floats]:
        least: _Floats = (low[lower] - drift[:, None] * at[lower]).max(1)
        most: _Floats = (high[upper] - drift[:, None] * at[upper]).min(1)
        return least, most

    # The room is concave and piecewise linear in the drift: its corners are the hulls' slopes.
    ends = np.array([-most_drift, 0.0, most_drift])
    drifts = np.concatenate((_slopes(at[lower], low[lower]), _slopes(at[upper], high[upper]), ends))
    drifts = np.unique(drifts.clip(-most_drift, most_drift))
    least, most = room(drifts)
    space = most - least
    best = drifts[space >= space.max() - 1e-6]
    drift = float(best[0] + best[-1]) / 2
    if np.ptp(at) < MIN_SPAN_NS and (space.max() < 0 or space[np.searchsorted(drifts, 0.0)] >= 0):
        drift = 0.0
    low_here, high_here = (float(bound[0]) for bound in room(np.array([drift])))
    slack, offset = high_here - low_here, (high_here + low_here) / 2
    if slack < 0:
        line = offset + drift * at
        error = float(np.maximum(high - line, line - low).max())
    else:
        edges = np.concatenate((drifts[space >= 0], _zeros(drifts, space), [drift]))
        # a last bracket that was interrupted ends long after its call began
        first = min(float(at.min()), float(before.min() - base - origin))
        last = max(float(at.max()), float(after.max() - base - origin))
        error = max(
            float(np.abs(bound - offset + (edges - drift) * when).max())
            for bound in room(edges)
            for when in (first, last)
        )
    return ClockFit(
        origin, base + round(offset), drift, int(np.ceil(error)), int(np.floor(slack)), len(before)
    )


def _hull(x: _Floats, y: _Floats) -> Ints:
    """Return the places of the points that are corners of the upper hull, from left to right."""
    corners: list[int] = []
    px, py = x.tolist(), y.tolist()
    for point in np.lexsort((y, x)).tolist():
        while len(corners) > 1:
            last, two = corners[-2], corners[-1]
            left = (px[two] - px[last]) * (py[point] - py[last])
            if left < (py[two] - py[last]) * (px[point] - px[last]):
                break
            corners.pop()
        if corners and px[corners[-1]] == px[point]:
            corners.pop()
        corners.append(point)
    return np.array(corners, dtype=np.int64)


def _slopes(x: _Floats, y: _Floats) -> _Floats:
    slopes: _Floats = np.diff(y) / np.diff(x)
    return slopes


def _zeros(x: _Floats, y: _Floats) -> _Floats:
    """Return where the line through the points (x, y) crosses 0."""
    cross = np.flatnonzero((y[1:] >= 0) != (y[:-1] >= 0))
    zeros: _Floats = x[cross] - y[cross] * (x[cross + 1] - x[cross]) / (y[cross + 1] - y[cross])
    return zeros


# ------------------------------------------------------------------------- which call is which

#: Readings at most _GAP_NS apart, and at most _GROUP_NS in all, form a group: within it clocks hardly drift.
_GAP_NS: Final = 20_000_000
_GROUP_NS: Final = 40_000_000
#: The _PIVOTS tightest brackets of a group each propose shifts, with the _NEAREST calls nearest to the guess.
_PIVOTS: Final = 4
_NEAREST: Final = 2048
#: Most shifts of a group that are tried; each has at least the share _WORTH of the matches of the group's
#: best.
_TRIED: Final = 128
_WORTH: Final = 0.5
#: How many readings, evenly spread over all, help to judge a line, besides the readings of the groups that
#: gave the line.
_JUDGES: Final = 256
#: A rival assignment differs from the best in over the share _OTHER of its matches, and has at least the
#: share _AS_GOOD of its number of matches.
_OTHER: Final = 0.25
_AS_GOOD: Final = 0.8


@dataclass(frozen=True, slots=True)
class _Shift:
    """The amount to add to their times (``by``) at our time ``at``; it may be wrong by ``margin``. All ns."""

    at: int
    by: int
    margin: int


def match(before: Ints, after: Ints, start: Ints, end: Ints, guess: int, reach: int) -> Ints | None:
    """Return for each reading the index of its call, -1 for none; None if the assignment is not clear.

    ``before`` and ``start`` are sorted. ``guess`` is roughly what to add to their times (from the two Unix
    clocks), right to within ``reach`` (ns). It looks for the shift (which may change over time by drift) with
    which most readings have exactly one call inside their bracket. If another assignment does about as well,
    as happens with readings at an even pace, nothing shows which is right.
    """
    if not len(before) or not len(start):
        return None
    groups = sorted(_groups(before), key=len, reverse=True)
    first_group = groups[0]
    far = [group for group in groups[1:] if 2 * len(group) >= len(groups[1])]
    two = max(
        far,
        key=lambda group: abs(int(before[group[0]] - before[first_group[0]])),
        default=first_group,
    )
    judges = _judges(len(before), first_group, two)
    bounds = before[judges], after[judges]
    matches: list[tuple[int, Ints]] = []
    for shift, margin in _lines(before, after, start, end, guess, reach, first_group, two, judges):
        rows = _inside(bounds[0] - shift, bounds[1] - shift, start, end, margin)
        matches.append((int((rows >= 0).sum()), rows))
    most, best = max(matches, key=lambda each: each[0], default=(0, bounds[0]))
    if not most:
        return None
    for score, rows in matches:
        other = int(((rows >= 0) & (rows != best)).sum())
        if other > _OTHER * score and score >= _AS_GOOD * most:
            return None
    rows_of_all = np.full(len(before), -1, np.int64)
    rows_of_all[judges] = best
    return _settle(before, after, start, end, rows_of_all)


def _groups(before: Ints) -> list[Ints]:
    """Return the numbers of the readings in groups of readings close in time."""
    edges, first = [], 0
    for index in range(1, len(before)):
        since = int(before[index] - before[first])
        if before[index] - before[index - 1] > _GAP_NS or since > _GROUP_NS:
            edges.append(index)
            first = index
    return np.split(np.arange(len(before)), edges)


def _judges(count: int, ints: Ints, two: Ints) -> Ints:
    """Return the readings by which a line is judged: those of both groups, and a sample of all others."""
    evenly = np.linspace(0, count - 1, min(count, _JUDGES)).astype(np.int64)
    return np.unique(np.concatenate((ints, two, evenly)))


def _lines(
    before: Ints,
    after: Ints,
    start: Ints,
    end: Ints,
    guess: int,
    reach: int,
    ints: Ints,
    two: Ints,
    judges: Ints,
) -> Iterator[tuple[Ints, Ints]]:
    """Yield the shifts at the ``judges``, and how far each may be off (ns), for lines through two groups."""
    when = before[judges]
    ends = [
        _shifts(before[group], after[group], start, end, guess, reach)
        for group in ((ints,) if ints is two else (ints, two))
    ]
    if len(ends) == 1:
        for only in ends[0]:
            drifted = np.abs(when - only.at) * NEAR_DRIFT
            yield np.full(len(when), only.by), (only.margin + drifted).astype(np.int64)
        return
    for first in ends[0]:
        for last in ends[1]:
            span = last.at - first.at
            apart = abs(last.by - first.by)
            if apart > abs(span) * NEAR_DRIFT + first.margin + last.margin:
                continue
            part = (when - first.at) / span
            shift = first.by + np.rint(part * (last.by - first.by)).astype(np.int64)
            margin = np.abs(1 - part) * first.margin + np.abs(part) * last.margin
            yield shift, margin.astype(np.int64)


def _shifts(
    before: Ints, after: Ints, start: Ints, end: Ints, guess: int, reach: int
) -> list[_Shift]:
    """Return shifts that put calls into a group's brackets; for each assignment, the shift with the least
    margin."""
    best_of_rows: dict[bytes, tuple[int, _Shift]] = {}
    width = after - before
    length = end - start
    for pivot in np.argsort(width, kind="stable")[:_PIVOTS].tolist():
        at = int(before[pivot] + after[pivot]) // 2
        by = at - (start + length // 2)
        near = np.flatnonzero((np.abs(by - guess) <= reach) & (length <= width[pivot]))
        near = near[np.argsort(np.abs(by[near] - guess), kind="stable")[:_NEAREST]]
        margin = (width[pivot] - length[near]) // 2 + 1
        drifted = (np.abs(before - at) * NEAR_DRIFT).astype(np.int64)
        moved = by[near][:, None]
        rows = _inside(before - moved, after - moved, start, end, margin[:, None] + drifted)
        scores = (rows >= 0).sum(1)
        for index in np.flatnonzero(scores >= max(1, _WORTH * scores.max(initial=0))).tolist():
            shift = _Shift(at, int(by[near[index]]), int(margin[index]))
            key = rows[index].tobytes()
            if key not in best_of_rows or shift.margin < best_of_rows[key][1].margin:
                best_of_rows[key] = (int(scores[index]), shift)
    most = max((score for score, _ in best_of_rows.values()), default=0)
    worth = [each for each in best_of_rows.values() if each[0] >= _WORTH * most]
    worth.sort(key=lambda each: (-each[0], abs(each[1].by - guess)))
    return [shift for _, shift in worth[:_TRIED]]


def _inside(low: Ints, high: Ints, start: Ints, end: Ints, margin: Ints | int) -> Ints:
    """Return for each bracket, widened by ``margin``, the call inside it; -1 for none or several."""
    low, high = low - margin, high + margin
    first = np.searchsorted(start, low)
    row = np.minimum(first, len(start) - 1)
    then = np.minimum(first + 1, len(start) - 1)
    only = (first + 1 >= len(start)) | (start[then] > high)
    rows: Ints = np.where((first < len(start)) & (end[row] <= high) & only, row, -1)
    return rows


def _settle(before: Ints, after: Ints, start: Ints, end: Ints, rows: Ints) -> Ints:
    """Return the assignment of all readings, refined by repeating it with the clock fit that it gives."""
    for _ in range(3):
        hit = rows >= 0
        fitted = fit(before[hit], after[hit], start[rows[hit]], end[rows[hit]], NEAR_DRIFT)
        again = _inside(before, after, fitted.apply(start), fitted.apply(end), fitted.error_ns)
        if (again >= 0).sum() < hit.sum():
            break
        rows = again
    return rows
