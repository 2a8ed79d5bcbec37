"""Replay the graph with other durations: when does everything begin if some work takes less time?

A node begins when all that it waits for has ended: the longest path in a graph without circles. Along one
lane that is a running maximum, so a lane is one pass of NumPy. Lanes wait for each other, so nodes are
taken in chunks: inside a chunk main threads come first, then the threads that they start, then streams,
and any other dependency between lanes ends the chunk. A trace without such waits is one chunk; each wait
adds at most one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opscope.core.analysis.critical.graph import STAGES, Graph
from opscope.core.tables.intervals import Ints

_LEAST: Final = np.iinfo(np.int64).min // 4
#: Nodes of a chunk below which a pass of NumPy over it takes longer than its nodes one at a time.
_SMALL: Final = 200


def replay(made: Graph, duration: Ints, weight: Ints, delay: Ints) -> Ints:
    """Return when each node is reached (ns since the window's start), given durations, weights and delays.

    With those of the graph itself it returns ``made.time`` exactly.
    """
    many = len(made)
    found = np.zeros(many, np.int64)
    stage = made.stage
    ends = _ends(made, stage[made.source] >= stage[made.target])
    sizes = np.diff(np.concatenate(([0], ends, [many])))
    # what a node takes after the one before it in its lane
    after = weight.copy()
    after[1:] += duration[:-1]
    np.maximum(after, 0, out=after)
    after[made.first] = np.where(made.rooted, weight, _LEAST)[made.first]
    # the edges by the position of their targets: those of a stretch lie together
    edges = made.by_target
    target_at = made.position[made.target[edges]].astype(np.int64)
    cost = (duration[made.source] + delay)[edges]
    place = np.empty(many, np.int64)
    for low, high, dense in _stretches(sizes):
        inside = ends[low : high - 1] if high - low > 1 else ends[:0]
        begin = int(ends[low - 1]) if low else 0
        end = int(ends[high - 1]) if high - 1 < len(ends) else many
        here = slice(*np.searchsorted(target_at, (begin, end)).tolist())
        incoming = _Incoming(made.source[edges[here]], target_at[here], cost[here])
        if dense:
            _one_by_one(made, (begin, end), incoming, after, found)
        else:
            _by_chunk(made, (begin, end), inside, incoming, after, place, found)
    return found


def _stretches(sizes: Ints) -> Iterator[tuple[int, int, bool]]:
    """Yield stretches of chunks that are all small, or all large: first, one past the last, small."""
    small = sizes < _SMALL
    edges = np.flatnonzero(small[1:] != small[:-1]) + 1
    bounds = np.concatenate(([0], edges, [len(sizes)]))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield low, high, bool(small[low])


class _Incoming(NamedTuple):
    """The edges into a stretch, by the position of their targets: ``cost`` is from the source's start on."""

    source: NDArray[np.int32]
    target_at: Ints
    cost: Ints


def _one_by_one(
    made: Graph, part: tuple[int, int], incoming: _Incoming, after: Ints, found: Ints
) -> None:
    """Set ``found`` of the nodes from one position to another, one at a time: 0.6 us a node.

    Where threads wait for the device every few kernels, a pass of NumPy for each wait takes longer.
    """
    nodes = made.in_order[part[0] : part[1]]
    bounds = np.searchsorted(incoming.target_at, np.arange(part[0], part[1] + 1))
    source, costs = incoming.source.tolist(), incoming.cost.tolist()
    reached = memoryview(found)  # type: ignore[arg-type]
    for node, first, takes, begin, end in zip(
        nodes.tolist(),
        made.first[nodes].tolist(),
        after[nodes].tolist(),
        bounds[:-1].tolist(),
        bounds[1:].tolist(),
        strict=True,
    ):
        best = takes if first else reached[node - 1] + takes
        for edge in range(begin, end):
            came = reached[source[edge]] + costs[edge]
            if came > best:
                best = came
        reached[node] = best


def _by_chunk(
    made: Graph,
    part: tuple[int, int],
    inside: Ints,
    incoming: _Incoming,
    after: Ints,
    place: Ints,
    found: Ints,
) -> None:
    """Set ``found`` of the nodes from one position to another, one pass for each stage of each chunk.

    ``inside``: the positions between at which a chunk ends. ``place``: room for a number per node.
    """
    nodes = made.in_order[part[0] : part[1]]
    chunk = np.searchsorted(inside, np.arange(part[0], part[1]), "right")
    stage = made.stage[nodes]
    # a chunk's main threads, then other threads, then streams, each lane by lane
    order = nodes[np.lexsort((nodes, stage, chunk))]
    place[order] = np.arange(len(order))
    target = place[made.in_order[incoming.target_at]]
    by_place = np.argsort(target, kind="stable")
    source, at_place, costs = incoming.source[by_place], target[by_place], incoming.cost[by_place]
    many = (len(inside) + 1) * STAGES
    cuts = np.searchsorted(np.sort(chunk * STAGES + stage), np.arange(many + 1))
    at_edges = np.searchsorted(at_place, cuts)
    for low, high, first, last in zip(
        cuts[:-1].tolist(), cuts[1:].tolist(), at_edges[:-1].tolist(), at_edges[1:].tolist(),
        strict=True,
    ):  # fmt: skip
        if low == high:
            continue
        arrival = np.full(high - low, _LEAST)
        if last > first:
            came = found[source[first:last]] + costs[first:last]
            np.maximum.at(arrival, at_place[first:last] - low, came)
        _scan(order[low:high], arrival, after, made.first, found)


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


def _scan(
    nodes: NDArray[np.int32], arrival: Ints, after: Ints, first: NDArray[np.bool_], found: Ints
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
