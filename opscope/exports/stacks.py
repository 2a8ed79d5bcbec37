"""Put intervals into stacks (sets in which no interval crosses another), with the order of their edges."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.columns import at
from opscope.core.tables.forest import Forest
from opscope.core.tables.intervals import NONE, Ints, nest

_NONE: Final = np.empty(0, np.int64)
#: Stacks that are searched for one after another; the intervals that remain then are placed without nesting.
_MOST = 256


@dataclass(frozen=True, slots=True)
class Stack:
    """Intervals that nest properly.

    ``rows``: the rows that open, outer before inner. ``around``: the row that contains each, or -1.
    ``closing``: the rows that close; if a track is stacked part by part, some opened in an earlier part or
    close in a later one. ``opens``, ``closes``: the positions of their edges in order of time; edges at equal
    times are in nesting order.
    """

    rows: Ints
    around: Ints
    opens: Ints
    closing: Ints
    closes: Ints


def stacks(start: Ints, end: Ints, ints: Ints = _NONE, until: int | None = None) -> Iterator[Stack]:
    """Yield the stacks of intervals (ns); intervals of length 0 are left out.

    An interval that begins inside another one and ends after that one goes to the next stack, together with
    all intervals inside it. ``ints``: the stacks, by number, of the first intervals, which opened in an
    earlier part. ``until``: when the next part begins; intervals that end later do not close in this part.
    """
    rest = np.flatnonzero(end > start)
    for level in itertools.count():
        if not len(rest):
            return
        tree = nest(start[rest], end[rest])
        is_held = rest[tree.order] < len(ints)
        higher = at(ints, np.where(is_held, rest[tree.order], NONE), 0) > level
        if level < _MOST - 1:
            crossing = _crossing(tree.parent, tree.start, tree.end, is_held, higher)
        else:  # this is far more stacks than streams or threads need: the rest is placed without nesting
            crossing = np.where(is_held, higher, _after_another(tree.start, tree.end))
        yield _stack(np.sort(rest[tree.order[~crossing]]), start, end, len(ints), until)
        rest = np.sort(rest[tree.order[crossing]])


def _stack(rows: Ints, start: Ints, end: Ints, open_count: int, until: int | None) -> Stack:
    tree = nest(start[rows], end[rows])
    forest = Forest(tree.parent)
    index, level = np.arange(len(rows)), forest.level
    # before an interval opens, all that opened earlier have closed, except those that contain it
    opens = 2 * index - level
    # before an interval closes, all inside it have opened and closed
    closes = 2 * (index + forest.size) - level - 1
    ordered = rows[tree.order]
    around = at(ordered, tree.parent)
    if not open_count and until is None:
        return Stack(ordered, around, opens, ordered, closes)
    new = ordered >= open_count
    closing = np.ones(len(rows), bool) if until is None else end[ordered] <= until
    used = np.zeros(2 * len(rows), bool)
    used[opens[new]] = used[closes[closing]] = True
    number = np.cumsum(used) - 1
    return Stack(
        ordered[new], around[new], number[opens[new]], ordered[closing], number[closes[closing]]
    )


def _crossing(
    parent: Ints,
    start: Ints,
    end: Ints,
    is_held: NDArray[np.bool_],
    higher: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Return for each interval whether it begins before its previous sibling ends, or is inside such an
    interval.

    Only the previous sibling is compared, because a later sibling ends later: otherwise it would be inside
    the earlier one. ``higher`` gives the result for the intervals that ``is_held`` selects.
    """
    order = np.argsort(parent, kind="stable")
    same = parent[order[1:]] == parent[order[:-1]]
    crosses = np.zeros(len(parent), bool)
    crosses[order[1:]] = same & (end[order[:-1]] > start[order[1:]])
    crosses = np.where(is_held, higher, crosses)
    if crosses.any():
        for nodes in Forest(parent).levels[1:]:
            crosses[nodes] |= crosses[parent[nodes]]
    return crosses


def _after_another(start: Ints, end: Ints) -> NDArray[np.bool_]:
    """Return which intervals begin before any earlier one has ended."""
    is_crossed = np.zeros(len(start), bool)
    is_crossed[1:] = np.maximum.accumulate(end)[:-1] > start[1:]
    return is_crossed
