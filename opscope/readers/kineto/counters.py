"""Read the CUPTI hardware counters of a Kineto trace: measured per kernel, matched to launches by order."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.dialects.launches import GRAPH_LAUNCH, LAUNCH
from opscope.core.question.units import counted
from opscope.core.tables.columns import spread

from .columns import NONE, Columns

#: The call from whose callback Kineto learns the name of a kernel (``CuptiRangeProfilerApi.cpp``).
_HEARD: Final = "cudaLaunchKernel"


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
    range are not those of its kernel. The profiler runs one kernel at a time, on whichever stream, and gives
    no correlation id, so the n-th range is taken for the n-th launch. This needs as many launches as ranges,
    ranges of a single device (Kineto has a profiler for each device, and a launch does not say its device),
    and no launch of a CUDA graph; otherwise the values stay, without a launch.
    """
    rows = columns["metrics"]
    start = rows.column("start")
    order = np.argsort(start, kind="stable")
    # the range profiler measures every call that runs a kernel on the device
    launches = calls.filter(pl.col("name").cast(pl.String).str.contains(LAUNCH)).sort("start")
    device = [None if value == NONE else value for value in rows.column("device").tolist()]
    unlinked = _doubt(calls, len(launches), device)
    linked = unlinked is None
    correlation = launches["correlation"].to_list() if linked else [None] * len(order)
    sound = len(metrics) == len(order)
    counter_tables = [
        (process, device[row], correlation[index], first_id + index, name, float(value))
        for index, row in enumerate(order.tolist() if sound else ())
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
            "text": spread("text", [*columns.names], _names(rows, order, launches, linked)),
            "kind": pl.repeat("mark", len(order), dtype=pl.String, eager=True),
        }
    )
    table = pl.DataFrame(
        counter_tables,
        schema={"process": pl.Int32, "device": pl.Int64, "correlation": pl.Int64,
                "range_id": pl.Int64, "name": pl.String, "value": pl.Float64},
        orient="row",
    )  # fmt: skip
    if not sound:
        return table, marks, "hardware counters could not be read"
    return table, marks, unlinked


def _names(
    rows: Any, order: NDArray[np.int64], launches: pl.DataFrame, linked: bool
) -> NDArray[np.int32]:
    """Return the name of each range's kernel as an index into the names; -1 where it is not known. Kineto
    learns names only at ``cudaLaunchKernel``, and gives the n-th name to the n-th range. So after a kernel
    launched by another call (``cuLaunchKernel``, ``…ExC``), every range has the name of a later launch."""
    named: NDArray[np.int32] = rows.column("name", np.int32)[order]
    heard = (launches["name"].cast(pl.String) == _HEARD).to_numpy()
    if not linked or heard.all():
        return named
    index = np.cumsum(heard) - 1
    names_of_rows: NDArray[np.int32] = np.where(heard, named[np.maximum(index, 0)], np.int32(-1))
    return names_of_rows


def _doubt(calls: pl.DataFrame, launches: int, device: list[int | None]) -> str | None:
    """Return why the ranges of these devices cannot be matched to the launches in order; None if they can."""
    doubt = None
    graphs = int(calls["name"].cast(pl.String).str.contains(GRAPH_LAUNCH).sum())
    if len(set(device)) > 1:
        doubt = f"they are of {len(set(device))} devices, and no launch says for which it is"
    elif graphs:
        doubt = f"{counted(graphs, 'launch', 'launches')} of CUDA graphs ran an unknown number of kernels"
    elif launches != len(device):
        doubt = f"{counted(launches, 'launch', 'launches')}, not one per kernel"
    return None if doubt is None else f"counters are not linked to launches: {doubt}"
