"""The times of ops: their own, and those of the kernels and copies that they launched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.ops.windows import captured
from opscope.core.attribution.attribute import Attribution
from opscope.core.tables.columns import at, pieces
from opscope.core.tables.intervals import NONE, Ints


@dataclass(frozen=True, slots=True)
class Times:
    """The times (ns) of the ops ``rows``, in that order.

    ``parent``: the place of the op around it, -1 for none. ``self_time``: its time without the ops inside.
    ``device_time``: the time of the kernels and copies that the op itself launched, None if they were not
    captured; on a CPU-only profile its self time. ``kernels``: how many it launched itself. ``seen``: whether
    it is inside a window in which kernels were captured; None if all ops are.
    """

    rows: Ints
    parent: NDArray[np.int32]
    self_time: Ints
    device_time: Ints | None
    kernels: Ints
    seen: NDArray[np.bool_] | None


def times(attribution: Attribution) -> Times:
    """Return the times of every op of an attributed trace."""
    trace = attribution.trace
    rows = np.flatnonzero(attribution.is_op)
    index = np.full(len(attribution.is_op), NONE, np.int32)
    index[rows] = np.arange(len(rows), dtype=np.int32)
    parent = at(index, attribution.parent[rows])
    start, end = (trace["ranges"][name].gather(rows).to_numpy() for name in ("start", "end"))
    own = self_time(lambda part: end[part] - start[part], parent)
    device: Ints | None = None
    kernels = np.zeros(len(rows), np.int64)
    if trace.has("kernels") or trace.has("memops"):
        device, kernels = launched(attribution, index, len(rows))
    elif not trace.used_gpu:
        device = own
    return Times(rows, parent, own, device, kernels, captured(trace, rows))


def self_time(lasted: Callable[[slice], Ints], parent: NDArray[np.signedinteger]) -> Ints:
    """Return the time (ns) of each node of a forest without the time of its children; ``lasted`` returns the
    durations of a slice of nodes."""
    alone: Ints = np.zeros(len(parent), np.int64)
    for part in pieces(len(parent)):
        length = lasted(part)
        alone[part] += length
        inner = parent[part] >= 0
        np.subtract.at(alone, parent[part][inner], length[inner])
    np.maximum(alone, 0, out=alone)
    return alone


def launched(
    attribution: Attribution,
    index: NDArray[np.signedinteger],
    many: int,
    owner: Callable[[Ints], Ints] | None = None,
) -> tuple[Ints, Ints]:
    """Return per place the time (ns) of the work that its op launched, and the number of kernels.

    Places are numbers that the caller gives out: ``index`` is the place of each range row, ``many`` the
    number of places; ops may share one. ``owner`` returns for op rows that launched work the rows that get
    its time (default: the same rows).
    """
    time, count = np.zeros(many, np.int64), np.zeros(many, np.int64)
    for name, executed in (("kernels", attribution.kernels), ("memops", attribution.memops)):
        table = attribution.trace[name]
        duration = (table["end"] - table["start"]).fill_null(0).to_numpy()
        for part in pieces(len(duration)):
            op = executed.op[part]
            rows = op[op >= 0].astype(np.int64)
            by = index[rows if owner is None else owner(rows)]
            np.add.at(time, by, duration[part][op >= 0])
            if name == "kernels":
                np.add.at(count, by, 1)
    return time, count


def with_descendants(values: Ints, parent: NDArray[np.signedinteger]) -> Ints:
    """Return each node's value plus the values of all nodes inside it."""
    total: Ints = values.astype(np.int64)
    above, moving = parent, values
    while True:
        inner = (above >= 0) & (moving != 0)
        if not inner.any():
            return total
        above, moving = above[inner], moving[inner]
        total += np.bincount(above, moving, len(values)).astype(np.int64)
        above = parent[above]


def device_column(
    name: str, values: Ints | None, count: int, seen: NDArray[np.bool_] | None = None
) -> pl.Series:
    """Return a column of device times, null where a GPU's kernels were not captured (``seen`` is false)."""
    column: pl.Series = pl.Series(name, [None], dtype=pl.Int64)
    if values is None:
        unknown: pl.Series = column.new_from_index(0, count)
        return unknown
    if seen is None:
        return pl.Series(name, values)
    hidden: pl.Series = pl.Series(name, values).set(~pl.Series(seen), None)
    return hidden
