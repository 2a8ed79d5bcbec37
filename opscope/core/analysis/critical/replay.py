"""Replay the graph with other durations: when does everything begin if some work takes less time?

A node begins when all that it waits for has ended: the longest path in a graph without circles. Along one
lane that is a running maximum, so a lane is one pass of NumPy; ``passes.py`` has the order of lanes, and
where nodes are taken one at a time.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from opscope.core.analysis.critical.graph import Graph
from opscope.core.analysis.critical.passes import Pass, Passes
from opscope.core.tables.intervals import Ints

_LEAST: Final = np.iinfo(np.int64).min // 4


def replay(made: Graph, duration: Ints, weight: Ints, delay: Ints) -> Ints:
    """Return when each node is reached (ns since the window's start), given durations, weights and delays.

    With those of the graph itself it returns ``made.time`` exactly.
    """
    order = made.passes
    many = len(made)
    # what a node takes after the one before it in its lane
    after = weight.copy()
    after[1:] += duration[:-1]
    np.maximum(after, 0, out=after)
    unrooted = made.first & ~made.rooted
    after[unrooted] = _LEAST
    rooted = made.first & made.rooted
    after[rooted] = weight[rooted]
    takes = after[order.order]
    del after
    # what each way to a node takes, from the start of its source on
    cost = duration[made.source]
    cost += delay
    cost = np.concatenate([cost, takes[order.head]])[order.way]
    takes[order.head] = 0
    passed = np.cumsum(takes, out=takes)  # only differences within a piece of a lane count
    reached = np.empty(many + 1, np.int64)
    reached[many] = 0
    for one in order.taken:
        if one.lanes:
            _pass(order, one, cost, passed, reached)
        else:
            _one_by_one(order, one, cost, reached)
    found = passed
    found[order.order] = reached[:many]
    return found


def _pass(order: Passes, one: Pass, cost: Ints, passed: Ints, reached: Ints) -> None:
    """Set ``reached`` of the places of one pass: in each piece of a lane the running maximum of arrivals."""
    low, high, first, last, begin, end, lanes = one
    came = reached[order.source[first:last]]
    came += cost[first:last]
    top = np.maximum.reduceat(came, order.way_of[begin:end] - first)
    event = order.event[begin:end]
    top -= passed[event]
    if lanes == 1:
        np.maximum.accumulate(top, out=top)
    else:
        heads = np.searchsorted(order.head, (low, high))
        pieces = np.searchsorted(event, order.head[heads[0] : heads[1]])
        _accumulate(top, pieces)
    np.add(np.repeat(top, order.lasts[begin:end]), passed[low:high], out=reached[low:high])


def _accumulate(top: Ints, pieces: Ints) -> None:
    """Make of ``top`` its running maximum, which begins anew at each of ``pieces``."""
    least = int(top.min())
    spread = int(top.max()) - least + 1
    if len(pieces) * spread < 1 << 62:
        shift = np.repeat(np.arange(len(pieces)) * spread, np.diff(pieces, append=len(top)))
        top += shift
        np.maximum.accumulate(top, out=top)
        top -= shift
        return
    for low, high in zip(pieces.tolist(), [*pieces[1:].tolist(), len(top)], strict=True):
        np.maximum.accumulate(top[low:high], out=top[low:high])


def _one_by_one(order: Passes, one: Pass, cost: Ints, reached: Ints) -> None:
    """Set ``reached`` of the places of one pass, one at a time: 0.6 us a node.

    Where threads wait for the device every few kernels, a pass of NumPy for each wait takes longer.
    """
    low, high, first, last, begin, end, _ = one
    source, costs = order.source[first:last].tolist(), cost[first:last].tolist()
    ways = [*(order.way_of[begin:end] - first).tolist(), last - first]
    times = memoryview(reached)  # type: ignore[arg-type]
    way = 0
    for place, until in zip(range(low, high), ways[1:], strict=True):
        best = times[source[way]] + costs[way]
        for other in range(way + 1, until):
            came = times[source[other]] + costs[other]
            if came > best:
                best = came
        times[place] = best
        way = until


def wall(made: Graph, reached: Ints, duration: Ints) -> int:
    """Return when all has ended, given when each node is reached."""
    unseen = made.high - made.low - int(made.finish.max()) if len(made) else made.high - made.low
    return int((reached + duration).max()) + unseen if len(made) else unseen
