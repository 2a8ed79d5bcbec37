"""The threads of a trace: when each ran ops and calls, and where one thread waits for another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.attribute import Attribution
from opscope.core.tables.intervals import NONE, Ints, merge
from opscope.core.tables.lanes import lanes_of

_PLACE: Final = ("process", "thread")


@dataclass(frozen=True, slots=True)
class Host:
    """The threads and their events; times in ns.

    ``keys``: (process, thread) of each lane; ``begin``, ``end``: from its first range or call to its last.
    ``main``: the lane of each lane's main thread. ``start``, ``stop``, ``lane``: the ops and calls;
    ``event``: the row of ``ranges`` of an op, or -2 - the row of ``calls``.
    """

    keys: list[tuple[int, int]]
    begin: Ints
    end: Ints
    main: Ints
    start: Ints
    stop: Ints
    lane: Ints
    event: Ints

    def lane_of(self, process: Ints, thread: Ints) -> Ints:
        """Return the lane of each (process, thread), -1 for none."""
        found = np.full(len(process), NONE, np.int64)
        for lane, (number, on) in enumerate(self.keys):
            found[(process == number) & (thread == on)] = lane
        return found

    def events(self, lane: int) -> Ints:
        """Return the places of the events of a lane."""
        return np.flatnonzero(self.lane == lane)


def host(attribution: Attribution) -> Host:
    """Return the threads that have ranges or calls; ranges of no thread are left out."""
    trace = attribution.trace
    spans = pl.concat(
        [trace[name].select(*_PLACE, "start", "end") for name in ("ranges", "calls")]
    ).filter(pl.all_horizontal(pl.col(*_PLACE, "start", "end").is_not_null()))
    # a thread of which only user ranges were recorded shows no work, unless that is all there is
    busy = pl.concat([trace["ranges"].filter(pl.Series(attribution.is_op)), trace["calls"]], how="diagonal")
    known = spans.join(busy.select(_PLACE).unique(), on=_PLACE, how="semi")
    device = len(trace["kernels"]) + len(trace["memops"])
    spans = known if len(known) or device else spans
    extent = (
        spans.group_by(_PLACE)
        .agg(pl.col("start").min(), pl.max_horizontal("start", "end").max().alias("end"))
        .sort(_PLACE)
    )
    keys = [(int(one), int(other)) for one, other in extent.select(_PLACE).iter_rows()]
    ops = np.flatnonzero(attribution.is_op)
    parts: list[list[NDArray[Any]]] = [[], [], [], [], []]
    for table, rows, event in (
        (trace["ranges"], ops, ops),
        (trace["calls"], None, -2 - np.arange(len(trace["calls"]))),
    ):
        for place, name in enumerate(("process", "thread", "start", "end")):
            column = table[name] if rows is None else table[name].gather(rows)
            parts[place].append(column.fill_null(NONE).cast(pl.Int64).to_numpy())
        parts[4].append(event.astype(np.int64))
    process, thread, start, stop, event = (np.concatenate(one) for one in parts)
    of = lanes_of(process, thread)
    number = {key: lane for lane, key in enumerate(keys)}
    lane = np.array([number.get(key, NONE) for key in of.keys] or [NONE], np.int64)[of.of]
    kept = (lane >= 0) & (stop >= start)
    start, stop, lane, event = start[kept], stop[kept], lane[kept], event[kept]
    main = _main(attribution, keys, extent["start"].to_numpy())
    return Host(
        keys, extent["start"].to_numpy(), extent["end"].to_numpy(), main, start, stop, lane, event
    )


def _main(attribution: Attribution, keys: list[tuple[int, int]], begin: Ints) -> Ints:
    """Return each lane's main lane: of its process the one with most steps, else the one with the number of
    the process, else the first to begin."""
    trace = attribution.trace
    stepping = dict(
        ((process, thread), many)
        for process, thread, many in trace["ranges"]
        .filter(pl.col("category") == "step")
        .group_by(_PLACE)
        .len()
        .iter_rows()
    )
    pids = dict(trace["processes"].select("process", "pid").iter_rows())
    system = {
        (process, thread): os_tid
        for process, thread, os_tid in trace["threads"].select(*_PLACE, "os_tid").iter_rows()
    }
    best: dict[int, tuple[Any, int]] = {}
    for lane, key in enumerate(keys):
        own = pids.get(key[0])
        first = own is not None and own in (key[1], system.get(key))
        rank = (stepping.get(key, 0), first, -int(begin[lane]))
        if key[0] not in best or rank > best[key[0]][0]:
            best[key[0]] = rank, lane
    return np.array([best[process][1] for process, _ in keys], np.int64)


@dataclass(frozen=True, slots=True)
class Bursts:
    """What the threads beside the main one did, in pieces between which the main thread did something.

    Per burst: its ``lane``, ``start`` and ``end`` (ns), and whether the main thread ``waits`` for it: it was
    outside any op and call, and recorded nothing, from the burst's start to its end.
    """

    lane: Ints
    start: Ints
    end: Ints
    waits: NDArray[np.bool_]


def bursts(host: Host) -> Bursts:
    """Return the bursts of all threads that are not the main thread of their process."""
    found: list[tuple[Ints, Ints, Ints, NDArray[np.bool_]]] = []
    for main in np.unique(host.main).tolist():
        others = [lane for lane in np.flatnonzero(host.main == main).tolist() if lane != main]
        if not others:
            continue
        mine = host.events(main)
        edges = np.sort(np.concatenate([host.start[mine], host.stop[mine]]))
        busy = merge(host.start[mine], host.stop[mine])
        for lane in others:
            theirs = host.events(lane)
            # an event of length 0 is a piece of work too; ``merge`` would drop it
            start, end = _joined(host.start[theirs], host.stop[theirs])
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
                outside = (inside < 0) | (busy[1][np.maximum(inside, 0)] <= start)
            waits = alone & outside & (end <= host.end[main]) & (end > start)
            found.append((np.full(len(start), lane), start, end, waits))
    if not found:
        none = np.empty(0, np.int64)
        return Bursts(none, none, none, np.empty(0, bool))
    lane, start, end, waits = (np.concatenate(one) for one in zip(*found, strict=True))
    return Bursts(lane, start, end, waits.astype(bool))


def _joined(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the union of intervals in order, those of length 0 included."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    if not len(start):
        return start, reach
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return start[first], reach[last]
