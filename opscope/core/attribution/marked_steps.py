"""Set the end of marked steps after which the program left its loop: the next mark comes later, or never.

A marked step with an optimizer ends with the events that usually follow the optimizer, if forward passes or a
checkpoint come after them. The last step has no next mark; without an optimizer it ends as an earlier step,
if it begins with all events of that step. Otherwise it stays without an end: the program may have left the
loop in its middle.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.loop_steps import MARKS, Loop, Loops
from opscope.core.attribution.step_bodies import common, usual_gap
from opscope.core.tables.amended import UNCLOSED_MARK
from opscope.core.tables.interpret import ROLE, Meaning
from opscope.core.tables.intervals import Ints
from opscope.core.tables.trace import Trace

#: The attrs of a step whose end was inferred.
END_INFERRED: Final = '{"end":"inferred"}'
#: Fewer steps before the last one show no habit.
LEAST: Final = 2
#: The most threads whose marks are looked at.
MOST_THREADS: Final = 256
#: How many of the most frequent ways in which steps end are compared.
TAILS: Final = 8


def with_ends(trace: Trace, meaning: Meaning, is_op: NDArray[np.bool_]) -> tuple[Trace, int]:
    """Return the trace with these ends (ns) of steps, and how many changed."""
    ranges = trace["ranges"]
    marks = np.flatnonzero(meaning.role == ROLE["step"])
    rows = ranges.select("process", "thread", "start", "end", "domain", "attrs")[marks]
    is_open: Any = pl.col("attrs").str.contains(UNCLOSED_MARK, literal=True).fill_null(False)
    rows = rows.with_columns(pl.Series("row", marks), is_open.alias("open"))
    rows = rows.filter(pl.col("domain").cast(pl.String) == MARKS).drop_nulls("start")
    ends: dict[int, int] = {}
    loops = Loops(ranges, meaning, is_op) if len(rows) else None
    reads = ranges.filter(pl.Series(meaning.role == ROLE["read"])).sort("start")
    threads = rows.sort("start").group_by("process", "thread", maintain_order=True)
    for number, ((process, thread), steps) in enumerate(threads):
        if loops is None or number >= MOST_THREADS:  # each reads all ranges once
            break
        if len(steps) <= LEAST or None in (process, thread):
            continue
        if not steps["open"][:-1].any():
            loop = loops.loop(int(process), int(thread))
            columns = [steps[name].to_numpy() for name in ("row", "start", "end", "open")]
            ends |= _ends(loop, *columns)
            last = steps["row"][-1]
            if steps["open"][-1] and last in ends:
                on = (pl.col("process") == process) & (pl.col("thread") == thread)
                until = _last_read(reads.filter(on), steps["start"].to_numpy())
                ends[last] = max(ends[last], until)
    if not ends:
        return trace, 0
    row = pl.int_range(pl.len(), dtype=pl.Int64)
    attrs = pl.when(row.is_in(list(ends))).then(pl.lit(END_INFERRED)).otherwise("attrs")
    changed = ranges.with_columns(
        row.replace_strict(ends, default=pl.col("end"), return_dtype=pl.Int64).alias("end"),
        attrs.alias("attrs"),
    )
    return trace.replace(ranges=changed), len(ends)


def _ends(
    loop: Loop, rows: Ints, start: Ints, end: Ints, is_open: NDArray[np.bool_]
) -> dict[int, int]:
    """Return when (ns) steps of a thread end, by row, if that is not where their marks end; only the last
    step may be open."""
    events = loop.events
    low = np.searchsorted(events.start, start)
    high = np.where(is_open, len(events.start), np.searchsorted(events.start, end))
    core, trained = _cores(loop, low, high)
    tails = [
        events.symbol[first:last] for first, last in zip(core.tolist(), high.tolist(), strict=True)
    ]
    usual = usual_gap(tails[:-1])
    leaves = events.passes | events.away
    left = [
        trained and bool(leaves[last - len(tail) + common(tail, usual) : last].any())
        for tail, last in zip(tails, high.tolist(), strict=True)
    ]
    regular = Counter(
        tail.tobytes() for tail, away in zip(tails[:-1], left, strict=False) if not away
    ).most_common(TAILS)
    usual_tails = [np.frombuffer(data, usual.dtype) for data, _ in regular]
    ends: dict[int, int] = {}
    for step in np.flatnonzero(left | is_open).tolist():
        tail = tails[step]
        sizes = [len(each) for each in usual_tails if common(tail, each) == len(each)]
        until = int(core[step]) + max(sizes, default=common(tail, usual) if trained else 0)
        if until > low[step] and core[step] >= low[step]:
            ends[int(rows[step])] = int(events.end[low[step] : until].max())
    return ends


def _last_read(reads: pl.DataFrame, start: Ints) -> int:
    """Return when (ns) the last read of the last step ended, if all other steps have as many; else 0.

    Of work that a call only launches, the program sees the end when it reads the results.
    """
    first = np.searchsorted(reads["start"].to_numpy(), np.append(start, np.iinfo(np.int64).max))
    usual, *counts, last = np.diff(first).tolist()
    if not usual or last < usual or any(count != usual for count in counts):
        return 0
    return int(reads["end"][int(first[-2]) + usual - 1])


def _cores(loop: Loop, low: Ints, high: Ints) -> tuple[Ints, bool]:
    """Return the event after the optimizer of each step, -1 for a last step without it, and whether all
    steps have as many runs of optimizers; else where each step begins."""
    works = loop.optimizes
    last = np.flatnonzero(works & ~np.append(works[1:], False))
    first = np.searchsorted(last, low)
    runs = np.searchsorted(last, high) - first
    usual = int(runs[0])
    if not usual or (runs[:-1] != usual).any():
        return low, False
    has = runs >= usual
    return np.where(has, last[(first + usual - 1) * has] + 1, -1), True
