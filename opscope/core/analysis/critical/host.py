"""The threads of a trace: when each ran ops and calls, and where one thread waits for another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.attribute import Attribution
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE, Ints, merge
from opscope.core.tables.lanes import lanes

_PLACE: Final = ("process", "thread")


@dataclass(frozen=True, slots=True)
class Host:
    """The threads and their events; times in ns.

    ``keys``: (process, thread) of each lane, the main threads first; ``begin``, ``end``: when the lane's
    first range or call begins and its last ends. ``main``: the lane of each lane's main thread. ``start``,
    ``stop``, ``lane``: the ops and calls; ``event``: the row of ``ranges`` of an op, or -2 - the row of
    ``calls``.
    """

    keys: list[tuple[int, int]]
    begin: Ints
    end: Ints
    main: Ints
    start: Ints
    stop: Ints
    lane: NDArray[np.int32]
    event: NDArray[np.int32]

    def lane_of(self, process: Ints, thread: Ints) -> Ints:
        """Return the lane of each (process, thread), -1 for none."""
        lanes = np.full(len(process), NONE, np.int64)
        for lane, (number, on) in enumerate(self.keys):
            lanes[(process == number) & (thread == on)] = lane
        return lanes

    def events(self, lane: int) -> Ints:
        """Return the places of the events of a lane."""
        return np.flatnonzero(self.lane == lane)


def host(attribution: Attribution) -> Host:
    """Return the threads that have ranges or calls; ranges without a thread are left out."""
    trace = attribution.trace
    ops = np.flatnonzero(attribution.is_op)
    extents: dict[tuple[int, int], tuple[int, int]] = {}
    busy: set[tuple[int, int]] = set()
    parts: list[tuple[list[tuple[int, int]], NDArray[Any], Ints, Ints, NDArray[np.int32]]] = []
    for name in ("ranges", "calls"):
        table = trace[name]
        of = lanes(table)
        start = table["start"].fill_null(0).to_numpy()
        end = np.maximum(table["end"].fill_null(0).to_numpy(), start)
        for key, rows in of.rows(np.ones(len(table), bool)):
            if NONE in key:
                continue
            first, last = extents.get(key, (int(start[rows[0]]), int(end[rows[0]])))
            extents[key] = min(first, int(start[rows].min())), max(last, int(end[rows].max()))
        kept: Ints | slice = ops if name == "ranges" else slice(None)
        number = of.of[kept]
        busy.update(of.keys[number] for number in np.flatnonzero(np.bincount(number)).tolist())
        event = ops if name == "ranges" else np.arange(-2, -2 - len(table), -1)
        parts.append((of.keys, number, start[kept], end[kept], event.astype(np.int32)))
    # a thread with only user ranges did no recorded work, unless the trace has nothing else
    threads = sorted(extents.keys() & busy)
    if not threads and not len(trace["kernels"]) and not len(trace["memops"]):
        threads = sorted(extents)
    main = _main(attribution, threads, {key: extents[key][0] for key in threads})
    # main threads come first, because ``replay`` computes the threads that they start after them
    order = sorted(range(len(threads)), key=lambda index: (main[index] != index, threads[index]))
    keys = [threads[index] for index in order]
    place = {index: lane for lane, index in enumerate(order)}
    number_of = {key: lane for lane, key in enumerate(keys)}
    lane, start, stop, event = (
        np.concatenate(columns)
        for columns in zip(
            *(
                (
                    np.array([number_of.get(key, NONE) for key in theirs] or [NONE], np.int32)[
                        number
                    ],
                    first,
                    last,
                    row,
                )
                for theirs, number, first, last, row in parts
            ),
            strict=True,
        )
    )
    on_lane = lane >= 0
    if not on_lane.all():
        lane, start, stop, event = lane[on_lane], start[on_lane], stop[on_lane], event[on_lane]
    return Host(
        keys,
        np.array([extents[key][0] for key in keys], np.int64),
        np.array([extents[key][1] for key in keys], np.int64),
        np.array([place[main[index]] for index in order], np.int64),
        start,
        stop,
        lane.astype(np.int32, copy=False),
        event.astype(np.int32, copy=False),
    )


def _main(
    attribution: Attribution, keys: list[tuple[int, int]], begin: dict[tuple[int, int], int]
) -> list[int]:
    """Return for each thread the place of the main thread of its process: the one with most steps, else the
    one with the number of the process, else the first to begin."""
    trace = attribution.trace
    stepping = {
        (process, thread): ranges
        for process, thread, ranges in trace["ranges"]
        .filter(pl.col("category") == "step")
        .group_by(_PLACE)
        .len()
        .iter_rows()
    }
    pids = dict(trace["processes"].select("process", "pid").iter_rows())
    system = {
        (process, thread): os_tid
        for process, thread, os_tid in trace["threads"].select(*_PLACE, "os_tid").iter_rows()
    }
    best: dict[int, tuple[Any, int]] = {}
    for lane, key in enumerate(keys):
        own = pids.get(key[0])
        first = own is not None and own in (key[1], system.get(key))
        rank = (stepping.get(key, 0), first, -begin[key])
        if key[0] not in best or rank > best[key[0]][0]:
            best[key[0]] = rank, lane
    return [best[process][1] for process, _ in keys]


@dataclass(frozen=True, slots=True)
class Bursts:
    """The work of threads beside the main thread, cut into bursts between which the main thread did
    something.

    Per burst: its ``lane``, ``start`` and ``end`` (ns), and whether the main thread ``waits`` for it: from
    the burst's start to its end, the main thread was outside any op and call, and recorded nothing.
    """

    lane: Ints
    start: Ints
    end: Ints
    waits: NDArray[np.bool_]


def bursts(host: Host) -> Bursts:
    """Return the bursts of all threads except the main threads of their processes."""
    parts: list[tuple[Ints, Ints, Ints, NDArray[np.bool_]]] = []
    for main in np.unique(host.main).tolist():
        others = [lane for lane in np.flatnonzero(host.main == main).tolist() if lane != main]
        if not others:
            continue
        mine = host.events(main)
        edges = np.sort(np.concatenate([host.start[mine], host.stop[mine]]), kind="stable")
        busy = merge(host.start[mine], host.stop[mine])
        for lane in others:
            theirs = host.events(lane)
            # an event of length 0 is a piece of work too; ``merge`` would drop it
            start, end = _join(host.start[theirs], host.stop[theirs])
            if not len(start):
                continue
            between = np.searchsorted(edges, start[1:], "right") > np.searchsorted(
                edges, end[:-1], "left"
            )
            first = np.concatenate(([True], between))
            last = np.concatenate((between, [True]))
            start, end = start[first], end[last]
            alone = np.searchsorted(edges, end, "left") == np.searchsorted(edges, start, "right")
            inside = np.searchsorted(busy[0], start, "right") - 1
            outside = np.ones(len(start), bool)
            if len(busy[0]):
                outside = (inside < 0) | (at(busy[1], inside, 0) <= start)
            waits = alone & outside & (end <= host.end[main]) & (end > start)
            parts.append((np.full(len(start), lane), start, end, waits))
    if not parts:
        none = np.empty(0, np.int64)
        return Bursts(none, none, none, np.empty(0, bool))
    lane, start, end, waits = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Bursts(lane, start, end, waits.astype(bool))


def _join(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the ordered union of intervals, including those of length 0."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    if not len(start):
        return start, reach
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return start[first], reach[last]
