"""Compute with intervals in NumPy passes: nesting, innermost, union, overlap, difference, clipping.

All intervals are half-open, ``[start, end)``, in integer ns. No function loops over events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.columns import pieces
from opscope.core.tables.mapped import Mapped, zeros

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
NONE = -1
#: Rows that are nested at a time: each takes 100 bytes meanwhile.
_APART: Final = 250_000
#: Most intervals that are nested at once; longer runs are cut while intervals are open.
_LONG: Final = 4


def in_order(start: Ints, rows: Ints, mapped: Mapped | None = None) -> Ints:
    """Return ``rows`` in the order of their ``start``; not copied if they are in order already.

    Rows that are nearly in order, as in most traces, are sorted piece by piece: a row has its final place
    once no later piece has an earlier start.
    """
    firsts: list[int] = []
    ordered, last = True, np.iinfo(np.int64).min
    for part in pieces(len(rows)):
        begin = start[rows[part]]
        if len(begin):
            ordered &= bool(begin[0] >= last and np.all(begin[1:] >= begin[:-1]))
            firsts.append(int(begin.min()))
            last = int(begin[-1])
    if ordered:
        return rows
    never = np.iinfo(np.int64).max
    earliest = np.minimum.accumulate([never, *firsts[::-1]])[::-1]  # the least start from here on
    made, done = zeros(mapped, len(rows), np.int64), 0
    waiting, since = rows[:0], start[:0]
    for number, part in enumerate(pieces(len(rows))):
        waiting = np.concatenate((waiting, rows[part]))
        since = np.concatenate((since, start[rows[part]]))
        order = np.argsort(since, kind="stable")
        waiting, since = waiting[order], since[order]
        free = int(np.searchsorted(since, earliest[number + 1], side="right"))
        made[done : done + free] = waiting[:free]
        done += free
        waiting, since = waiting[free:], since[free:]
    return made


def apart(start: Ints, end: Ints, rows: Ints) -> Iterator[slice]:
    """Yield slices of ``rows`` (by start) of some 250,000 rows or more, cut where no interval (ns) is open.

    Enclosing intervals can be found in each slice separately. If some interval is always open, there is a
    single slice.
    """
    begin, reach = 0, np.iinfo(np.int64).min
    for part in pieces(len(rows)):
        first, last = start[rows[part]], end[rows[part]]
        reached = np.maximum.accumulate(np.concatenate(([reach], last)))
        free = np.flatnonzero(reached[:-1] <= first) + part.start
        while len(free := free[free >= begin + _APART]):
            yield slice(begin, int(free[0]))
            begin = int(free[0])
        reach = int(reached[-1])
    if begin < len(rows):
        yield slice(begin, len(rows))


@dataclass(frozen=True, slots=True)
class Window:
    """Some ``rows`` of intervals by start, a slice of all, and the rows ``held`` that are open since an
    earlier window.

    ``until``: when the next window begins (ns), if anything is open then; otherwise None.
    """

    held: Ints
    rows: slice
    until: int | None


def windows(start: Ints, end: Ints, rows: Ints) -> Iterator[Window]:
    """Yield the slices of ``apart``; slices that are much longer are split into parts. Intervals that are
    open at a cut are repeated in the parts that follow, so the interval around any interval is in its
    window."""
    nothing = rows[:0]
    for some in apart(start, end, rows):
        if some.stop - some.start <= _LONG * _APART:
            yield Window(nothing, some, None)
            continue
        begin, open_rows = some.start, nothing
        while begin < some.stop:
            # windows grow with the number of intervals that are repeated, so that these are not examined
            # again for only a few rows
            cut = _next_start(start, rows, begin + max(_APART, 2 * len(open_rows)), some.stop)
            until = int(start[rows[cut]]) if cut < some.stop else None
            yield Window(open_rows, slice(begin, cut), until)
            if until is not None:
                open_rows = np.concatenate((open_rows, rows[begin:cut]))
                open_rows = open_rows[end[open_rows] > until]
            begin = cut


def _next_start(start: Ints, rows: Ints, position: int, stop: int) -> int:
    """Return the first place from ``position`` on whose row starts later than the previous row; else
    ``stop``."""
    while position < stop:
        times = start[rows[position - 1 : min(position + _APART, stop)]]
        later = np.flatnonzero(times[1:] > times[:-1])
        if len(later):
            return position + int(later[0])
        position += len(times) - 1
    return stop


@dataclass(frozen=True, slots=True)
class Nest:
    """The nesting of the intervals of one thread, by start.

    ``order``: for each place in the sorted order, the row it came from. ``start``, ``end`` (ns): in that
    order. ``parent``: the place of the latest-starting earlier interval that ends no sooner, or -1; if
    intervals nest properly, that is the enclosing interval.
    """

    order: Ints
    start: Ints
    end: Ints
    parent: Ints

    def innermost(self, time: Ints) -> Ints:
        """Return for each time (ns) the *row* of the latest-starting interval that contains it, or -1.

        Exact for every set of intervals, crossing ones included: no interval between an interval and its
        ``parent`` ends later, so all intervals that have ended by a time are skipped at once. O(log n) per
        query, and as many passes as intervals nest.
        """
        if not len(self.start):
            return np.full(len(time), NONE, np.int64)
        index = np.searchsorted(self.start, time, side="right") - 1
        pending = np.flatnonzero(index >= 0)
        while len(pending):
            pending = pending[self.end[index[pending]] <= time[pending]]
            index[pending] = self.parent[index[pending]]
            pending = pending[index[pending] >= 0]
        has_range = index >= 0
        return np.where(has_range, self.order[np.where(has_range, index, 0)], NONE)


def nest(start: Ints, end: Ints) -> Nest:
    """Return the nesting of intervals; those of length 0 contain nothing and are left out.

    Of two equal intervals, the earlier row is the outer one. Pointer jumping finds all parents in about
    log2(longest run of siblings) rounds.
    """
    rows = np.flatnonzero(end > start)
    # a stable sort by end (descending), then by start: nearly sorted input costs next to nothing
    order = rows[np.argsort(-end[rows], kind="stable")] if _has_ties(start[rows]) else rows
    order = order[np.argsort(start[order], kind="stable")]
    first, last = start[order], end[order]
    return Nest(order, first, last, _previous_not_less(last))


def _has_ties(start: Ints) -> bool:
    ordered = np.sort(start, kind="stable")
    return bool(np.any(ordered[1:] == ordered[:-1]))


def _previous_not_less(values: Ints) -> Ints:
    """Return for each place the nearest earlier place whose value is not less, or -1."""
    index = np.arange(-1, len(values) - 1, dtype=np.int64)
    pending = np.arange(1, len(values), dtype=np.int64)
    pending = pending[values[index[pending]] < values[pending]]
    while len(pending):
        index[pending] = index[index[pending]]
        candidate = index[pending]
        pending = pending[(candidate >= 0) & (values[candidate] < values[pending])]
    return index


def distinct(*times: Ints) -> Ints:
    """Return the distinct values of all arrays in order.

    A stable sort merges sorted runs; ``np.unique`` hashes each value, which takes longer on them.
    """
    ordered: Ints = np.sort(np.concatenate(times), kind="stable")
    kept = np.ones(len(ordered), bool)
    kept[1:] = ordered[1:] != ordered[:-1]
    return ordered[kept]


def nearest(parent: Ints, wanted: NDArray[np.bool_]) -> Ints:
    """Return for each node of a forest the nearest ``wanted`` node among itself and its ancestors, or -1."""
    here = np.arange(len(parent), dtype=np.int64)
    holder = np.where(wanted, here, parent)
    while True:
        moving = np.flatnonzero(holder >= 0)
        target = holder[moving]
        moving = moving[~wanted[target]]
        if not len(moving):
            return holder
        holder[moving] = holder[holder[moving]]


def depth(parent: NDArray[np.signedinteger[Any]]) -> Ints:
    """Return how many ancestors each node of a forest has. Parents come before their children."""
    level = (parent >= 0).astype(np.int64)
    jump = parent.copy()
    while True:
        moving = np.flatnonzero(jump >= 0)
        moving = moving[jump[jump[moving]] >= 0] if len(moving) else moving
        if not len(moving):
            return level
        # read both arrays before writing either: each node adds the stretch that it jumps over
        stretch = level[jump[moving]]
        after = jump[jump[moving]]
        level[moving] += stretch
        jump[moving] = after


def merge(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the union of intervals as disjoint intervals in order; touching ones are joined."""
    start, end = _in_order(start, end)
    if not len(start):
        return start, end
    reach = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return start[first], reach[last]


def union_length(start: Ints, end: Ints) -> int:
    """Return how long (ns) at least one interval is open; ten million are handled in pieces."""
    start, end = _in_order(start, end)
    total, reached = 0, int(start[0]) if len(start) else 0
    for part in pieces(len(start)):
        reach = np.maximum.accumulate(np.maximum(end[part], reached))
        before = np.concatenate((np.array([reached]), reach[:-1]))[: len(reach)]
        total += int(np.maximum(reach - np.maximum(start[part], before), 0).sum())
        reached = int(reach[-1]) if len(reach) else reached
    return total


def _in_order(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the intervals with a length above 0, by start; not copied if they are in that form already."""
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if np.any(start[1:] < start[:-1]):  # kernels of one device come in order
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    return start, end


def intersect(a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Return the overlap of two unions (as ``merge`` returns them)."""
    if not len(a[0]) or not len(b[0]):
        return a[0][:0], a[0][:0]
    time = np.concatenate((a[0], b[0], a[1], b[1]))
    step = np.repeat(np.array([1, -1]), len(a[0]) + len(b[0]))
    order = np.lexsort((step, time))  # ends before starts: intervals that touch do not overlap
    level = np.cumsum(step[order])
    both = np.flatnonzero(level == 2)
    time = time[order]
    first, last = time[both], time[both + 1]
    keep = last > first
    return first[keep], last[keep]


def subtract(a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Return the part of the union ``a`` outside the union ``b``."""
    if not len(a[0]) or not len(b[0]):
        return a
    low, high = int(min(a[0][0], b[0][0])) - 1, int(max(a[1][-1], b[1][-1])) + 1
    outside = (
        np.concatenate((np.array([low]), b[1])),
        np.concatenate((b[0], np.array([high]))),
    )
    return intersect(a, outside)


def clip(spans: tuple[Ints, Ints], low: int, high: int) -> tuple[Ints, Ints]:
    """Return the part of each interval within ``[low, high)``."""
    start, end = np.maximum(spans[0], low), np.minimum(spans[1], high)
    keep = end > start
    return start[keep], end[keep]
