"""Replay the graph with other durations: when does everything begin if some work takes less time?

A node begins when everything that it waits for has ended: this is the longest path in an acyclic graph. Along
one lane it is a running maximum, so a lane is one NumPy pass; ``passes.py`` determines the order of lanes,
and where nodes are computed one at a time.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from opscope.core.analysis.critical.graph import Graph
from opscope.core.analysis.critical.passes import Pass, Passes
from opscope.core.tables.intervals import Ints

_LEAST: Final = np.iinfo(np.int64).min // 4


def replay(graph: Graph, duration: Ints, weight: Ints, delay: Ints) -> Ints:
    """Return when each node is reached (ns since the window's start), given durations, weights and delays.

    With the graph's own values it returns ``made.time`` exactly.
    """
    order = graph.passes
    count = len(graph)
    # the time from the previous node in the lane to each node
    after = weight.copy()
    after[1:] += duration[:-1]
    np.maximum(after, 0, out=after)
    after[graph.first] = np.where(graph.rooted, weight, _LEAST)[graph.first]
    takes = after[order.order]
    del after
    # the time of each way to a node, from the start of its source on
    cost = duration[graph.source]
    cost += delay
    cost = np.concatenate([cost, takes[order.head]])[order.way]
    takes[order.head] = 0
    passed = np.cumsum(takes, out=takes)  # only differences within a piece of a lane matter
    # a node is reached ``passed`` after its event, if the time passed until events is subtracted from them
    from_source = np.append(passed, 0)[order.source]
    from_source += cost
    from_source -= np.repeat(passed[order.event], np.diff(order.way_of, append=len(order.way)))
    top = np.empty(len(order.event) + 1, np.int64)
    top[-1] = 0
    for taken in order.taken:
        if taken.dense:
            _one_by_one(order, taken, from_source, top)
        else:
            _pass(order, taken, from_source, top)
    passed += np.repeat(top[:-1], order.lasts)
    reached = np.empty(count, np.int64)
    reached[order.order] = passed
    return reached


def _pass(order: Passes, one: Pass, cost: Ints, top: Ints) -> None:
    """Set ``top`` of the events of one pass: in each piece of a lane the running maximum of arrivals."""
    first, last, begin, end, pieces, _ = one
    came = top[order.source_event[first:last]]
    came += cost[first:last]
    here = np.maximum.reduceat(came, order.way_of[begin:end] - first)
    if pieces > 1:
        # offset each piece of a lane far above the one before, so that one pass handles all of them
        least = int(np.minimum.reduce(here))
        spread = int(np.maximum.reduce(here)) - least + 1
        number = order.piece[begin:end]
        if pieces * spread < 1 << 62:
            shift = (number - number[0]) * np.int64(spread)
            here += shift
            np.maximum.accumulate(here, out=here)
            here -= shift
        else:
            for part in np.split(here, np.flatnonzero(np.diff(number)) + 1):
                np.maximum.accumulate(part, out=part)
    else:
        np.maximum.accumulate(here, out=here)
    top[begin:end] = here


def _one_by_one(order: Passes, one: Pass, cost: Ints, top: Ints) -> None:
    """Set ``top`` of the events of one pass, one at a time: 0.6 us a node.

    Where threads wait for the device every few kernels, a pass of NumPy for each wait takes longer.
    """
    first, last, begin, end, *_ = one
    source, costs = order.source_event[first:last].tolist(), cost[first:last].tolist()
    untils = [*(order.way_of[begin + 1 : end] - first).tolist(), last - first]
    times = memoryview(top)  # type: ignore[arg-type]
    way = 0
    for event, until in zip(range(begin, end), untils, strict=True):
        best = times[source[way]] + costs[way]
        for other in range(way + 1, until):
            came = times[source[other]] + costs[other]
            if came > best:
                best = came
        times[event] = best
        way = until


def wall(graph: Graph, reached: Ints, duration: Ints) -> int:
    """Return when everything has ended, given when each node is reached."""
    unseen = (
        graph.high - graph.low - int(graph.finish.max()) if len(graph) else graph.high - graph.low
    )
    return int((reached + duration).max()) + unseen if len(graph) else unseen
