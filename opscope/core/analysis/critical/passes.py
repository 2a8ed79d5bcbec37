"""The order in which a replay computes a graph's nodes, which depends only on the graph, not on the
durations.

A replay is passes over lanes. Lanes wait for each other, so nodes are computed in chunks: inside a chunk main
threads come first, then the threads that they start, then streams, and any other dependency between lanes
ends the chunk. A trace without such waits is one chunk; each wait adds at most one. If chunks are small,
nodes are computed one at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.intervals import Ints

if TYPE_CHECKING:
    from opscope.core.analysis.critical.graph import Graph

#: For chunks with fewer nodes than this, a NumPy pass takes longer than computing the nodes one at a time.
_SMALL: Final = 200
#: Stages of lanes: main threads, other threads, streams.
_STAGES: Final = 3


class Pass(NamedTuple):
    """Nodes that are computed together. ``[first, last)``: the ways to these nodes. ``[begin, end)``: the
    events among these nodes. There is the number of pieces of lanes, too. ``dense``: whether the nodes are
    computed one at a time."""

    first: int
    last: int
    begin: int
    end: int
    pieces: int
    dense: bool


class Passes(NamedTuple):
    """The passes of a graph. A place is a node's number in the order of computation.

    ``order``: the node of each place. ``head``: the places where a piece of a lane begins in a pass. A way
    to a node is an edge, or from the node before in its lane where a piece begins. ``way``: the ways by the
    place they lead to, as numbers of edges, then of heads. ``source``: the place where each way begins; one
    past the last place is the window's start. ``event``: the places with ways to them; other nodes follow the
    event before them. ``source_event``: the number of the event that the source follows, or is.
    ``way_of``: the first way of each event, ``lasts``: the places from it to the next, ``piece``: the
    number of its piece.
    """

    order: NDArray[np.int32]
    head: NDArray[np.int32]
    way: NDArray[np.int32]
    source: NDArray[np.int32]
    event: NDArray[np.int32]
    source_event: NDArray[np.int32]
    way_of: NDArray[np.int32]
    lasts: NDArray[np.int32]
    piece: NDArray[np.int32]
    taken: list[Pass]


def passes(graph: Graph) -> Passes:
    """Return the passes of the graph."""
    count = len(graph)
    stage = _stage(graph)
    source_at, target_at = graph.position[graph.source], graph.position[graph.target]
    ends = _ends(count, source_at, target_at, stage[graph.source] >= stage[graph.target])
    bounds = np.concatenate(([0], ends, [count]))
    del source_at, target_at
    order, cuts, dense = _order(graph.position, stage, bounds)
    del stage
    ranks = np.empty(count + 1, np.int32)
    ranks[order] = np.arange(count, dtype=np.int32)
    begins = np.zeros(count, bool)
    begins[1:] = order[1:] != order[:-1] + 1
    begins[cuts[:-1][cuts[:-1] < count]] = True
    begins |= graph.first[order]
    for low, high in zip(cuts[:-1][dense].tolist(), cuts[1:][dense].tolist(), strict=True):
        begins[low:high] = True
    head = np.flatnonzero(begins).astype(np.int32)
    before = order[head]
    before = np.where(graph.first[before], count, ranks[before - 1])
    to = np.concatenate([ranks[graph.target], head])
    way = np.argsort(to, kind="stable").astype(np.int32)
    source = np.concatenate([ranks[graph.source], before]).astype(np.int32)[way]
    to = to[way]
    del ranks, before
    of_head = begins.copy()
    begins[to] = True
    event = np.flatnonzero(begins).astype(np.int32)
    way_of = np.searchsorted(to, event).astype(np.int32)
    lasts = np.diff(event, append=np.int32(count))
    numbers = np.cumsum(begins, dtype=np.int32) - np.int32(1)
    source_event = np.append(numbers, np.int32(len(event)))[source]
    piece = np.cumsum(of_head[event], dtype=np.int32)
    ways, events, heads = (np.searchsorted(column, cuts) for column in (to, event, head))
    taken = [
        Pass(*numbers_of)
        for *numbers_of, holds in zip(
            ways[:-1].tolist(),
            ways[1:].tolist(),
            events[:-1].tolist(),
            events[1:].tolist(),
            np.diff(heads).tolist(),
            dense.tolist(),
            (np.diff(cuts) > 0).tolist(),
            strict=True,
        )
        if holds
    ]
    return Passes(order, head, way, source, event, source_event, way_of, lasts, piece, taken)


def _stage(graph: Graph) -> NDArray[np.uint8]:
    """Return the stage of each node: main threads are computed first, then other threads, then streams."""
    stages = np.full(len(graph), 2, np.uint8)
    mains = np.append(graph.host.main == np.arange(graph.threads), False)
    on_host = np.minimum(graph.lane[: graph.host_nodes], graph.threads)
    stages[: graph.host_nodes] = np.where(mains[on_host], 0, 1)
    return stages


def _ends(
    count: int,
    source: NDArray[np.int32],
    target: NDArray[np.int32],
    closing: NDArray[np.bool_],
) -> Ints:
    """Return the positions at which chunks end, so that no ``closing`` edge begins and ends in the same
    chunk."""
    source, target = source[closing], target[closing]
    order = np.argsort(source, kind="stable")
    source, nearest = source[order], target[order]
    nearest = np.minimum.accumulate(nearest[::-1])[::-1]
    following = np.searchsorted(source, nearest, "left").tolist()
    near = nearest.tolist()
    ends: list[int] = []
    position = 0
    while position < len(near):  # one turn for each chunk
        ends.append(near[position])
        position = following[position]
    return np.array(ends, np.int64)


def _order(
    position: NDArray[np.int32], stage: NDArray[np.uint8], bounds: Ints
) -> tuple[NDArray[np.int32], Ints, NDArray[np.bool_]]:
    """Return the node of each place, the places that separate passes, and which passes compute nodes one at a
    time.

    ``bounds``: the positions that separate chunks. A large chunk becomes a pass per stage, each ordered by
    lane; consecutive small chunks become one pass, in the order of positions.
    """
    count = len(position)
    kind = np.int32 if _STAGES * count < 1 << 31 else np.int64
    sizes = np.diff(bounds)
    small = sizes < _SMALL
    at = np.repeat(small, sizes)
    key = np.where(at, np.arange(count, dtype=kind), np.repeat(bounds[:-1].astype(kind), sizes))
    key = key[position] * kind(_STAGES)
    key += np.where(at[position], 0, stage)
    order = np.argsort(key, kind="stable")
    key = key[order]
    after_small = np.concatenate(([False], small[:-1]))
    groups = np.flatnonzero(~(small & after_small))
    firsts = _STAGES * bounds[groups, np.newaxis] + np.arange(_STAGES)
    kept = ~small[groups, np.newaxis] | (np.arange(_STAGES) == 0)
    cuts = np.append(np.searchsorted(key, firsts[kept].astype(kind)), count)
    return order.astype(np.int32), cuts, np.repeat(small[groups], kept.sum(axis=1))
