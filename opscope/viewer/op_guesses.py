"""Predict columns of the table of all ops in the same way as the page of a single file, so that only
differences need to be stored. An op's own time excludes its children's; its device time and kernels are of
the work that it and the ops inside it launched. The page computes the same: ``GUESSES`` in
``web/src/guesses.ts``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from .packed import Guesses

#: Whole numbers that JavaScript adds exactly.
_EXACT: Final = 2**53
_NEEDED: Final = {"op_id", "parent_id", "depth", "cpu_time"}
#: The tables of each op, kernel and copy.
EACH: Final = ("each_op", "each_kernel", "each_copy")


def op_guesses(ops: pl.DataFrame, kernels: pl.DataFrame, copies: pl.DataFrame) -> Guesses:
    """Return the guesses of columns of ``ops`` (each op) from these frames, which must hold all rows;
    none if they lack columns or are too large for the page's numbers."""
    if not set(ops.columns) >= _NEEDED or ops["op_id"].null_count() or ops["depth"].null_count():
        return {}
    ids = ops["op_id"].to_numpy()
    order = np.argsort(ids, kind="stable")
    if len(ids) and (len(np.unique(ids)) != len(ids) or int(np.abs(ids).max()) >= _EXACT):
        return {}
    parent = _rows(ops["parent_id"], ids, order)
    cpu = ops["cpu_time"].fill_null(0).to_numpy().astype(np.int64)
    depth = ops["depth"].to_numpy()
    durations = [frame["duration"].fill_null(0).to_numpy() for frame in (kernels, copies)]
    if sum(float(np.abs(column).sum()) for column in (cpu, *durations)) >= _EXACT:
        return {}
    time, count = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
    for frame, duration, counted in zip((kernels, copies), durations, (True, False), strict=True):
        row = _rows(frame["op_id"], ids, order)
        has_op = row >= 0
        np.add.at(time, row[has_op], duration[has_op])
        if counted:
            np.add.at(count, row[has_op], 1)
    children = np.zeros(len(ids), np.int64)
    inside = parent >= 0
    np.add.at(children, parent[inside], cpu[inside])
    for level in np.unique(depth)[::-1]:
        rows = np.flatnonzero((depth == level) & inside)
        for one in (time, count):
            np.add.at(one, parent[rows], one[rows])
    return {
        "self_time": ("own_time", cpu - children),
        "device_time": ("launched_time", time),
        "kernels": ("launched_kernels", count),
    }


def _rows(wanted: pl.Series, ids: Any, order: Any) -> Any:
    """Return the row of each id; -1 for a missing one."""
    if not len(ids):
        return np.full(len(wanted), -1)
    least = int(ids.min()) - 1
    values = wanted.fill_null(least).to_numpy()
    at = np.searchsorted(ids, values, sorter=order)
    at[at == len(ids)] = 0
    return np.where(ids[order[at]] == values, order[at], -1)
