"""Replay the graph with other durations: when does everything begin if some work takes less time?

A node begins when all that it waits for has ended: the longest path in a graph without circles. Along one
lane that is a running maximum, so a lane is one pass of NumPy. Lanes wait for each other, so nodes are
taken in chunks: inside a chunk threads come first and their streams after them, and any other dependency
between lanes ends the chunk. A trace without such waits is one chunk; each wait adds at most one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opscope.core.analysis.critical.graph import Graph
from opscope.core.tables.intervals import Ints

_LEAST = np.iinfo(np.int64).min // 4


def replay(made: Graph, duration: Ints, weight: Ints, delay: Ints) -> Ints:
    """Return when each node is reached (ns since the window's start), given durations, weights and delays.

    With those of the graph itself it returns ``made.time`` exactly.
    """
    many = len(made)
    if not many:
        return np.empty(0, np.int64)
    on_device = np.arange(many) >= made.host_nodes
    along = ~on_device[made.source] & on_device[made.target]
    ends = _ends(made, ~along)
    chunk = np.searchsorted(ends, made.position, "right")
    order = np.argsort(chunk, kind="stable")  # nodes of a chunk: threads, then streams, lane by lane
    place = np.empty(many, np.int64)
    place[order] = np.arange(many)
    bounds = np.searchsorted(chunk[order], np.arange(len(ends) + 2))
    by_target = np.argsort(place[made.target], kind="stable")
    source, target = made.source[by_target], made.target[by_target]
    wait, at_place = delay[by_target], place[target]
    # what a node takes after the one before it in its lane
    after = weight.copy()
    after[1:] += duration[:-1]
    after[1:] = np.maximum(after[1:], 0)
    after[made.first] = np.where(made.rooted, weight, _LEAST)[made.first]
    splits = bounds[:-1] + _host_part(order, bounds, made.host_nodes)
    cuts = np.stack([bounds[:-1], splits, bounds[1:]], axis=1)
    at_edges = np.searchsorted(at_place, cuts)
    found = np.zeros(many, np.int64)
    for (low, middle, high), (first, second, third) in zip(
        cuts.tolist(), at_edges.tolist(), strict=True
    ):
        for begin, end, one, other in ((low, middle, first, second), (middle, high, second, third)):
            if begin == end:
                continue
            arrival = np.full(end - begin, _LEAST)
            if other > one:
                came = found[source[one:other]] + duration[source[one:other]] + wait[one:other]
                np.maximum.at(arrival, at_place[one:other] - begin, came)
            _scan(order[begin:end], arrival, after, made.first, found)
    return found


def wall(made: Graph, reached: Ints, duration: Ints) -> int:
    """Return when all has ended, given when each node is reached."""
    unseen = made.high - made.low - int(made.finish.max()) if len(made) else made.high - made.low
    return int((reached + duration).max()) + unseen if len(made) else unseen


def _ends(made: Graph, closing: NDArray[np.bool_]) -> Ints:
    """Return the positions at which a chunk ends: no ``closing`` edge begins and ends in one chunk."""
    source, target = made.position[made.source[closing]], made.position[made.target[closing]]
    order = np.argsort(source, kind="stable")
    source, nearest = source[order], target[order]
    nearest = np.minimum.accumulate(nearest[::-1])[::-1]
    following = np.searchsorted(source, nearest, "left").tolist()
    near = nearest.tolist()
    ends: list[int] = []
    place = 0
    while place < len(near):  # one turn for each chunk
        ends.append(near[place])
        place = following[place]
    return np.array(ends, np.int64)


def _host_part(order: Ints, bounds: Ints, host_nodes: int) -> Ints:
    """Return how many nodes of each chunk are of threads: they come first."""
    of_host = np.concatenate(([0], np.cumsum(order < host_nodes)))
    counted: Ints = of_host[bounds[1:]] - of_host[bounds[:-1]]
    return counted


def _scan(
    nodes: Ints, arrival: Ints, after: Ints, first: NDArray[np.bool_], found: Ints
) -> None:
    """Set ``found`` of ``nodes``, lane by lane in order, from their arrivals and the nodes before them."""
    takes = after[nodes]
    head = first[nodes]
    head[0] = True
    head[1:] |= nodes[1:] != nodes[:-1] + 1
    rooted = head & first[nodes]
    before = head & ~first[nodes]
    arrival[rooted] = np.maximum(arrival[rooted], takes[rooted])
    joined = nodes[before]
    arrival[before] = np.maximum(arrival[before], found[joined - 1] + takes[before])
    steps = np.where(head, 0, takes)
    passed = np.cumsum(steps)
    relative = arrival - passed
    lanes = int(head.sum())
    if lanes > 1:
        known = arrival > _LEAST
        low, high = int(relative[known].min()), int(relative[known].max())
        relative[~known] = low
        spread = high - low + 1
        if lanes * spread < 1 << 62:
            number = np.cumsum(head) - 1
            shift = number * spread
            found[nodes] = np.maximum.accumulate(relative - low + shift) - shift + low + passed
            return
        for part in np.split(np.arange(len(nodes)), np.flatnonzero(head)[1:]):
            found[nodes[part]] = np.maximum.accumulate(relative[part]) + passed[part]
        return
    found[nodes] = np.maximum.accumulate(relative) + passed
