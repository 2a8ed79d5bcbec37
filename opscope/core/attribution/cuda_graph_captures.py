"""What was captured into CUDA graphs: calls that executed nothing while a stream was capturing, in order."""

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

#: What a node does. Nothing of a child graph, or of others (host functions, memory), is a row of its own.
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
    """One capture: the rows of its calls, in order of time, what each put into the graph, and the
    numbers of the graphs that became part of it."""

    process: int
    start: int
    rows: Ints
    kinds: Ints
    children: tuple[int, ...]

    def count(self, kind: int) -> int:
        """How many nodes of a kind it made."""
        return int((self.kinds == kind).sum())


@dataclass(frozen=True, slots=True)
class Captures:
    """``named``: by (process, number of the graph), of ranges that name it. ``others``: of calls that
    begin and end a capture, in order of time, the named ones among them too."""

    named: dict[tuple[int, int], Capture]
    others: list[Capture]


class _Windows(NamedTuple):
    """When captures went on. ``begun``: their beginning was seen, so what other threads did is theirs."""

    process: Ints
    thread: Ints
    start: Ints
    end: Ints
    begun: NDArray[np.bool_]


def captures(trace: Trace, executed: NDArray[np.bool_]) -> Captures:
    """Those of the trace; ``executed`` tells of each call whether anything ran for it."""
    calls = trace["calls"]
    kind: Ints = np.full(len(calls), NONE, np.int64)
    for number, pattern in enumerate(_MAKES):
        kind[matching(calls["name"], pattern)] = number
    rows = _once(calls, np.flatnonzero((kind >= 0) & ~executed), kind)
    if not len(rows):
        return Captures({}, [])
    numbers, windows = _ranges(trace)
    found = _gather(trace, windows, rows, kind)
    named = {
        (int(windows.process[place]), int(numbers[place])): capture
        for place, capture in found.items()
    }
    others = _gather(trace, _edges(calls, kind, executed), rows, kind).values()
    return Captures(named, sorted(others, key=lambda one: one.start))


def graph_numbers(trace: Trace, rows: Ints) -> Ints:
    """The graph that a range names which replays it around each of the calls ``rows``; -1 for none."""
    found = np.full(len(rows), NONE, np.int64)
    named = _named(trace, "replay")
    if named.is_empty() or not len(rows):
        return found
    process, thread, time = _where(trace["calls"], rows)
    for (of, on), part in named.group_by("process", "thread"):
        here = np.flatnonzero((process == of) & (thread == on))
        tree = nest(part["start"].to_numpy(), part["end"].to_numpy())
        found[here] = at(part["number"].to_numpy(), tree.innermost(time[here]))
    return found


def _named(trace: Trace, what: str) -> pl.DataFrame:
    number = pl.col("text").cast(pl.String).str.extract(_GRAPH_TEXT.format(what))
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
    """Process, thread and start of calls."""
    process, thread, start = (
        calls[name].gather(rows).fill_null(NONE).cast(pl.Int64).to_numpy()
        for name in ("process", "thread", "start")
    )
    return process, thread, start


def _once(calls: pl.DataFrame, rows: Ints, kind: Ints) -> Ints:
    """``rows`` by time, of a runtime call and the driver call inside it the latter: one id is one node."""
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
    kept = frame.filter(pl.col("id").is_null() | last)
    found: Ints = kept["row"].cast(pl.Int64).to_numpy()
    return found


def _ranges(trace: Trace) -> tuple[Ints, _Windows]:
    """The captures that ranges name, and their numbers."""
    named = _named(trace, "capture").sort("start")
    process, thread, start, end = (
        named[name].to_numpy() for name in ("process", "thread", "start", "end")
    )
    windows = _Windows(process, thread, start, end, np.ones(len(named), bool))
    return named["number"].to_numpy(), windows


def _edges(calls: pl.DataFrame, kind: Ints, executed: NDArray[np.bool_]) -> _Windows:
    """The captures that calls begin and end; where the trace has no begin (it was cut), what lies
    before the end and after the last launch that did execute."""
    begin, end = matching(calls["name"], _BEGIN), matching(calls["name"], _END)
    rows = np.flatnonzero(begin | end | ((kind >= 0) & executed))
    process, thread, start = _where(calls, rows)
    order = np.lexsort((start, thread, process))
    process, thread, start, rows = process[order], thread[order], start[order], rows[order]
    found: list[tuple[int, int, int, int, bool]] = []
    since, begun, at_place = -(1 << 62), False, (NONE, NONE)
    for place in np.flatnonzero(begin[rows] | end[rows]).tolist():
        here = (int(process[place]), int(thread[place]))
        if here != at_place:
            since, begun, at_place = -(1 << 62), False, here
        time = int(start[place])
        if begin[rows[place]]:
            since, begun = time, True
            continue
        if not begun and place and (int(process[place - 1]), int(thread[place - 1])) == here:
            since = max(since, int(start[place - 1]))
        found.append((*here, since, time, begun))
        since, begun = time, False
    columns = list(zip(*found, strict=True)) if found else [()] * 5
    whole = [np.array(column, np.int64) for column in columns]
    return _Windows(whole[0], whole[1], whole[2], whole[3], whole[4].astype(bool))


def _gather(trace: Trace, windows: _Windows, rows: Ints, kind: Ints) -> dict[int, Capture]:
    """By place in ``windows`` the capture, with the calls among ``rows`` (by time) that are in it."""
    calls = trace["calls"]
    if not len(windows.start):
        return {}
    inside = _inside(windows, *_where(calls, rows))
    nested = graph_numbers(trace, rows)
    time = calls["start"].gather(rows).to_numpy()
    order = np.argsort(inside, kind="stable")
    order = order[inside[order] >= 0]
    found = {}
    if len(order):
        for part in np.split(order, np.flatnonzero(np.diff(inside[order])) + 1):
            kinds = kind[rows[part]]
            children = np.unique(nested[part][kinds == CHILD])
            place = int(inside[part[0]])
            found[place] = Capture(
                int(windows.process[place]),
                int(time[part[0]]),
                rows[part],
                kinds,
                tuple(children[children >= 0].tolist()),
            )
    return found


def _inside(windows: _Windows, process: Ints, thread: Ints, time: Ints) -> Ints:
    """The window that each call is in, -1 for none.

    Its own thread's, else the only one that goes on in its process: the backward pass launches from a
    thread of its own, which begins and ends no capture.
    """
    found = np.full(len(time), NONE, np.int64)
    for of in np.unique(windows.process).tolist():
        here = np.flatnonzero(windows.process == of)
        theirs = np.flatnonzero(process == of)
        for on in np.unique(windows.thread[here]).tolist():
            own = here[windows.thread[here] == on]
            mine = theirs[thread[theirs] == on]
            tree = nest(windows.start[own], windows.end[own])
            found[mine] = at(own, tree.innermost(time[mine]))
        begun = here[windows.begun[here]]
        left = theirs[found[theirs] < 0]
        if not len(begun) or not len(left):
            continue
        starts, ends = np.sort(windows.start[begun]), np.sort(windows.end[begun])
        many = np.searchsorted(starts, time[left], side="right")
        alone = left[many - np.searchsorted(ends, time[left], side="right") == 1]
        tree = nest(windows.start[begun], windows.end[begun])
        found[alone] = at(begun, tree.innermost(time[alone]))
    return found
