"""The times of ops: their own, and those of the kernels and copies that they launched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribute import Attribution
from opscope.core.columns import at
from opscope.core.intervals import NONE, Ints


@dataclass(frozen=True, slots=True)
class Times:
    """For each op of ``rows``, in that order; times in ns.

    ``parent``: the place of the op around it, -1 for none. ``self_time``: without the ops inside.
    ``device_time``: of the kernels and copies that it launched itself, None where they were not
    captured; on a CPU-only profile its self time. ``kernels``: how many it launched itself.
    """

    rows: Ints
    parent: NDArray[np.int32]
    self_time: Ints
    device_time: Ints | None
    kernels: NDArray[np.int32]


def times(attribution: Attribution, owner: Callable[[Ints], Ints] | None = None) -> Times:
    """The times of every op of an attributed trace.

    ``owner`` gives for op rows that launched something the row that is to have it (themselves).
    """
    trace = attribution.trace
    rows = np.flatnonzero(attribution.is_op)
    place = np.full(len(attribution.is_op), NONE, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    parent = at(place, attribution.parent[rows])
    start, end = (trace["ranges"][name].gather(rows).to_numpy() for name in ("start", "end"))
    own = self_time(start, end, parent)
    device: Ints | None = None
    kernels = np.zeros(len(rows), np.int32)
    if trace.has("kernels") or trace.has("memops"):
        device, kernels = launched(attribution, place, len(rows), owner)
    elif not trace.origin.get("gpu"):
        device = own
    return Times(rows, parent, own, device, kernels)


def self_time(start: Ints, end: Ints, parent: NDArray[np.signedinteger]) -> Ints:
    """The time (ns) of each node of a forest that none of its children covers."""
    own: Ints = end - start
    inner = parent >= 0
    covered = np.bincount(parent[inner], weights=own[inner], minlength=len(own))
    alone: Ints = np.maximum(own - covered.astype(np.int64), 0)
    return alone


def launched(
    attribution: Attribution,
    place: NDArray[np.int32],
    many: int,
    owner: Callable[[Ints], Ints] | None,
) -> tuple[Ints, NDArray[np.int32]]:
    """Per place the time (ns) of what its op launched, and how many kernels that was."""
    time, count = np.zeros(many, np.int64), np.zeros(many, np.int32)
    for name, executed in (("kernels", attribution.kernels), ("memops", attribution.memops)):
        table = attribution.trace[name]
        has = executed.op >= 0
        rows = executed.op[has].astype(np.int64)
        by = place[rows if owner is None else owner(rows)]
        duration = (table["end"] - table["start"]).fill_null(0).to_numpy()[has]
        # sums of ns below 2**53 are exact in the float64 that bincount adds in
        time += np.bincount(by, duration, many).astype(np.int64)
        if name == "kernels":
            count += np.bincount(by, minlength=many).astype(np.int32)
    return time, count


def with_descendants(values: Ints, parent: NDArray[np.signedinteger]) -> Ints:
    """Each node's value plus those of all nodes inside it."""
    total: Ints = values.astype(np.int64)
    above, moving = parent, values
    while True:
        inner = (above >= 0) & (moving != 0)
        if not inner.any():
            return total
        above, moving = above[inner], moving[inner]
        total += np.bincount(above, moving, len(values)).astype(np.int64)
        above = parent[above]


def device_column(name: str, values: Ints | None, many: int) -> pl.Series:
    """A column of device times, null where a GPU's kernels were not captured."""
    column: pl.Series = pl.Series(name, [None], dtype=pl.Int64)
    return column.new_from_index(0, many) if values is None else pl.Series(name, values)
