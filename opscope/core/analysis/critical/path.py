"""The critical path: from the end of the window backwards, from each piece of work to what it waited for
last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.analysis.critical.graph import ARRIVE, FROM_START, IN_LANE, MEET, RETURN, Graph
from opscope.core.analysis.critical.work import COMMUNICATION, COPY, KERNEL, SET
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE, Ints, distinct, nest

#: What the time of a piece was spent on, in the order of ``KINDS``.
KINDS: Final = (
    "op", "call", "host", "launch", "kernel", "copy", "set", "communication", "gap", "sync",
    "unexplained",
)  # fmt: skip
OP, CALL, HOST, LAUNCH, KERNEL_, COPY_, SET_, COMMUNICATION_, GAP, SYNC, UNEXPLAINED = range(11)
_OF_WORK: Final = np.zeros(4, np.uint8)
_OF_WORK[[KERNEL, COPY, SET, COMMUNICATION]] = KERNEL_, COPY_, SET_, COMMUNICATION_


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of the path in order of time; each begins where the one before ends (ns since the window's
    start). ``kind``: a place in KINDS. ``lane``: the thread's lane, -1 on a device. ``work``: the place of
    the device work that the piece is or waits for, -1 on a thread. ``event``: on a thread the row of
    ``ranges`` of the op, or -2 - the row of the call, -1 for neither."""

    start: Ints
    end: Ints
    kind: NDArray[np.uint8]
    lane: NDArray[np.int32]
    work: Ints
    event: Ints

    def __len__(self) -> int:
        return len(self.start)


def last_node(graph: Graph) -> int:
    """Return the node whose work ends last."""
    return int(np.argmax(graph.finish))


def path_nodes(graph: Graph) -> Ints:
    """Return the nodes of the critical path, the last first.

    The loop is over the path's changes from one lane to another; within a lane it is a range of nodes.
    """
    here = last_node(graph)
    leaves = np.where(graph.bound != IN_LANE, np.arange(len(graph)), 0)
    leaves = np.maximum.accumulate(leaves)
    runs: list[Ints] = []
    while True:
        head = int(leaves[here])
        runs.append(np.arange(here, head - 1, -1))
        edge = int(graph.bound[head])
        if edge < 0:
            return np.concatenate(runs)
        here = int(graph.source[edge])


def pieces(graph: Graph) -> Pieces:
    """Return how each moment of the window was spent along the critical path.

    The times of the pieces add up exactly to the window's length.
    """
    node = path_nodes(graph)
    before = np.append(node[1:], NONE)
    time, finish, length = graph.time, graph.finish, graph.high - graph.low
    on_device = node >= graph.host_nodes
    from_device = before >= graph.host_nodes
    meets, met = graph.kind[node] == MEET, at(graph.kind.astype(np.int64), before) == MEET
    ref = graph.ref[node].astype(np.int64)
    theirs = at(graph.ref.astype(np.int64), before)
    # a step of the path is the time from ``before`` to ``node``: first the work that begins at ``before``,
    # then the delay from its end on
    begin, middle, end = at(time, before, 0), at(finish, before, 0), time[node]
    arrive = graph.kind[node] == ARRIVE
    worked = from_device & ~meets
    delay = np.full(len(node), HOST, np.uint8)
    delay[on_device & ~from_device & (before >= 0)] = LAUNCH
    delay[on_device & from_device] = GAP
    delay[~on_device & from_device & (graph.kind[node] == RETURN)] = SYNC
    delay[on_device & (before < 0)] = UNEXPLAINED
    delay[arrive | meets] = COMMUNICATION_
    lane = np.where(on_device | from_device | meets | met, NONE, graph.lane[node])
    # the work that the delay belongs to: on a device the waiting work, in a call the work it waited for
    waits = np.where(on_device, ref, np.where(from_device, theirs, NONE))
    waits[meets] = theirs[meets]
    kinds = _OF_WORK[graph.work.what[np.where(worked, theirs, 0)]] if len(graph.work) else delay
    # a gap beyond the typical one has no explanation in the trace
    typical = np.where(delay == GAP, np.minimum(middle + graph.gap, end), end)
    none = np.full(len(node), NONE)
    parts = [  # backwards in time: the start of each interval, and what fills the time after it
        (typical, np.full(len(node), UNEXPLAINED, np.uint8), none, waits),
        (middle, delay, lane, waits),
        (begin, kinds, none, np.where(worked, theirs, NONE)),
    ]
    low, kind, on, work = (
        np.stack(columns, axis=1).reshape(-1) for columns in zip(*parts, strict=True)
    )
    first = [max(int(time[node[0]]), 0), int(finish[node[0]])]
    tail = node[0] >= graph.host_nodes
    tail_kind = int(_OF_WORK[graph.work.what[ref[0]]]) if tail else HOST
    low = np.concatenate(([first[1], first[0]], low))
    kind = np.concatenate((np.array([UNEXPLAINED, tail_kind], np.uint8), kind))
    on = np.concatenate(([NONE, NONE if tail else int(graph.lane[node[0]])], on))
    work = np.concatenate(([NONE, int(ref[0]) if tail else NONE], work))
    # times never increase along the path: overlaps from clocks or rounding are counted once
    low = np.clip(np.minimum.accumulate(low), 0, length)
    low[-1] = 0
    high = np.concatenate(([length], low[:-1]))
    some = high > low
    start, stop, kind, on, work = (column[some][::-1] for column in (low, high, kind, on, work))
    return _with_events(
        graph, Pieces(start, stop, kind, on.astype(np.int32), work, np.full(len(start), NONE))
    )


def _with_events(graph: Graph, path: Pieces) -> Pieces:
    """Return the pieces with those of threads cut where ops and calls begin and end."""
    on_host = path.kind == HOST
    parts: list[tuple[Ints, Ints, NDArray[np.uint8], NDArray[np.int32], Ints, Ints]] = []
    rest = ~on_host
    parts.append(
        (
            path.start[rest],
            path.end[rest],
            path.kind[rest],
            path.lane[rest],
            path.work[rest],
            path.event[rest],
        )
    )
    threads = graph.host
    for lane in np.unique(path.lane[on_host]).tolist():
        here = on_host & (path.lane == lane)
        low, high = path.start[here], path.end[here]
        mine = threads.events(lane)
        begin, stop = threads.start[mine] - graph.low, threads.stop[mine] - graph.low
        cuts = np.concatenate([begin, stop])
        of = np.searchsorted(low, cuts, "right") - 1
        inside = (of >= 0) & (cuts < at(high, of))
        start = distinct(low, cuts[inside])
        index = np.searchsorted(low, start, "right") - 1
        end = np.minimum(np.append(start[1:], high[-1]), high[index])
        inner = nest(begin, stop).innermost(start)
        event = (
            np.where(inner >= 0, threads.event[mine[np.maximum(inner, 0)]], NONE)
            if len(mine)
            else (np.full(len(start), NONE))
        )
        # one row if an op continues beyond the end of a piece
        same = (event[1:] == event[:-1]) & (start[1:] == end[:-1])
        head = np.concatenate(([True], ~same))
        tail = np.concatenate((~same, [True]))
        start, end, event = start[head], end[tail], event[head]
        kind = np.where(event >= 0, OP, np.where(event < NONE, CALL, HOST)).astype(np.uint8)
        parts.append(
            (
                start,
                end,
                kind,
                np.full(len(start), lane, np.int32),
                np.full(len(start), NONE),
                event,
            )
        )
    start, end, kind, on, work, event = (
        np.concatenate(columns) for columns in zip(*parts, strict=True)
    )
    order = np.argsort(start, kind="stable")
    return Pieces(start[order], end[order], kind[order], on[order], work[order], event[order])


__all__ = ["FROM_START", "KINDS", "Pieces", "last_node", "path_nodes", "pieces"]
