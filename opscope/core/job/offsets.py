"""Estimate offset and drift for many pairs of clocks at once, from events that were recorded on both clocks.

A collective that synchronises bounds the offset of two clocks from both sides: neither side leaves before
the other has entered. A message bounds it from one side: it does not arrive before it is sent. The lines
(offset, drift) that satisfy all bounds of a pair are a convex set, so its extremes are found exactly by
cutting planes, a few NumPy passes for all pairs together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.clockfit import MAX_DRIFT, MIN_SPAN_NS
from opscope.core.tables.intervals import Ints

_Floats: TypeAlias = NDArray[np.float64]
_Bools: TypeAlias = NDArray[np.bool_]
_LEAST_FOR_DRIFT: Final = 16
#: Cells of a padded matrix, which has a row for each pair of clocks: 20 such matrices take 160 MB at most.
_CELLS: Final = 1 << 20
#: Cutting planes reach a corner of the hull in each round; hulls of thousands of bounds have some tens of
#: corners.
_ROUNDS: Final = 64
#: The limit (ns) for the line at points without a bound.
_FAR: Final = 2.0**62


@dataclass(frozen=True, slots=True)
class Offset:
    """``theirs + offset + drift · (theirs - origin)`` is the time on the reference clock; all ns.

    ``error``: the largest possible error of that time; null if the bounds contradict each other (some
    collectives were matched wrongly) or leave one side open. ``spread``: the usual distance of an end from
    that time.
    """

    origin: int
    offset: int
    drift: float
    error: int | None
    spread: int
    collectives: int

    def then(self, base: Offset) -> Offset:
        """Return this offset as one to the reference clock, where ``base`` is the offset from our clock to
        the reference.

        The errors add up; if one of them is unknown, so is the sum.
        """
        error = None
        if self.error is not None and base.error is not None:
            error = int(np.ceil(self.error * (1 + abs(base.drift)))) + base.error
            error += 2 if base.drift or self.drift else 0  # each product is rounded to a nanosecond
        since = self.origin + self.offset - base.origin
        return Offset(
            self.origin,
            self.offset + base.offset + round(base.drift * since),
            self.drift + base.drift + self.drift * base.drift,
            error,
            self.spread,
            self.collectives,
        )


def estimate(start: Ints, end: Ints, their_start: Ints, their_end: Ints) -> Offset:
    """Return the offset from their clock to ours, from collectives in which both took part, one per entry.

    ``start`` and ``end`` (ns, our clock): when the last of our ranks entered and the first left each
    collective; ``their_…``: likewise on their clock. Raises ValueError without collectives.
    """
    if not len(end):
        raise ValueError("no collectives to align by")
    both = np.ones(len(end), bool)
    pair = np.zeros(len(end), np.int64)
    return estimates(pair, start, end, their_start, their_end, both, both)[0]


def estimates(
    pair: Ints,
    start: Ints,
    end: Ints,
    their_start: Ints,
    their_end: Ints,
    below: _Bools,
    above: _Bools,
) -> list[Offset]:
    """Return the offset of each pair of clocks 0, 1, …, from their clock to ours.

    Each entry is a collective or a message of ``pair``, with the times (ns) of ``estimate``. ``below``: they
    did not leave before we entered; ``above``: we did not leave before they entered. The median distance of
    the ends is the offset; if the capture is long enough, the slope (the median over entries half the capture
    apart, after Theil and Sen) is the drift; both are moved into the bounds. The bounds give the error
    between the first and the last entry; delays do not make it wrong.
    """
    counts = np.bincount(pair)
    order = np.lexsort((their_end, pair))
    first = np.cumsum(counts) - counts
    offsets_of_pairs: list[Offset | None] = [None] * len(counts)
    for pairs in _batches(counts):
        width = int(counts[pairs].max())
        column = np.arange(width)
        valid = column < counts[pairs][:, None]
        rows = order[np.where(valid, first[pairs][:, None] + column, first[pairs][:, None])]
        batch = _Batch(
            valid, start[rows], end[rows], their_start[rows], their_end[rows], below[rows] & valid,
            above[rows] & valid,
        )  # fmt: skip
        for pair_number, offset in zip(pairs.tolist(), batch.offsets(counts[pairs]), strict=True):
            offsets_of_pairs[pair_number] = offset
    return [one for one in offsets_of_pairs if one is not None]


def _batches(ints: Ints) -> Iterator[Ints]:
    """Yield the pairs in batches with similar numbers of entries; no batch needs more than ``_CELLS``
    cells."""
    order = np.argsort(-ints, kind="stable")
    position = 0
    while position < len(order):
        step = max(1, _CELLS // max(1, int(ints[order[position]])))
        yield order[position : position + step]
        position += step


class _Batch:
    """The bounds of several pairs, one row per pair, to find the lines (offset, drift) that satisfy them."""

    def __init__(
        self, valid: _Bools, start: Ints, end: Ints, their_start: Ints, their_end: Ints,
        below: _Bools, above: _Bools,
    ) -> None:  # fmt: skip
        self.valid = valid
        self.origin = their_end[:, :1]
        self.base = end[:, :1] - self.origin
        self.at = np.where(valid, their_end - self.origin, 0).astype(np.float64)
        self.apart = (end - their_end - self.base).astype(np.float64)
        # an offset below ``low`` would mean that they left before we entered, above ``high`` that we left
        # before they entered
        self.low = np.where(below, (start - their_end - self.base).astype(np.float64), -_FAR)
        self.high = np.where(above, (end - their_start - self.base).astype(np.float64), _FAR)
        self.high_at = np.where(above, their_start - self.origin, 0).astype(np.float64)
        self.low_at = np.where(below, self.at, 0.0)
        self.rows = np.arange(len(valid))

    def offsets(self, ints: Ints) -> list[Offset]:
        """Return the offset of each pair."""
        best, room = self._best()
        fits = room >= 0
        lowest = np.where(fits, self._edge(best, -MAX_DRIFT), best)
        highest = np.where(fits, self._edge(best, MAX_DRIFT), best)
        drift = np.clip(_drift(self.at, self.apart, ints), lowest, highest)
        along = self.apart - drift[:, None] * self.at
        offset = _median(along, self.valid)
        least, most = self._least(drift)[0], self._most(drift)[0]
        offset = np.where(least <= most, np.clip(offset, least, np.maximum(least, most)), offset)
        spread = 1.4826 * _median(np.abs(along - offset[:, None]), self.valid)
        last = np.where(self.valid, self.at, -np.inf).max(1)
        worst = np.zeros(len(offset))
        for when in (self.at[:, 0], last):
            here = offset + drift * when
            top = self._farthest(when, 1, lowest, highest)
            bottom = self._farthest(when, -1, lowest, highest)
            worst = np.maximum(worst, np.maximum(top - here, here + bottom))
        is_sure = fits & (worst < _FAR / 2)
        rounded_offset = self.base[:, 0] + np.rint(offset).astype(np.int64)
        columns = zip(
            self.origin[:, 0].tolist(), rounded_offset.tolist(), drift.tolist(), is_sure.tolist(),
            np.ceil(np.where(is_sure, worst, 0)).tolist(), np.ceil(spread).tolist(), ints.tolist(),
            strict=True,
        )  # fmt: skip
        return [
            Offset(origin, by, slope, int(error) + 1 if sure else None, int(usual), count)
            for origin, by, slope, sure, error, usual, count in columns
        ]

    def _least(self, drift: _Floats, when: _Floats | None = None) -> tuple[_Floats, _Floats]:
        """Return the lowest value that a line with that drift may have at ``when``, and its slope in
        drift."""
        since = self.low_at if when is None else self.low_at - when[:, None]
        value = self.low - drift[:, None] * since
        tight = value.argmax(1)
        return value[self.rows, tight], -since[self.rows, tight]

    def _most(self, drift: _Floats, when: _Floats | None = None) -> tuple[_Floats, _Floats]:
        since = self.high_at if when is None else self.high_at - when[:, None]
        value = self.high - drift[:, None] * since
        tight = value.argmin(1)
        return value[self.rows, tight], -since[self.rows, tight]

    def _room(self, drift: _Floats) -> tuple[_Floats, _Floats]:
        least, most = self._least(drift), self._most(drift)
        return most[0] - least[0], most[1] - least[1]

    def _best(self) -> tuple[_Floats, _Floats]:
        """Return the drift that leaves the most room between the bounds, and that room; drift 0 if it leaves
        room too.

        The room is a concave function of the drift.
        """
        none = np.zeros(len(self.rows))
        value, _ = self._room(none)
        if (value >= 0).all():
            return none, value
        ends = np.full(len(self.rows), MAX_DRIFT)
        best, room = _highest(self._room, -ends, ends)
        # over a short time, a drift cannot explain bounds that contradict each other
        best = np.where((room < 0) & (np.ptp(self.at, axis=1) < MIN_SPAN_NS), none, best)
        return np.where(value >= 0, none, best), np.where(value >= 0, value, room)

    def _edge(self, best: _Floats, far: float) -> _Floats:
        """Return the drift farthest from ``best`` towards ``far`` that leaves room.

        Newton's method from outside: the room is concave, so no step overshoots.
        """
        drift = np.full(len(best), far)
        towards = np.minimum if far < 0 else np.maximum
        for _ in range(_ROUNDS):
            value, slope = self._room(drift)
            outside = (value < 0) & (slope != 0)
            if not outside.any():
                break
            step = drift - value / np.where(outside, slope, 1.0)
            drift = np.where(outside, towards(step, best), drift)
        return drift  # if there is still no room here, the point is outside only by rounding

    def _farthest(self, when: _Floats, up: int, lowest: _Floats, highest: _Floats) -> _Floats:
        """Return the largest value of any line at ``when`` (``up`` 1), or the smallest, negated (-1)."""

        def of(drift: _Floats) -> tuple[_Floats, _Floats]:  # concave
            if up > 0:
                return self._most(drift, when)
            value, slope = self._least(drift, when)
            return -value, -slope

        return _highest(of, lowest, highest)[1]


def _highest(
    of: Callable[[_Floats], tuple[_Floats, _Floats]], low: _Floats, high: _Floats
) -> tuple[_Floats, _Floats]:
    """Return where the concave functions ``of`` (value and slope, each a row) are highest, and how high.

    Two tangents cross above the function; if the function reaches their crossing, that is the maximum.
    """
    left, right = low.copy(), high.copy()
    (left_value, left_slope), (right_value, right_slope) = of(left), of(right)
    best = np.where(left_value >= right_value, left, right)
    most = np.maximum(left_value, right_value)
    open_ = (left_slope > 0) & (right_slope < 0) & (right > left)
    for _ in range(_ROUNDS):
        if not open_.any():
            break
        gap = np.where(open_, left_slope - right_slope, 1.0)
        at = (right_value - left_value + left_slope * left - right_slope * right) / gap
        at = np.where(open_, np.clip(at, left, right), best)
        value, slope = of(at)
        roof = left_value + left_slope * (at - left)
        better = open_ & (value > most)
        best, most = np.where(better, at, best), np.where(better, value, most)
        rising = open_ & (slope > 0)
        falling = open_ & (slope <= 0)
        left, left_value = np.where(rising, at, left), np.where(rising, value, left_value)
        left_slope = np.where(rising, slope, left_slope)
        right, right_value = np.where(falling, at, right), np.where(falling, value, right_value)
        right_slope = np.where(falling, slope, right_slope)
        open_ &= (roof - value > 1e-3) & (slope != 0)
    return best, most


def _median(values: _Floats, valid: _Bools) -> _Floats:
    """Return the median of the valid values of each row; 0 for a row without any."""
    ordered = np.sort(np.where(valid, values, np.inf), axis=1)
    counts = valid.sum(1)
    rows = np.arange(len(values))
    low, high = np.maximum(counts - 1, 0) // 2, np.minimum(counts // 2, ordered.shape[1] - 1)
    middle: _Floats = (ordered[rows, low] + ordered[rows, high]) / 2
    return np.where(counts > 0, middle, 0.0)


def _drift(at: _Floats, apart: _Floats, ints: Ints) -> _Floats:
    """Return the slope of each row of ``apart``, sorted by ``at``; 0 if chance may explain it."""
    half = ints // 2
    early = np.arange(max(1, int(half.max())))
    valid = early < half[:, None]
    late = np.where(valid, (ints - half)[:, None] + early, 0)
    before = np.where(valid, early, 0)
    run = np.take_along_axis(at, late, 1) - np.take_along_axis(at, before, 1)
    rise = np.take_along_axis(apart, late, 1) - np.take_along_axis(apart, before, 1)
    valid &= run > 0
    slopes = rise / np.where(valid, run, 1.0)
    slope = _median(slopes, valid)
    count = np.maximum(valid.sum(1), 1)
    chance = 1.4826 * _median(np.abs(slopes - slope[:, None]), valid) / count**0.5
    clear = (ints >= _LEAST_FOR_DRIFT) & (np.abs(slope) <= MAX_DRIFT) & (np.abs(slope) > 3 * chance)
    return np.where(clear & valid.any(1), slope, 0.0)
