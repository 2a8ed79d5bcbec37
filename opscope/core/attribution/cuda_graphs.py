"""Find the call that captured each node executed by a replay of a CUDA graph (rule 5).

Three sources, the best first: the node's creation event (``graph_nodes``, Nsight Systems with node tracing);
the node's number, which CUPTI makes of the executable CUDA graph's number (high 32 bits) and of the node's
place in it (low 32 bits, kept from the capture, counted as nodes are made); the order in time. The last two
are compared with the captured calls, in this process or in the trace of the capture that was opened with it.
Where ranges name the CUDA graph that is captured and replayed (the PyTorch adapter's ranges do), only that
capture is considered. A capture chosen by its length, and nodes paired by their order in time, are marked as
inferred.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.cuda_graph_captures import (
    CHILD,
    COPY,
    KERNEL,
    SET,
    Capture,
    Captures,
    captures,
    graph_numbers,
)
from opscope.core.dialects.launches import GRAPH_LAUNCH
from opscope.core.tables.columns import at, grouped, matching
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.trace import Trace

__all__ = [
    "AT_ONCE",
    "FOUND",
    "NO_CAPTURE",
    "SEVERAL",
    "Replayed",
    "replayed",
]

#: Values of ``Replayed.why``: why a row has no call.
FOUND, NO_CAPTURE, AT_ONCE, SEVERAL = range(4)
#: CUPTI's times of consecutive kernels in a CUDA graph may overlap by this much (ns). Long kernels may
#: overlap by more, which still cannot hide a short parallel one: 1,024 between kernels of 57 and 63 us on an
#: H200.
_OVERLAP_NS, _OF_LONG_NS = 1_000, 2_500
#: Levels of clones that are followed, such as a clone of a clone of a child graph's node.
_CLONES: Final = 8
_LOW: Final = (1 << 32) - 1
_GRAPH_BITS: Final = 32
#: A CUDA graph, or a child graph of one: its process and the high half of its nodes' numbers.
_Graph: TypeAlias = "tuple[int, int]"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The kernels, or the copies and sets, that CUDA graph launches executed.

    ``rows``: their rows. ``call``: for each row, the call that captured its node (-1: unknown, see
    ``why``). ``inferred``: whether the call follows only from an order, or from a capture's length.
    ``has_node``: whether the trace has the node's creation event; if so, ``node_process``,
    ``node_thread`` and ``node_time`` (ns) are those of the creation, and the op is the one open then.
    ``whole``: whether the row is a whole CUDA graph, traced without its nodes.
    """

    rows: Ints
    call: Ints
    why: NDArray[np.uint8]
    inferred: NDArray[np.bool_]
    has_node: NDArray[np.bool_]
    node_process: Ints
    node_thread: Ints
    node_time: Ints
    whole: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Executed:
    """The rows of both tables that CUDA graph launches executed; ``node`` is -1 without a number."""

    process: Ints
    launch: Ints
    kind: Ints
    node: Ints
    start: Ints
    end: Ints


def replayed(trace: Trace, links: Mapping[str, NDArray[np.int32]]) -> dict[str, Replayed]:
    """Return by table (``kernels``, ``memops``) what CUDA graph launches executed. ``links``: the launching
    call of each row, or -1."""
    calls = trace["calls"]
    is_graph = matching(calls["name"], GRAPH_LAUNCH)
    rows = {}
    for name, link in links.items():
        # an expression: a column of nulls takes no memory until it is read itself
        replayed_here = (
            trace[name].select(pl.col("graph_node").is_not_null()).to_series().to_numpy()
        )
        if is_graph.any():
            replayed_here = replayed_here | at(is_graph, link, False)
        rows[name] = np.flatnonzero(replayed_here)
    if not any(map(len, rows.values())):
        return {}
    done = np.zeros(len(calls), bool)
    for link in links.values():
        done[link[link >= 0]] = True
    ran = _execute(trace, links, rows)
    nodes = _creation(trace, ran)
    call = np.full(len(ran.node), NONE, np.int64)
    why = np.full(len(ran.node), NO_CAPTURE, np.uint8)
    inferred = np.zeros(len(ran.node), bool)
    has_node = nodes["time"].is_not_null().to_numpy()
    pending = ~has_node & (ran.launch >= 0)
    if pending.any():
        captures_of_trace = captures(trace, done)
        number = graph_numbers(trace, (distinct := np.unique(ran.launch[pending])))
        numbers = np.full(len(ran.node), NONE, np.int64)
        numbers[pending] = number[np.searchsorted(distinct, ran.launch[pending])]
        by_node = pending & (ran.node >= 0)
        _by_numbers(ran, np.flatnonzero(by_node), numbers, captures_of_trace, (call, why, inferred))
        _by_time(
            ran, np.flatnonzero(pending & ~by_node), numbers, calls, captures_of_trace, (call, why)
        )
        inferred |= (call >= 0) & (ran.node < 0)
    why[call >= 0] = FOUND
    replays, first = {}, 0
    for name, of in rows.items():
        part = slice(first, first := first + len(of))
        replays[name] = Replayed(
            of, call[part], why[part], inferred[part], has_node[part],
            nodes["process"][part].fill_null(NONE).to_numpy(),
            nodes["thread"][part].fill_null(NONE).to_numpy(),
            nodes["time"][part].fill_null(NONE).to_numpy(),
            ran.kind[part] == CHILD,
        )  # fmt: skip
    return replays


def _execute(
    trace: Trace, links: Mapping[str, NDArray[np.int32]], rows: Mapping[str, Ints]
) -> _Executed:
    parts = []
    for name, of in rows.items():
        table = trace[name]
        kind = np.full(len(of), KERNEL, np.int64)
        if name == "kernels":  # a row for a whole CUDA graph is not a node
            is_graph = table["attrs"].gather(of).str.contains('"graph_trace"', literal=True)
            kind[is_graph.fill_null(False).to_numpy()] = CHILD
        if name == "memops":
            is_set = (table["kind"].gather(of).cast(pl.String) == "memset").fill_null(False)
            kind = np.where(is_set.to_numpy(), SET, COPY)
        columns = (
            table[c].gather(of).fill_null(NONE).cast(pl.Int64).to_numpy()
            for c in ("process", "graph_node", "start", "end")
        )
        process, node, start, end = columns
        parts.append((process, links[name][of].astype(np.int64), kind, node, start, end))
    return _Executed(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _creation(trace: Trace, ran: _Executed) -> pl.DataFrame:
    """Return process, thread and time (ns) of the creation of each row's node; null where not recorded.

    Instantiating a CUDA graph clones its nodes. A clone's row names its original, and the original was
    created where the op was captured. CUPTI reports a clone as created before it reports it as cloned, so a
    clone may have a row of either kind. If the original was created before the trace began, its creation is
    unknown, even if the trace has the clone's.
    """
    events = trace["graph_nodes"].select("process", "node", "original_node", "thread", "time")
    first = (
        events.cast(pl.Int64)
        .sort("time")
        .group_by("process", "node")
        .agg(
            pl.col("original_node").drop_nulls().first(),
            pl.col("thread").first(),
            pl.col("time").first(),
        )
    )
    nodes = pl.DataFrame({"process": ran.process, "node": ran.node})
    created = nodes.with_columns(
        pl.when(pl.col("node") >= 0).then("node").alias("original_node"),
        pl.lit(None, pl.Int64).alias("thread"),
        pl.lit(None, pl.Int64).alias("time"),
    )
    if first.is_empty():
        return created.select("process", "thread", "time")
    above = first.select(
        "process",
        pl.col("node").alias("original_node"),
        pl.col("original_node").alias("next"),
        pl.col("thread").alias("above_thread"),
        pl.col("time").alias("above_time"),
    )
    for _ in range(_CLONES):
        up = created.join(above, on=["process", "original_node"], how="left", maintain_order="left")
        climbs = pl.col("original_node").is_not_null()
        created = up.select(
            "process",
            pl.when(climbs).then("above_thread").otherwise("thread").alias("thread"),
            pl.when(climbs).then("above_time").otherwise("time").alias("time"),
            pl.when(climbs).then("next").alias("original_node"),
        )
        if created["original_node"].is_null().all():
            break
    return created.with_columns(
        pl.when(pl.col("original_node").is_null()).then("time").alias("time")
    ).select("process", "thread", "time")


# --------------------------------------------------------------------- nodes with numbers


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The nodes of one CUDA graph by number (``low``) with their ``kinds``; the ``first`` start (ns) of its
    replays; and the ``number`` that ranges give the CUDA graph (-1: none, or more than one)."""

    low: Ints
    kinds: Ints
    first: int
    number: int


def _by_numbers(
    ran: _Executed,
    rows: Ints,
    numbers: Ints,
    captures: Captures,
    out: tuple[Ints, NDArray[np.uint8], NDArray[np.bool_]],
) -> None:
    """Pair the rows of numbered nodes with calls, writing to ``out``: (call, why, inferred).

    Each CUDA graph is paired once, with all that its replays executed.
    """
    call, why, inferred = out
    if not len(rows):
        return
    graphs, of = _graphs(ran, rows, numbers)
    chosen: dict[_Graph, tuple[Ints, bool]] = {}
    reasons: dict[_Graph, int] = {}
    for members in _replayed_together(ran, rows, of, list(graphs)):
        _choose_named(members, graphs, captures, chosen, reasons)
    captured = {key for key, graph in graphs.items() if (key[0], graph.number) in captures.named}
    for own in (True, False):  # a CUDA graph that ranges name has no unnamed capture in its process
        of_length = [
            key
            for key, graph in graphs.items()
            if key not in captured and (graph.number < 0) == own and key not in reasons
        ]
        _choose_by_length(of_length, graphs, captures, own, chosen, reasons)
    keys = list(graphs)
    for index, part in grouped(of):
        key, here = keys[index], rows[part]
        nodes = graphs[key]
        if key in reasons:
            why[here] = reasons[key]
        if key in chosen:
            choice, guessed = chosen[key]
            call[here] = choice[np.searchsorted(nodes.low, ran.node[here] & _LOW)]
            inferred[here] = guessed & (call[here] >= 0)


def _graphs(ran: _Executed, rows: Ints, numbers: Ints) -> tuple[dict[_Graph, _Nodes], Ints]:
    """Return the CUDA graphs whose nodes ran, and for each row the place of its CUDA graph."""
    # process and graph as one number: it sorts twenty times faster than rows of two numbers
    key = (ran.process[rows] << _GRAPH_BITS) + (ran.node[rows] >> 32)
    distinct, of = np.unique(key, return_inverse=True)
    graphs = {}
    for index, part in grouped(of):
        here = rows[part]
        low, first = np.unique(ran.node[here] & _LOW, return_index=True)
        named = np.unique(numbers[here])
        number = int(named[0]) if len(named) == 1 else NONE
        process, graph = divmod(int(distinct[index]), 1 << _GRAPH_BITS)
        graphs[process, graph] = _Nodes(
            low, ran.kind[here][first], int(ran.start[here].min()), number
        )
    return graphs, of


def _replayed_together(
    ran: _Executed, rows: Ints, of: Ints, keys: list[_Graph]
) -> list[list[_Graph]]:
    """Return groups of CUDA graphs that run in the same launches: a CUDA graph and its child graphs."""
    launches, graphs = np.divmod(np.unique(ran.launch[rows] * len(keys) + of), len(keys))
    _, index, counts = np.unique(launches, return_inverse=True, return_counts=True)
    alone = counts[index] == 1
    together: dict[int, list[int]] = {}
    for launch, graph in zip(launches[~alone].tolist(), graphs[~alone].tolist(), strict=True):
        together.setdefault(launch, []).append(graph)
    groups = dict.fromkeys(map(tuple, together.values()))
    parts = {graph for group in groups for graph in group}
    single = [(graph,) for graph in np.unique(graphs[alone]).tolist() if graph not in parts]
    return [[keys[graph] for graph in group] for group in (*groups, *single)]


def _choose_named(
    members: list[_Graph],
    graphs: Mapping[_Graph, _Nodes],
    captures: Captures,
    chosen: dict[_Graph, tuple[Ints, bool]],
    reasons: dict[_Graph, int],
) -> None:
    """Choose the named capture for the CUDA graph among ``members``, and its children's for child graphs."""
    number = graphs[members[0]].number
    process = members[0][0]
    own = captures.named.get((process, number)) if number >= 0 else None
    if own is None:
        return
    fitting = {
        key: pairing
        for key in members
        if (pairing := _pair(graphs[key], own, lost=True)) is not None
    }
    if len(fitting) == 1:
        chosen |= fitting
    elif fitting:
        reasons |= dict.fromkeys(members, SEVERAL)
        return
    parts = [captures.named[process, c] for c in own.children if (process, c) in captures.named]
    for key in members:
        if key not in chosen and parts:
            fits = [pairing for part in parts if (pairing := _pair(graphs[key], part)) is not None]
            if len(fits) == 1:
                chosen[key] = (fits[0][0], True)
            elif fits:
                reasons[key] = SEVERAL


def _choose_by_length(
    keys: Iterable[_Graph],
    graphs: Mapping[_Graph, _Nodes],
    captures: Captures,
    own: bool,
    chosen: dict[_Graph, tuple[Ints, bool]],
    reasons: dict[_Graph, int],
) -> None:
    """Choose, for CUDA graphs without a named capture, a capture with as many launches (inferred).

    ``own``: whether captures of the same process may be taken. CUDA graphs are numbered as they are made,
    so with several CUDA graphs and several captures of one length, an earlier CUDA graph is from an earlier
    capture. If more than one assignment is left, none is taken; a single CUDA graph gets the latest
    capture before its first replay.
    """
    classes: dict[tuple[int, int], list[_Graph]] = {}
    for key in keys:
        count = int((graphs[key].kinds == KERNEL).sum())
        classes.setdefault((key[0], count), []).append(key)
    for (process, count), members in classes.items():
        members.sort(key=lambda key: key[1])
        fitting = [
            other
            for other in captures.others
            if other.count(KERNEL) == count
            and any(_pair(graphs[k], other) is not None for k in members)
        ]
        here = [candidate for candidate in fitting if candidate.process == process]
        places = _in_order([graphs[key].first for key in members], here) if own else None
        if not here and len(fitting) == len(members) == 1:  # from the trace of the capture
            places = fitting
        for index, key in enumerate(members):
            pairing = None if places is None else _pair(graphs[key], places[index])
            if pairing is not None:
                chosen[key] = (pairing[0], True)
            elif len(fitting) > 1:
                reasons[key] = SEVERAL


def _in_order(firsts: list[int], of: list[Capture]) -> list[Capture] | None:
    """Return the capture of each CUDA graph, by number, if there is exactly one assignment in which the
    captures are in the same order as the graphs, and each capture is before its replays; for a single CUDA
    graph the latest capture; else None."""
    if not of:
        return None
    latest = [
        max((n for n, capture in enumerate(of) if capture.start < t), default=-1) for t in firsts
    ]
    if len(firsts) == 1:
        return [of[latest[0]]] if latest[0] >= 0 else None
    if len(of) == 1:  # the capture was instantiated more than once
        return [of[0]] * len(firsts) if min(latest) >= 0 else None
    for index in range(len(latest) - 2, -1, -1):
        latest[index] = min(latest[index], latest[index + 1] - 1)
    if latest != list(range(len(firsts))):  # not the only assignment
        return None
    return [of[number] for number in latest]


def _pair(nodes: _Nodes, capture: Capture, lost: bool = False) -> tuple[Ints, bool] | None:
    """Return for each node the call that made it (-1: unknown), and whether nodes were paired by their place
    in the capture; None if nothing fits.

    If a capture has as many launches as the graph has kernels, the k-th kernel belongs to the k-th launch;
    likewise copies and sets. Nodes that are then unknown are paired by place, if others are known or ``lost``
    is set (records may be missing): a node's number is taken as the place of its call, if that fits all
    nodes, and the second result is True. Places would be shifted by a call that makes a node although this is
    not known of it.
    """
    paired_rows: Ints = np.full(len(nodes.low), NONE, np.int64)
    for kind in (KERNEL, COPY, SET):
        theirs, ours = nodes.kinds == kind, capture.kinds == kind
        if theirs.sum() == ours.sum():
            paired_rows[theirs] = capture.rows[ours]
        elif kind == KERNEL:
            break
    paired_nodes = np.flatnonzero(paired_rows >= 0)
    by_place = False
    if len(paired_nodes) < len(paired_rows) and (lost or len(paired_nodes)):
        within = bool(nodes.low[-1] < len(capture.rows))
        if within and bool((capture.kinds[nodes.low] == nodes.kinds).all()):
            placed = capture.rows[nodes.low]
            by_place = bool((placed[paired_nodes] == paired_rows[paired_nodes]).all())
            paired_rows = placed if by_place else paired_rows
    if not (paired_rows >= 0).any():
        return None
    order = np.argsort(capture.rows)
    position = order[np.searchsorted(capture.rows[order], paired_rows[paired_rows >= 0])]
    return (paired_rows, by_place) if bool(np.all(np.diff(position) > 0)) else None


# ------------------------------------------------------------------- nodes without numbers


def _by_time(
    ran: _Executed,
    rows: Ints,
    numbers: Ints,
    calls: pl.DataFrame,
    captures: Captures,
    out: tuple[Ints, NDArray[np.uint8]],
) -> None:
    """Pair the k-th kernel of a replay with the k-th launch of its capture, if kernels ran one by one.

    If several captures have as many launches, the latest capture before the replay in the same process is
    taken; a capture of another process (the trace of the capture) is taken only if it is the only one.
    """
    call, why = out
    if not len(rows) or not (captures.named or captures.others):
        return
    order = rows[np.lexsort((ran.start[rows], ran.launch[rows]))]
    launch, first, counts = np.unique(ran.launch[order], return_index=True, return_counts=True)
    process = calls["process"].gather(launch).fill_null(NONE).to_numpy()
    time = calls["start"].gather(launch).to_numpy()
    paired: dict[tuple[int, bytes], tuple[Ints, bool] | None] = {}
    by_length: dict[int, list[Capture]] = {}
    for other in captures.others:
        by_length.setdefault(other.count(KERNEL), []).append(other)
    for index, (begin, count) in enumerate(zip(first.tolist(), counts.tolist(), strict=True)):
        here = order[begin : begin + count]
        kinds, number = ran.kind[here], int(numbers[here[0]])
        capture = captures.named.get((int(process[index]), number))
        if capture is None:
            fitting = by_length.get(int((kinds == KERNEL).sum()), [])
            mine = [capture for capture in fitting if capture.process == process[index]]
            before = [capture for capture in mine if capture.start < time[index] and number < 0]
            only = fitting[0] if len(fitting) == 1 and not mine else None
            capture = before[-1] if before else only
        if capture is None:
            continue
        key = (id(capture), kinds.tobytes())
        if key not in paired:
            nodes = _Nodes(np.arange(count), kinds, int(time[index]), number)
            paired[key] = _pair(nodes, capture)
        pairing = paired[key]
        if pairing is None:
            continue
        ended = np.maximum.accumulate(ran.end[here])[:-1]
        took = ran.end[here] - ran.start[here]
        shorter = np.minimum(took[1:], took[:-1])
        if np.any(ran.start[here][1:] < ended - np.clip(shorter // 2, _OVERLAP_NS, _OF_LONG_NS)):
            why[here] = AT_ONCE
        else:
            call[here] = pairing[0]
