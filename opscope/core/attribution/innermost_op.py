"""Rule 2: a launch's op is the innermost op range that is open on its thread when the call starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from opscope.core.attribution.cuda_graphs import Replayed
from opscope.core.attribution.known import Flags, Nests, Rows
from opscope.core.tables.columns import at, gathered, hand_back, pieces
from opscope.core.tables.intervals import NONE, Ints, Nest, Window, in_order, nest, windows
from opscope.core.tables.lanes import lanes
from opscope.core.tables.mapped import Mapped, full, zeros
from opscope.core.tables.pool import Pool

#: Threads of the trace that are nested at the same time: each needs memory for columns of its ranges.
_WORKERS: Final = 4


def used_calls(
    count: int,
    links: Mapping[str, Rows],
    replays: Mapping[str, Replayed],
    mapped: Mapped | None = None,
) -> Flags:
    """Return for each of ``count`` calls whether it launched something or was captured into a CUDA graph."""
    used: Flags = zeros(mapped, count, bool)
    for link in links.values():
        for part in pieces(len(link)):
            used[link[part][link[part] >= 0]] = True
    for replay in replays.values():
        used[replay.call[replay.call >= 0]] = True
    return used


def open_ops(
    ranges: pl.DataFrame,
    ops: Flags,
    calls: pl.DataFrame,
    used: Flags,
    keep: bool,
    mapped: Mapped | None = None,
) -> tuple[Rows, Rows, Nests]:
    """Return per range row the op that encloses it, per used call the innermost op open at its start (-1:
    none), and the nests: every thread with op ranges is a key, with None for its nest unless ``keep``.
    ``mapped``: where long columns are kept, if not in memory.
    """
    parent = full(mapped, len(ranges), NONE, np.int32)
    call_op = full(mapped, len(calls), NONE, np.int32)
    nests: dict[tuple[int, ...], tuple[Nest, Ints] | None] = {}
    launches = dict(lanes(calls, mapped).rows(used, mapped)) if used.any() else {}

    start, end, called_at = (
        table[name].to_numpy()
        for table, name in ((ranges, "start"), (ranges, "end"), (calls, "start"))
    )

    def one(lane: tuple[tuple[int, int], Ints]) -> None:
        key, rows = lane
        rows = rows if keep else in_order(start, rows, mapped)
        called = in_order(called_at, launches.get(key, np.empty(0, np.int64)), mapped)
        time = gathered(calls["start"], called, mapped)
        nests[key] = None
        # the enclosing op began in the window or is carried over, and a window is a small part of a thread
        all_rows = Window(rows[:0], slice(0, len(rows)), None)
        for window in [all_rows] if keep else windows(start, end, rows):
            some, open_count = window.rows, len(window.held)
            part = np.concatenate((window.held, rows[some]))
            tree = nest(start[part], end[part])
            placed, new = part[tree.order], tree.order >= open_count
            parent[placed[new]] = at(placed, tree.parent)[new]
            if keep:
                nests[key] = (tree, rows)
            first = np.searchsorted(time, start[rows[some.start]]) if some.start else 0
            last = (
                len(time)
                if some.stop == len(rows)
                else np.searchsorted(time, start[rows[some.stop]])
            )
            call_op[called[first:last]] = at(part, tree.innermost(time[first:last]))

    if ops.any():
        with Pool(min(_WORKERS, os.cpu_count() or 1)) as pool:  # NumPy releases the GIL
            for _ in pool.map(one, lanes(ranges, mapped).rows(ops, mapped)):
                pass
        hand_back()
    return parent, call_op, nests


def with_open_ranges(
    ranges: pl.DataFrame, chosen: Flags, calls: pl.DataFrame, used: Flags, call_op: Rows
) -> Rows:
    """Return ``call_op``, in which calls outside push/pop ranges get the ``chosen`` start/end range that is
    open at their time.

    A start/end range may end on another thread, so only process and time count.
    """
    if not chosen.any():
        return call_op
    op_of_call: Rows = call_op.copy()
    missing = np.flatnonzero(used & (call_op < 0))
    process = calls["process"].fill_null(NONE).to_numpy()[missing]
    time = calls["start"].to_numpy()[missing]
    theirs = ranges["process"].fill_null(NONE).to_numpy()
    for number in np.unique(process):
        rows = np.flatnonzero(chosen & (theirs == number))
        start, end = (ranges[name].gather(rows).to_numpy() for name in ("start", "end"))
        here = process == number
        op_of_call[missing[here]] = at(rows, nest(start, end).innermost(time[here]))
    return op_of_call
