"""Puts intervals into stacks: sets in which no interval crosses another, and the order of their edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.forest import Forest
from opscope.core.tables.intervals import Ints, nest

#: So many stacks are looked for one below another; the intervals left then are taken one after the other.
_MOST = 256


@dataclass(frozen=True, slots=True)
class Stack:
    """Intervals that nest properly.

    ``rows``: where each came from, outer before inner. ``around``: the place of the one around it, or -1.
    ``opens``, ``closes``: the place of its two edges in the order in which a stack is built and taken down:
    by time, and right where edges have equal times.
    """

    rows: Ints
    around: Ints
    opens: Ints
    closes: Ints


def stacks(start: Ints, end: Ints) -> Iterator[Stack]:
    """Yield the stacks of intervals (ns); those of length 0 are in none.

    An interval that begins inside another and ends after it goes to the next stack, with all inside it.
    """
    rest = np.flatnonzero(end > start)
    for level in range(_MOST):
        if not len(rest):
            return
        tree = nest(start[rest], end[rest])
        crossing = _crossing(tree.parent, tree.start, tree.end)
        if (
            level == _MOST - 1
        ):  # far more than streams or threads have: what is left keeps no nesting
            crossing = _after_another(tree.start, tree.end)
        if crossing.any():
            kept = np.sort(rest[tree.order[~crossing]])
            yield _stack(kept, start, end)
            rest = np.sort(rest[tree.order[crossing]])
        else:
            yield _stack(rest, start, end)
            return
    while len(rest):
        tree = nest(start[rest], end[rest])
        late = _after_another(tree.start, tree.end)
        yield _stack(np.sort(rest[tree.order[~late]]), start, end)
        rest = np.sort(rest[tree.order[late]])


def _stack(rows: Ints, start: Ints, end: Ints) -> Stack:
    tree = nest(start[rows], end[rows])
    forest = Forest(tree.parent)
    place, level = np.arange(len(rows)), forest.level
    # before an interval opens, all that opened earlier have closed but those around it
    opens = 2 * place - level
    # before it closes, all within it have opened and closed
    closes = 2 * (place + forest.size) - level - 1
    return Stack(rows[tree.order], tree.parent, opens, closes)


def _crossing(parent: Ints, start: Ints, end: Ints) -> NDArray[np.bool_]:
    """Return which intervals begin before the sibling before them ends, and those inside such a one.

    Of siblings, a later one ends later: else it would be inside. So only the one before needs a look.
    """
    order = np.argsort(parent, kind="stable")
    same = parent[order[1:]] == parent[order[:-1]]
    found = np.zeros(len(parent), bool)
    found[order[1:]] = same & (end[order[:-1]] > start[order[1:]])
    if found.any():
        for nodes in Forest(parent).levels[1:]:
            found[nodes] |= found[parent[nodes]]
    return found


def _after_another(start: Ints, end: Ints) -> NDArray[np.bool_]:
    """Return which intervals begin before one of the earlier ones has ended."""
    found = np.zeros(len(start), bool)
    found[1:] = np.maximum.accumulate(end)[:-1] > start[1:]
    return found
