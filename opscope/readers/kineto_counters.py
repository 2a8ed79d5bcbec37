"""CUPTI counters in a Kineto trace: measured per kernel, and tied to launches by order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl

from opscope.core.columns import spread

from .kineto_columns import NONE, Codes, Columns
from .kineto_links import Processes

#: Calls that run a kernel on the device, which the range profiler each measures.
_LAUNCHES = r"^(cuda|cu|hip)(Launch\w*Kernel\w*|ModuleLaunchKernel|ExtModuleLaunchKernel|LaunchCooperative\w*)(_v[0-9]+|ExC)?$"


def counters(
    columns: Columns, metrics: list[dict[str, Any]], files: Processes, calls: pl.DataFrame
) -> tuple[pl.DataFrame, str | None]:
    """The ``counters`` table, one row per (kernel, metric), and what to tell where it has no links.

    The profiler runs kernels one at a time and gives its ranges no correlation id, so the n-th range
    is the n-th launch. That is believed only where both are equally many; else the values stay,
    without a launch.
    """
    rows = columns["metrics"]
    order = np.argsort(rows.column("start"), kind="stable")
    launches = calls.filter(pl.col("name").cast(pl.String).str.contains(_LAUNCHES)).sort("start")
    linked = len(launches) == len(order)
    correlation = (
        launches["correlation"].fill_null(NONE).to_numpy()
        if linked
        else np.full(len(order), NONE, np.int64)
    )
    device = rows.column("device")
    names = Codes()
    found: list[tuple[int, int | None, int | None, int, float]] = []
    for place, row in enumerate(order.tolist()):
        for name, value in metrics[row].items() if row < len(metrics) else ():
            if isinstance(value, (int, float)) and math.isfinite(value):
                found.append(
                    (
                        files.main,
                        int(device[row]) if device[row] != NONE else None,
                        int(correlation[place]) if correlation[place] != NONE else None,
                        names[name],
                        float(value),
                    )
                )
    frame = pl.DataFrame(
        found,
        schema={"process": pl.Int32, "device": pl.Int32, "correlation": pl.Int64,
                "name": pl.Int32, "value": pl.Float64},
        orient="row",
    )  # fmt: skip
    named = frame.with_columns(spread("name", list(names), frame["name"].to_numpy()))
    if linked:
        return named, None
    return named, f"counters of {len(order)} kernels have no launch: {len(launches)} were recorded"
