"""The dependency graph of a trace: moments of threads and starts of device work, with what each waited for.

A node is a moment of a thread (a launch, a call that waits, a hand-over between threads) or the start of
device work. Nodes are stored lane by lane (threads, then streams), in order within each lane: the previous
node is a predecessor without an edge row. Edges between lanes have rows. The work between two nodes of a
thread is the weight of the later one, so ops need no nodes of their own: a million kernels make two million
nodes. Every delay is the typical one in the trace, but not more than the measured one; the rest of the
measured delay is added to the edge that ended last. So the longest path to a node is its measured time,
exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.critical.host import Bursts, Host, bursts, host
from opscope.core.analysis.critical.passes import Passes, passes
from opscope.core.analysis.critical.ranks import Meeting, meetings
from opscope.core.analysis.critical.waits import (
    INFERRED_EVENT,
    INFERRED_STREAM,
    Waits,
    coinciding,
    waits,
)
from opscope.core.analysis.critical.work import COMMUNICATION, Work, device_work
from opscope.core.analysis.device.device_work import linked_work
from opscope.core.analysis.ops.lost_kernels import idle_unknown
from opscope.core.analysis.summary.summary import ended_steps
from opscope.core.attribution.attribute import Attribution
from opscope.core.once import once
from opscope.core.tables.columns import compact, hand_back
from opscope.core.tables.intervals import NONE, Ints, merge
from opscope.core.tables.trace import Trace

#: Kinds of nodes. The numbers order nodes of equal time: a return before a launch, a launch before the work.
RETURN, FORK, BEGIN, DONE, JOIN, LAUNCH, CALL, MARK, WORK, MEET, ARRIVE, LAST = range(12)
_KINDS: Final = LAST + 1
#: Special predecessors of a node, without an edge row: the start of the window, the previous node.
FROM_START, IN_LANE = -2, -1
#: Notes on the graph's assumptions, and on what it had to leave out.
FOLLOWS_MAIN: Final = (
    "critical path: the trace does not say what starts the work of other threads; it is taken to begin when"
    " the main thread gets there, and the main thread to wait for it where it recorded nothing meanwhile"
)
NOT_MATCHED: Final = (
    "critical path: which collectives of several ranks are the same is not known, or their clocks differ,"
    " so no rank waits for another"
)
LEFT_OUT: Final = "critical path: dependencies that contradict the recorded times were left out"
NO_SYNCS: Final = (
    "critical path: no synchronisation events in the trace; what a call waited for is inferred from its name"
    " and from what ended during it (in PyTorch, torch.profiler records them with"
    " experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True))"
)


@dataclass
class Graph:
    """Nodes lane by lane and the edges between lanes; times in ns since ``low``, the window's start.

    Per node: ``time``, ``kind``, ``lane``, ``ref`` (the place of its work, or the row of its call, else -1),
    ``duration`` (of the work that starts there), ``weight`` (on a thread: the work since the previous node;
    on a stream: the time from the end of the previous work to the start), ``first`` (it is the first node of
    its lane), ``rooted`` (it follows the window's start). Per edge: ``source``, ``target``, ``delay`` from
    the source's end, and ``shared``: the delay is the transfer of a collective that others entered last.
    ``bound``: the edge that ended last, FROM_START or IN_LANE. ``threads``: number of thread lanes.
    ``steps``: the step ranges that have ended (columns process, thread, start, end; ns), whose n-th has the
    marks 2 n and 2 n + 1.
    """

    low: int
    high: int
    host: Host
    work: Work
    time: Ints
    kind: NDArray[np.uint8]
    lane: NDArray[np.int32]
    ref: NDArray[np.int32]
    duration: Ints
    weight: Ints
    first: NDArray[np.bool_]
    rooted: NDArray[np.bool_]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    delay: Ints
    shared: NDArray[np.bool_]
    bound: NDArray[np.int32]
    position: NDArray[np.int32]
    host_nodes: int
    threads: int
    gap: int
    steps: pl.DataFrame
    notes: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.time)

    @once
    def passes(self) -> Passes:
        """The order in which a replay computes the nodes."""
        return passes(self)

    @property
    def finish(self) -> Ints:
        """When the work of each node ends; a node of a thread takes no time."""
        return self.time + self.duration


def window(trace: Trace) -> tuple[int, int] | None:
    """Return when the first event of the trace starts and the last ends (ns); None without events."""
    low: list[Any] = []
    high: list[Any] = []
    for name in ("ranges", "calls", "kernels", "memops"):
        if len(trace[name]):
            low.append(trace[name]["start"].min())
            high.append(trace[name]["end"].max())
    bounds = (
        [bound for bound in low if bound is not None],
        [bound for bound in high if bound is not None],
    )
    return (int(min(bounds[0])), int(max(bounds[1]))) if bounds[0] and bounds[1] else None


def graph(attribution: Attribution) -> Graph | None:
    """Return the graph of an attributed trace; None if nothing in it has times, or if everything began and
    ended at one time, so that the wall time is unknown (``windows.between``)."""
    trace = attribution.trace
    bounds = window(trace)
    if bounds is None or bounds[0] == bounds[1]:
        return None
    low, high = bounds
    hand_back()
    threads, work = host(attribution), device_work(attribution)
    waiting, hands = waits(trace, work), bursts(threads)
    met = meetings(attribution, work)
    nodes = _Nodes(trace, threads, work, waiting, hands, met, low)
    graph_of_run = _link(trace, nodes, waiting, hands, met, high)
    del nodes  # free the memory of the linking too: 0.1 GB after a million kernels
    if not len(graph_of_run):  # no work with times belongs to a thread or a device
        return None
    _bind(graph_of_run)
    hand_back()  # 0.3 GB after a million kernels
    _note(trace, graph_of_run, waiting, hands)
    talking = np.flatnonzero(work.what == COMMUNICATION)
    ranks = {work.keys[lane][0] for lane in np.unique(work.lane[talking]).tolist()}
    if len(ranks) > 1 and not met.many:
        graph_of_run.notes[NOT_MATCHED] = len(talking)
    return graph_of_run


def for_replays(graph: Graph) -> Graph:
    """Return the graph with its passes, but without data that only the critical path and ``what_if`` need:
    the threads' ops and calls, and the edge that bound each node."""
    threads = graph.host
    threads = replace(
        threads,
        start=threads.start[:0].copy(),
        stop=threads.stop[:0].copy(),
        lane=threads.lane[:0].copy(),
        event=threads.event[:0].copy(),
    )
    slim = replace(graph, host=threads, bound=graph.bound[:0].copy())
    slim.passes  # noqa: B018 - found once, for all replays
    return slim


def _note(trace: Trace, graph: Graph, waiting: Waits, hands: Bursts) -> None:
    graph.notes.update(waiting.notes)
    if len(waiting.call) and not len(trace["syncs"]):
        graph.notes.pop(INFERRED_STREAM, None)
        graph.notes[NO_SYNCS] = len(np.unique(waiting.call))
    if len(hands.lane):
        graph.notes[FOLLOWS_MAIN] = len(np.unique(hands.lane))


class _Nodes:
    """The nodes, lane by lane, and the positions of the nodes of each call, burst and piece of work."""

    def __init__(
        self,
        trace: Trace,
        threads: Host,
        work: Work,
        waiting: Waits,
        hands: Bursts,
        met: Meeting,
        low: int,
    ) -> None:
        self.host, self.work, self.low = threads, work, low
        start, end = (trace["calls"][name].fill_null(0).to_numpy() for name in ("start", "end"))
        process, thread = (
            trace["calls"][name].fill_null(NONE).to_numpy() for name in ("process", "thread")
        )
        self.called = start
        launches = _distinct(work.call[work.call >= 0], len(start))
        blocking = _distinct(waiting.call, len(start))
        main = threads.main[hands.lane]
        count = len(hands.lane)
        ids = np.arange(count)
        waited = np.flatnonzero(hands.waits)
        self.steps = ended_steps(trace["ranges"]).select("process", "thread", "start", "end")
        marks = _marks(self.steps, threads)
        fork = np.minimum(hands.start, threads.end[main])
        last = np.arange(len(threads.keys))
        parts = [
            (
                LAUNCH,
                threads.lane_of(process[launches], thread[launches]),
                start[launches],
                launches,
            ),
            (CALL, threads.lane_of(process[blocking], thread[blocking]), start[blocking], blocking),
            (RETURN, threads.lane_of(process[blocking], thread[blocking]), end[blocking], blocking),
            (FORK, main, fork, ids),
            (BEGIN, hands.lane, hands.start, ids),
            (DONE, hands.lane, hands.end, ids),
            (JOIN, main[waited], hands.end[waited], waited),
            (MARK, marks[0], marks[1], marks[2]),
            (LAST, last, threads.end, last),
        ]
        kind = np.concatenate([np.full(len(part[1]), part[0], np.uint8) for part in parts])
        lane, ref = (
            np.concatenate([np.asarray(part[side], np.int32) for part in parts]) for side in (1, 3)
        )
        time = np.concatenate([part[2] for part in parts])
        del parts, process, thread, end
        on_lane = lane >= 0  # a call without a known thread has no place in a lane
        if not on_lane.all():
            kind, lane, time, ref = kind[on_lane], lane[on_lane], time[on_lane], ref[on_lane]
        time -= low
        order = _order(kind, time, lane)
        kind, lane, time, ref = kind[order], lane[order], time[order], ref[order]
        del order, on_lane
        meet = np.arange(met.many)
        self.host_nodes = len(kind) + met.many
        # device work: its start; for a collective in which ranks met, also its end
        ends = np.zeros(len(work), bool)
        ends[met.place] = True
        of_work = np.repeat(np.arange(len(work), dtype=np.int32), 1 + ends)
        is_end = np.zeros(len(of_work), bool)
        self.of_work = self.host_nodes + np.arange(len(work)) + np.cumsum(ends) - ends
        self.last_of_work = self.of_work + ends
        is_end[self.last_of_work[ends] - self.host_nodes] = True
        self.kind = np.concatenate(
            [
                kind,
                np.full(met.many, MEET, np.uint8),
                np.where(is_end, ARRIVE, WORK).astype(np.uint8),
            ]
        )
        self.meet_at = len(kind)
        self.lane = np.concatenate(
            [
                lane,
                (len(threads.keys) + meet).astype(np.int32),
                work.lane[of_work] + np.int32(len(threads.keys) + met.many),
            ]
        )
        self.time = np.concatenate(
            [
                time,
                met.entered - low,
                np.where(is_end, work.end[of_work], work.start[of_work]) - low,
            ]
        )
        self.ref = np.concatenate([ref, meet.astype(np.int32), of_work])
        self.duration = np.concatenate(
            [
                np.zeros(self.host_nodes, np.int64),
                np.where(ends[of_work], 0, work.end[of_work] - work.start[of_work]),
            ]
        )
        self.first = np.ones(len(self.kind), bool)
        self.first[1:] = self.lane[1:] != self.lane[:-1]

    def places(self, kind: int, count: int) -> Ints:
        """Return the node of this kind for each ref below ``count``, -1 if there is none."""
        nodes = np.full(count, NONE, np.int64)
        here = np.flatnonzero(self.kind == kind)
        nodes[self.ref[here]] = here
        return nodes


def _order(
    kind: NDArray[np.uint8], time: Ints, lane: NDArray[np.int32] | None = None
) -> NDArray[np.intp]:
    """Return the stable order by ``lane`` if given, then by ``time``, then by ``kind``.

    All three are packed into one number, because a single sort profits from runs that are in order already:
    2.6 M nodes take 0.03 s, and 0.16 s with ``np.lexsort``.
    """
    if not len(time):
        return np.empty(0, np.intp)
    low = int(time.min())
    span = (int(time.max()) - low + 1) * _KINDS
    if span * (1 if lane is None else int(lane.max()) + 1) >= 1 << 62:
        return np.lexsort((kind, time) if lane is None else (kind, time, lane))
    key = time - low
    key *= _KINDS
    key += kind
    if lane is not None:
        key += lane * np.int64(span)
    return np.argsort(key, kind="stable")


def _distinct(rows: NDArray[Any], count: int) -> Ints:
    """Return the distinct numbers below ``count``, in order: a flag for each is faster than a sort."""
    seen = np.zeros(count, bool)
    seen[rows] = True
    return np.flatnonzero(seen)


def _marks(steps: pl.DataFrame, threads: Host) -> tuple[Ints, Ints, Ints]:
    """Return lane, time and number of each step's start and end: 2 n and 2 n + 1 for the n-th step."""
    process, thread = (steps[name].fill_null(NONE).to_numpy() for name in ("process", "thread"))
    lane = threads.lane_of(process, thread)
    number = 2 * np.arange(len(steps))
    return (
        np.concatenate([lane, lane]),
        np.concatenate([steps["start"].to_numpy(), steps["end"].to_numpy()]),
        np.concatenate([number, number + 1]),
    )


def _link(
    trace: Trace, nodes: _Nodes, waiting: Waits, hands: Bursts, met: Meeting, high: int
) -> Graph:
    work, time, kind = nodes.work, nodes.time, nodes.kind
    many_calls = len(trace["calls"])
    launch = nodes.places(LAUNCH, many_calls)
    called = np.flatnonzero(work.call >= 0)
    launched = launch[work.call[called]]
    called, launched = called[launched >= 0], launched[launched >= 0]
    delay, gap = _typical(nodes, called, launched)
    own = _own(nodes, hands)
    # edges: source, target, delay, and whether the delay is the transfer of a collective
    start = nodes.of_work
    parts: list[tuple[Ints, Ints, Ints, bool]] = []
    target = start[called]
    parts.append((launched, target, np.minimum(delay, time[target] - time[launched]), False))
    ended = time + nodes.duration
    back = nodes.places(RETURN, many_calls)[waiting.call]
    kept = back >= 0
    back, source = back[kept], nodes.last_of_work[waiting.source[kept]]
    late = time[back] - ended[source]
    parts.append(
        (source, back, np.minimum(late, _returns(trace, nodes, waiting.call[kept], late)), False)
    )
    source, target = nodes.last_of_work[waiting.before], start[waiting.after]
    parts.append((source, target, np.minimum(gap, time[target] - ended[source]), False))
    seen = _late(nodes, called, launched, delay, gap, waiting)
    before, after = coinciding(trace, work, seen)
    if len(before):
        waiting.notes[INFERRED_EVENT] = len(before)
    source, target = nodes.last_of_work[before], start[after]
    parts.append((source, target, np.minimum(gap, time[target] - ended[source]), False))
    source, target = _behind(nodes)
    parts.append((source, target, np.minimum(gap, time[target] - ended[source]), False))
    begun = nodes.places(BEGIN, len(hands.lane))
    forked = nodes.places(FORK, len(hands.lane))
    parts.append((forked, begun, time[begun] - time[forked], False))
    joined = np.flatnonzero(nodes.places(JOIN, len(hands.lane)) >= 0)
    done, join = (nodes.places(node_kind, len(hands.lane))[joined] for node_kind in (DONE, JOIN))
    parts.append((done, join, np.zeros(len(join), np.int64), False))
    meet = nodes.meet_at + met.number
    parts.append((start[met.place], meet, np.zeros(len(meet), np.int64), False))
    arrive = nodes.last_of_work[met.place]
    parts.append((meet, arrive, time[arrive] - time[meet], True))
    source, target, wait = (
        np.concatenate([np.asarray(part[side], np.int64) for part in parts]) for side in (0, 1, 2)
    )
    shared = np.repeat([part[3] for part in parts], [len(part[0]) for part in parts])
    del parts, launch
    # a call that waited: its own part is the usual duration of calls of its name that need not wait
    waited = np.unique(back)
    own[waited] = np.minimum(
        own[waited], _own_calls(trace, nodes, waiting, waited, source, target, ended)
    )
    weight = own
    del ended
    device = slice(nodes.host_nodes, len(time))
    weight[device] = _gaps(nodes, gap)
    weight[arrive] = np.minimum(weight[arrive], time[arrive] - time[meet])
    position = _position(nodes, launched, start[called])
    forward = position[source] < position[target]
    dropped = int((~forward).sum())
    source, target, wait, shared = (column[forward] for column in (source, target, wait, shared))
    rooted = nodes.first & (kind != MEET)
    has_edge = np.zeros(len(time), bool)
    has_edge[target] = True
    # work without known predecessors stays at its time; a thread begins with the window
    rooted[device] &= ~has_edge[device]
    rooted[kind == BEGIN] = False
    rooted |= nodes.first & ~has_edge
    weight[rooted] = np.where(kind[rooted] == BEGIN, time[rooted], weight[rooted])
    graph_of_run = Graph(
        nodes.low, high, nodes.host, work, time, kind, nodes.lane, nodes.ref, nodes.duration, weight,
        nodes.first, rooted, source.astype(np.int32), target.astype(np.int32), wait, shared,
        np.full(len(time), IN_LANE, np.int32), position, nodes.host_nodes,
        len(nodes.host.keys), gap, nodes.steps,
    )  # fmt: skip
    if dropped:
        graph_of_run.notes[LEFT_OUT] = dropped
    return graph_of_run


def _own(nodes: _Nodes, hands: Bursts) -> Ints:
    """Return for each thread node the thread's own time since the previous node, without waits for bursts."""
    time = nodes.time
    own = np.diff(time, prepend=0)
    own[nodes.first] = time[nodes.first]
    # before that time the thread is idle: it waits for the main thread
    own[nodes.kind == BEGIN] = 0
    main = nodes.host.main[hands.lane]
    for lane in np.unique(main[hands.waits]).tolist():
        waits = hands.waits & (main == lane)
        low, high = merge(hands.start[waits] - nodes.low, hands.end[waits] - nodes.low)
        here = np.flatnonzero(nodes.lane[: nodes.meet_at] == lane)
        passed = np.concatenate(([0], np.cumsum(high - low)))
        index = np.searchsorted(low, time[here], "right")
        waited = passed[index] - np.where(index > 0, np.maximum(high[index - 1] - time[here], 0), 0)
        own[here] -= np.diff(waited, prepend=0)
    return own


def _typical(nodes: _Nodes, called: Ints, launched: Ints) -> tuple[int, int]:
    """Return the typical (median) delays: from launch to start on an idle stream, and from the end of work
    to the start of the next work that was waiting for it (ns). If the trace has no examples: the shortest
    delay, and 0."""
    work = nodes.work
    if not len(work):
        return 0, 0
    previous = np.empty(len(work), np.int64)
    previous[0] = np.iinfo(np.int64).min
    previous[1:] = work.end[:-1]
    previous[work.first[:-1][np.diff(work.first) > 0]] = np.iinfo(np.int64).min
    at_launch = nodes.time[launched] + nodes.low
    took = work.start[called] - at_launch
    idle = (at_launch >= previous[called]) & (took >= 0)
    fine = took[took >= 0]
    delay = int(np.median(took[idle])) if idle.any() else int(fine.min()) if len(fine) else 0
    early = called[at_launch + delay <= previous[called]]
    gaps = (work.start - previous)[early]
    gaps = gaps[gaps >= 0]
    return delay, int(np.median(gaps)) if len(gaps) else 0


def _gaps(nodes: _Nodes, gap: int) -> Ints:
    """Return for each device node the time since the end of the previous work in its stream.

    It is at most the typical ``gap``; it is negative if the previous work had not ended.
    """
    part = slice(nodes.host_nodes, len(nodes.time))
    time, duration, kind = nodes.time[part], nodes.duration[part], nodes.kind[part]
    gaps = np.diff(time, prepend=0)
    gaps[1:] -= duration[:-1]
    gaps = np.where(kind == ARRIVE, gaps, np.minimum(gaps, gap))
    gaps[nodes.first[part]] = time[nodes.first[part]]
    return gaps


def _behind(nodes: _Nodes) -> tuple[Ints, Ints]:
    """Return work that follows longer work of its own stream, where other work in between ran beside the
    longer one."""
    work = nodes.work
    source, target = [], []
    for lane in range(len(work.keys)):
        part = work.stream(lane)
        end = work.end[part]
        reach = np.maximum.accumulate(end)
        later = np.flatnonzero((reach[:-1] > end[:-1]) & (reach[:-1] <= work.start[part][1:])) + 1
        if not len(later):
            continue
        record = np.concatenate(([True], end[1:] > reach[:-1]))
        latest = np.maximum.accumulate(np.where(record, np.arange(len(end)), 0))
        source.append(nodes.last_of_work[part.start + latest[later - 1]])
        target.append(nodes.of_work[part.start + later])
    if not source:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate(source), np.concatenate(target)


def _late(
    nodes: _Nodes, called: Ints, launched: Ints, delay: int, gap: int, waiting: Waits
) -> Ints:
    """Return the places of work that began later than can be explained by its launch and the earlier work of
    its stream."""
    work = nodes.work
    ready = np.full(len(work), np.iinfo(np.int64).min // 2)
    ready[1:] = np.where(work.lane[1:] == work.lane[:-1], work.end[:-1], ready[1:]) + gap
    ready[called] = np.maximum(ready[called], nodes.time[launched] + nodes.low + delay)
    np.maximum.at(ready, waiting.after, work.end[waiting.before] + gap)
    return np.flatnonzero((work.start > ready + gap) & (work.call >= 0))


def _returns(trace: Trace, nodes: _Nodes, call: Ints, late: Ints) -> Ints:
    """Return for each wait the typical time from the end of the work to the call's return, by the call's
    name."""
    codes, names = compact(trace["calls"]["name"])
    code = codes[call]
    took = trace["calls"]["end"].to_numpy()[call] - nodes.called[call]
    returns = np.zeros(len(call), np.int64)
    for code_of_name in range(len(names)):
        here = code == code_of_name
        if here.any():
            during = here & (late >= 0) & (late < took)
            returns[here] = np.median(late[during]) if during.any() else 0
    return returns


def _own_calls(
    trace: Trace,
    nodes: _Nodes,
    waiting: Waits,
    waited: Ints,
    source: Ints,
    target: Ints,
    ended: Ints,
) -> Ints:
    """Return the own time of each call that waited: the shortest duration of calls of its name that need
    not wait; or, if all waited, the shortest remaining time after the work had ended."""
    codes, names = compact(trace["calls"]["name"])
    lasted = (trace["calls"]["end"] - trace["calls"]["start"]).fill_null(0).to_numpy()
    call = nodes.ref[waited]
    last = np.full(len(nodes.time), np.iinfo(np.int64).min)
    np.maximum.at(last, target, ended[source])
    free = np.concatenate([call[last[waited] + nodes.low <= nodes.called[call]], waiting.idle])
    # if there is a single long wait, all of its time would count as the call's own and would stay even if the
    # work took no time
    held = np.clip(last[waited] + nodes.low - nodes.called[call], 0, lasted[call])
    durations = lasted[call] - held
    for code_of_name in range(len(names)):
        here = codes[call] == code_of_name
        if here.any():
            quick = lasted[free[codes[free] == code_of_name]]
            durations[here] = (quick if len(quick) else durations[here]).min()
    own: Ints = np.maximum(durations, 0)
    return own


def _position(nodes: _Nodes, launched: Ints, started: Ints) -> NDArray[np.int32]:
    """Return an order in which all edges lead forward, except edges that contradict the times."""
    key = nodes.time.copy()
    key[started] = np.maximum(key[started], nodes.time[launched])
    work = nodes.work
    for lane in range(len(work.keys)):  # the clocks of host and device may differ a little
        part = work.stream(lane)
        if part.stop > part.start:
            mine = slice(int(nodes.of_work[part.start]), int(nodes.last_of_work[part.stop - 1]) + 1)
            np.maximum.accumulate(key[mine], out=key[mine])
    position = np.empty(len(key), np.int32)
    position[_order(nodes.kind, key)] = np.arange(len(key), dtype=np.int32)
    return position


def _bind(graph: Graph) -> None:
    """Find what each node waited for last, and add the rest of its waiting to the delay of that edge."""
    time, least = graph.time, np.iinfo(np.int64).min
    # the earliest begin that the previous node in the lane, or the window's start, allows
    best = graph.weight.copy()
    best[1:] += graph.duration[:-1]
    np.maximum(best, 0, out=best)
    best[1:] += time[:-1]
    best[graph.first] = least
    best[graph.rooted] = graph.weight[graph.rooted]
    arrival = best[graph.target]
    bound = np.full(len(time), IN_LANE, np.int32)
    bound[graph.rooted] = FROM_START
    rank = time[graph.source] + graph.duration[graph.source]
    came = rank + graph.delay
    np.maximum.at(best, graph.target, came)
    last = np.flatnonzero(came == best[graph.target])
    target, rank, beyond = graph.target[last], rank[last], came[last] > arrival[last]
    before = target - 1
    # when the source ended
    raw = np.where(graph.first[target], least, time[before] + graph.duration[before])
    raw[graph.rooted[target]] = 0
    wins, ties = np.flatnonzero(beyond), np.flatnonzero(~beyond & (rank > raw))
    chosen = np.concatenate([wins, ties])
    chosen = chosen[np.argsort(rank[chosen], kind="stable")]
    bound[target[chosen]] = last[chosen]
    excess = np.subtract(time, best, out=best)
    by_edge = np.flatnonzero(bound >= 0)
    graph.delay[bound[by_edge]] += excess[by_edge]
    excess[by_edge] = 0
    graph.weight += excess
    graph.bound = bound


def make_graph(profile: Answers) -> Graph | None:
    """Compute the graph of the timeline anew, and note its assumptions."""
    timeline = None if _why_none(profile) else graph(profile.attribution)
    profile._give(assumptions, _assumed(profile, timeline))
    return timeline


def assumptions(profile: Answers) -> dict[str, int]:
    """The assumptions behind the critical path, with the number of cases."""
    return _assumed(profile, None if _why_none(profile) else graph(profile.attribution))


def _why_none(profile: Answers) -> str | None:
    """Why there is no timeline: kernels are missing, or begin before their launches."""
    return profile.of(idle_unknown) or profile.of(linked_work).unlinked


def _assumed(profile: Answers, timeline: Graph | None) -> dict[str, int]:
    why = _why_none(profile)
    if why is not None:
        return {f"critical path: none is given: {why}": 1}
    return {} if timeline is None else dict(timeline.notes)


def full_graph(profile: Answers) -> Graph | None:
    """The graph of the timeline with ops and calls, which ``what_if`` uses repeatedly."""
    return make_graph(profile)


def replay_graph(profile: Answers) -> Graph | None:
    """The graph without the parts that replays do not need: 0.1 GB of a million kernels' ops and calls. The
    thread that asks for a finding makes it when it first needs it, so that only two threads work: with a
    third one the peak of memory was a fifth higher."""
    if profile._has(full_graph):
        return profile.of(full_graph)
    timeline = make_graph(profile)
    return None if timeline is None else for_replays(timeline)
