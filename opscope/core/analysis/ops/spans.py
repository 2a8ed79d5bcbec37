"""Intervals by thread: the union of ranges on each thread of each process, and what is inside it."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE, Ints, intersect, merge
from opscope.core.tables.lanes import lanes_of
from opscope.core.tables.trace import SELECTED, Trace

Flags: TypeAlias = NDArray[np.bool_]
#: (process, thread) → disjoint intervals (ns) in order. The thread EVERY means the whole process.
Spans: TypeAlias = "dict[tuple[int, int], tuple[Ints, Ints]]"

EVERY: Final = -2


def spans_of(trace: Trace, rows: Ints, *, per_process: bool = False) -> Spans:
    """Return the union of the ranges ``rows`` on each thread; ``per_process``: on each process."""
    ranges = trace["ranges"]
    process, thread = (
        ranges[name].gather(rows).fill_null(NONE).to_numpy() for name in ("process", "thread")
    )
    if per_process:
        thread = np.full_like(thread, EVERY)
    start, end = (ranges[name].gather(rows).to_numpy() for name in ("start", "end"))
    return {
        key: merge(start[here], end[here])
        for key, here in lanes_of(process, thread).rows(np.ones(len(rows), bool))
    }


def inside(spans: Spans, process: Ints, thread: Ints, time: Ints) -> Flags:
    """Return whether each time is inside the spans of its thread or process."""
    is_inside = np.zeros(len(time), bool)
    for (number, on), (low, high) in spans.items():
        here = np.flatnonzero((process == number) & ((thread == on) | (on == EVERY)))
        index = np.searchsorted(low, time[here], side="right") - 1
        is_inside[here] |= (index >= 0) & (time[here] < at(high, index, 0))
    return is_inside


def overlapping(spans: Spans, process: Ints, thread: Ints, start: Ints, end: Ints) -> Flags:
    """Return whether each interval has a moment inside the spans of its thread or process."""
    overlaps = inside(spans, process, thread, start)
    for (number, on), (low, _) in spans.items():
        here = np.flatnonzero((process == number) & ((thread == on) | (on == EVERY)))
        first = np.searchsorted(low, start[here], side="left")
        overlaps[here] |= np.searchsorted(low, end[here], side="left") > first
    return overlaps


def both(one: Spans, other: Spans) -> Spans:
    """Return the times that are in both spans."""
    spans_of_key: dict[tuple[int, int], list[tuple[Ints, Ints]]] = {}
    for (process, thread), spans in one.items():
        for (number, on), theirs in other.items():
            if process == number and (thread == on or EVERY in (thread, on)):
                key = (process, max(thread, on))
                spans_of_key.setdefault(key, []).append(intersect(spans, theirs))
    return {
        key: merge(*(np.concatenate(side) for side in zip(*parts, strict=True)))
        for key, parts in spans_of_key.items()
    }


def selected_part(
    trace: Trace, process: int, thread: int, times: tuple[Ints, Ints]
) -> tuple[Ints, Ints]:
    """Return the part of ``times`` of a thread in which time outside any op counts: all of it, unless
    steps, layers or user ranges were selected."""
    selected_spans = trace.origin.get(SELECTED, {})
    nothing = (np.empty(0, np.int64), np.empty(0, np.int64))
    windows: Spans | None = selected_spans.get("windows")
    if windows is not None:
        times = intersect(times, windows.get((process, EVERY), nothing))
    within: Spans | None = selected_spans.get("within")
    if within is None:
        return times
    selected = intersect(times, within.get((process, thread), nothing))
    return selected if (process, EVERY) not in within else intersect(times, within[process, EVERY])
