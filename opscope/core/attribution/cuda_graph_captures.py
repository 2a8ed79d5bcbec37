"""Find the calls captured into each CUDA graph: calls that executed nothing while a stream was capturing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.dialects.launches import GRAPH_LAUNCH, LAUNCH
from opscope.core.tables.columns import at, matching
from opscope.core.tables.intervals import NONE, Ints, nest
from opscope.core.tables.trace import Trace

#: Kinds of nodes. Child graphs and other nodes (host functions, memory) have no row of their own in a trace.
KERNEL, COPY, SET, CHILD, OTHER = range(5)
_MAKES: Final = (
    LAUNCH,
    r"^(cu|cuda|hip)Memcpy",
    r"^(cu|cuda|hip)Memset",
    GRAPH_LAUNCH,
    r"^(cu|cuda|hip)(LaunchHostFunc|MallocAsync|MemAllocAsync|FreeAsync|MemFreeAsync)",
)
_GRAPH_TEXT: Final = r"^CUDA graph (\d+) {}$"
_BEGIN: Final = r"StreamBeginCapture"
_END: Final = r"StreamEndCapture|GraphInstantiate"


@dataclass(frozen=True, slots=True)
class Capture:
    """One capture of a CUDA graph: ``rows`` of its calls by time, the kind of node that each made, and the
    numbers of the CUDA graphs that became its ``children``."""

    process: int
    start: int
    rows: Ints
    kinds: Ints
    children: tuple[int, ...]

    def count(self, kind: int) -> int:
        """Return how many nodes of one kind the capture made."""
        return int((self.kinds == kind).sum())


@dataclass(frozen=True, slots=True)
class Captures:
    """``named``: captures that a range names, by (process, number of the CUDA graph). ``others``: captures
    found between the calls that begin and end a capture, by time; they may include named captures."""

    named: dict[tuple[int, int], Capture]
    others: list[Capture]


class _Windows(NamedTuple):
    """When each capture was open. ``begun``: whether its beginning is in the trace; calls of other threads
    meanwhile then belong to it."""

    process: Ints
    thread: Ints
    start: Ints
    end: Ints
    begun: NDArray[np.bool_]


def captures(trace: Trace, executed: NDArray[np.bool_]) -> Captures:
    """Return the captures in the trace. ``executed`` says for each call whether it executed anything."""
    calls = trace["calls"]
    kind: Ints = np.full(len(calls), NONE, np.int64)
    for number, pattern in enumerate(_MAKES):
        kind[matching(calls["name"], pattern)] = number
    rows = _once(calls, np.flatnonzero((kind >= 0) & ~executed), kind)
    if not len(rows):
        return Captures({}, [])
    numbers, windows = _ranges(trace)
    captures_of_windows = _gather(trace, windows, rows, kind)
    named = {
        (int(windows.process[window]), int(numbers[window])): capture
        for window, capture in captures_of_windows.items()
    }
    others = _gather(trace, _edges(calls, kind, executed), rows, kind).values()
    return Captures(named, sorted(others, key=lambda capture: capture.start))


def graph_numbers(trace: Trace, rows: Ints) -> Ints:
    """Return for each of the calls ``rows`` the CUDA graph named by the replay range around it; -1: none."""
    numbers = np.full(len(rows), NONE, np.int64)
    named = _name(trace, "replay")
    if named.is_empty() or not len(rows):
        return numbers
    process, thread, time = _where(trace["calls"], rows)
    for (of, on), part in named.group_by("process", "thread"):
        here = np.flatnonzero((process == of) & (thread == on))
        tree = nest(part["start"].to_numpy(), part["end"].to_numpy())
        numbers[here] = at(part["number"].to_numpy(), tree.innermost(time[here]))
    return numbers


def _name(trace: Trace, noun: str) -> pl.DataFrame:
    number = pl.col("text").cast(pl.String).str.extract(_GRAPH_TEXT.format(noun))
    return (
        trace["ranges"]
        .filter(pl.col("category") == "graph")
        .select(
            pl.col("process", "thread").fill_null(NONE).cast(pl.Int64),
            "start",
            "end",
            number.cast(pl.Int64, strict=False).alias("number"),
        )
        .filter(pl.col("number").is_not_null())
    )


def _where(calls: pl.DataFrame, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Return process, thread and start (ns) of the calls ``rows``."""
    process, thread, start = (
        calls[name].gather(rows).fill_null(NONE).cast(pl.Int64).to_numpy()
        for name in ("process", "thread", "start")
    )
    return process, thread, start


def _once(calls: pl.DataFrame, rows: Ints, kind: Ints) -> Ints:
    """Return ``rows`` by time without runtime calls that contain a driver call: the two calls make one
    node."""
    frame = pl.DataFrame(
        {
            "row": rows,
            "process": calls["process"].gather(rows),
            "id": calls["correlation"].gather(rows),
            "kind": kind[rows],
            "start": calls["start"].gather(rows),
        }
    ).sort("start", maintain_order=True)
    last = pl.col("row") == pl.col("row").last().over("process", "id", "kind")
    latest = frame.filter(pl.col("id").is_null() | last)
    found: Ints = latest["row"].cast(pl.Int64).to_numpy()
    return found


def _ranges(trace: Trace) -> tuple[Ints, _Windows]:
    """Return the numbers and the windows of the captures that ranges name."""
    named = _name(trace, "capture").sort("start")
    process, thread, start, end = (
        named[name].to_numpy() for name in ("process", "thread", "start", "end")
    )
    windows = _Windows(process, thread, start, end, np.ones(len(named), bool))
    return named["number"].to_numpy(), windows


def _edges(calls: pl.DataFrame, kind: Ints, executed: NDArray[np.bool_]) -> _Windows:
    """Return the windows between the calls that begin and end a capture. If the begin was cut off, a
    window starts at the thread's last launch before the end that did execute."""
    begin, end = matching(calls["name"], _BEGIN), matching(calls["name"], _END)
    rows = np.flatnonzero(begin | end | ((kind >= 0) & executed))
    process, thread, start = _where(calls, rows)
    order = np.lexsort((start, thread, process))
    process, thread, start, rows = process[order], thread[order], start[order], rows[order]
    edges: list[tuple[int, int, int, int, bool]] = []
    since, begun, at_place = -(1 << 62), False, (NONE, NONE)
    for row in np.flatnonzero(begin[rows] | end[rows]).tolist():
        here = (int(process[row]), int(thread[row]))
        if here != at_place:
            since, begun, at_place = -(1 << 62), False, here
        time = int(start[row])
        if begin[rows[row]]:
            since, begun = time, True
            continue
        if not begun and row and (int(process[row - 1]), int(thread[row - 1])) == here:
            since = max(since, int(start[row - 1]))
        edges.append((*here, since, time, begun))
        since, begun = time, False
    columns = list(zip(*edges, strict=True)) if edges else [()] * 5
    columns_of_edges = [np.array(column, np.int64) for column in columns]
    return _Windows(
        columns_of_edges[0],
        columns_of_edges[1],
        columns_of_edges[2],
        columns_of_edges[3],
        columns_of_edges[4].astype(bool),
    )


def _gather(trace: Trace, windows: _Windows, rows: Ints, kind: Ints) -> dict[int, Capture]:
    """Return place in ``windows`` → capture, with the calls among ``rows`` (by time) inside it."""
    calls = trace["calls"]
    if not len(windows.start):
        return {}
    inside = _inside(windows, *_where(calls, rows))
    nested = graph_numbers(trace, rows)
    time = calls["start"].gather(rows).to_numpy()
    order = np.argsort(inside, kind="stable")
    order = order[inside[order] >= 0]
    captures_of_windows = {}
    if len(order):
        for part in np.split(order, np.flatnonzero(np.diff(inside[order])) + 1):
            kinds = kind[rows[part]]
            children = np.unique(nested[part][kinds == CHILD])
            window = int(inside[part[0]])
            captures_of_windows[window] = Capture(
                int(windows.process[window]),
                int(time[part[0]]),
                rows[part],
                kinds,
                tuple(children[children >= 0].tolist()),
            )
    return captures_of_windows


def _inside(windows: _Windows, process: Ints, thread: Ints, time: Ints) -> Ints:
    """Return the place of the window that each call is in, -1 for none.

    A window of the call's own thread comes first, else the only window open in its process: the backward
    pass launches from a separate thread, which begins and ends no capture.
    """
    window_of_row = np.full(len(time), NONE, np.int64)
    for of in np.unique(windows.process).tolist():
        here = np.flatnonzero(windows.process == of)
        theirs = np.flatnonzero(process == of)
        for on in np.unique(windows.thread[here]).tolist():
            own = here[windows.thread[here] == on]
            mine = theirs[thread[theirs] == on]
            tree = nest(windows.start[own], windows.end[own])
            window_of_row[mine] = at(own, tree.innermost(time[mine]))
        begun = here[windows.begun[here]]
        left = theirs[window_of_row[theirs] < 0]
        if not len(begun) or not len(left):
            continue
        starts, ends = np.sort(windows.start[begun]), np.sort(windows.end[begun])
        begun_before = np.searchsorted(starts, time[left], side="right")
        alone = left[begun_before - np.searchsorted(ends, time[left], side="right") == 1]
        tree = nest(windows.start[begun], windows.end[begun])
        window_of_row[alone] = at(begun, tree.innermost(time[alone]))
    return window_of_row
