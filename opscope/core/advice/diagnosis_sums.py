"""What the diagnosis sums up of the distinct ops: time by op, and by what bounds each on the roofline.

Sums of pieces of ``op_totals()`` add up to those of the whole: saving a profile needs no more than a piece in
memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from opscope.core.analysis.roofline.roofline import roofline
from opscope.core.perf.devices.peaks import Device

#: The columns of ``op_totals()`` that are summed.
NEEDED: Final = (
    "op", "op_type", "dtypes", "calls", "kernels", "device_time", "matrix_flops", "vector_flops", "bytes",
)  # fmt: skip
_BY_OP: Final = {"op": pl.String, "device_time": pl.Int64, "calls": pl.Int64}
_BY_BOUND: Final = {"bound": pl.String, "whole": pl.Int64, "ideal": pl.Float64}


@dataclass(frozen=True, slots=True)
class Sums:
    """``by_op``: op, device_time (ns), calls. ``by_bound``: of what has a roof its bound, time, ideal time.
    ``ran``: the device time (ns) of all that ran, communication left out."""

    by_op: pl.DataFrame
    by_bound: pl.DataFrame
    ran: int


def sums(rows: pl.DataFrame, device: Device | None, on_gpu: bool) -> Sums:
    """Return the sums of rows of ``op_totals()``; without a ``device`` nothing has a roof."""
    by_op = rows.group_by("op").agg(pl.col("device_time", "calls").sum())
    by_op = by_op.select(pl.col(name).cast(kind) for name, kind in _BY_OP.items())
    none = pl.DataFrame(schema=_BY_BOUND)
    if device is None:
        return Sums(by_op, none, 0)
    count = pl.col("kernels") if on_gpu else pl.col("calls")
    talks = (pl.col("op_type").cast(pl.String) == "communication").fill_null(False)
    ran = rows.filter((pl.col("device_time") > 0) & (count > 0) & ~talks)
    each = ran.select(
        pl.col("device_time").alias("whole"),
        (pl.col("device_time") / count).alias("duration"),
        *((pl.col(name) / count).alias(name) for name in ("matrix_flops", "vector_flops", "bytes")),
        pl.col("dtypes").cast(pl.String).str.extract(r"^(\w+)").alias("dtype"),
    )
    rated = roofline(each, device).filter(pl.col("bound").is_not_null())
    ideal = pl.col("whole") * pl.min_horizontal("efficiency", 1.0)
    by_bound = rated.group_by("bound").agg(pl.col("whole").sum(), ideal.sum().alias("ideal"))
    by_bound = by_bound.select(pl.col(name).cast(kind) for name, kind in _BY_BOUND.items())
    return Sums(by_op, by_bound, int(ran["device_time"].sum()))
