"""Read the CUPTI hardware counters of a Kineto trace: measured per kernel, matched to launches by order."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import polars as pl

from opscope.core.dialects.launches import LAUNCH
from opscope.core.tables.columns import spread

from .columns import NONE, Columns


def counters(
    columns: Columns,
    metrics: list[dict[str, Any]],
    process: int,
    base: int,
    calls: pl.DataFrame,
    first_id: int,
) -> tuple[pl.DataFrame, pl.DataFrame, str | None]:
    """Return the ``counters`` table, one mark per kernel, and a warning or None.

    The table has a row per (kernel, metric). The marks are rows for ``ranges`` (ids from ``first_id``) with
    the kernel's name as text; they have no duration, because the profiler replays kernels, so the times of a
    range are not those of its kernel. The profiler runs one kernel at a time and gives no correlation id,
    so the n-th range is taken for the n-th launch. That is done only if there are as many launches as
    ranges; otherwise the values stay, without a launch.
    """
    rows = columns["metrics"]
    start = rows.column("start")
    order = np.argsort(start, kind="stable")
    # the range profiler measures every call that runs a kernel on the device
    launches = calls.filter(pl.col("name").cast(pl.String).str.contains(LAUNCH)).sort("start")
    linked = len(launches) == len(order)
    correlation = launches["correlation"].to_list() if linked else [None] * len(order)
    device = [None if value == NONE else value for value in rows.column("device").tolist()]
    sound = len(metrics) == len(order)
    found = [
        (process, device[row], correlation[place], first_id + place, name, float(value))
        for place, row in enumerate(order.tolist() if sound else ())
        for name, value in metrics[row].items()
        if isinstance(value, (int, float)) and abs(value) <= sys.float_info.max
    ]
    marks = pl.DataFrame(
        {
            "id": np.arange(first_id, first_id + len(order)),
            "process": np.full(len(order), process, np.int32),
            "start": start[order] + base,
            "end": start[order] + base,
            "domain": pl.repeat("cuda_profiler_range", len(order), dtype=pl.String, eager=True),
            "text": spread("text", list(columns.names), rows.column("name", np.int32)[order]),
            "kind": pl.repeat("mark", len(order), dtype=pl.String, eager=True),
        }
    )
    table = pl.DataFrame(
        found,
        schema={"process": pl.Int32, "device": pl.Int64, "correlation": pl.Int64,
                "range_id": pl.Int64, "name": pl.String, "value": pl.Float64},
        orient="row",
    )  # fmt: skip
    if not sound:
        return table, marks, "hardware counters could not be read"
    if not linked:
        return (
            table,
            marks,
            f"counters are not linked to launches: {len(launches)} launches, not one per kernel",
        )
    return table, marks, None
