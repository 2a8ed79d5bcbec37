"""What the cost model does not know, ranked by the time it takes."""

from __future__ import annotations

import numpy as np
import polars as pl

from opscope.core.analysis.ops import Ops
from opscope.core.analysis.summary import FREE
from opscope.core.columns import gather
from opscope.core.intervals import NONE


def missing_costs(ops: Ops, frame: pl.DataFrame, *, cpu_only: bool) -> pl.DataFrame:
    """One row per op name without known FLOPs: op, op_type, calls, time (ns), share, why.

    ``frame`` is ``ops_frame(ops)``. Time is the op's own device time (CPU-only: self time), and the
    share is of all such time. Ops that launched nothing are left out.
    """
    rows = ops.rows
    unknown = ops.costs.costing(rows) == NONE
    priced = np.where(unknown, ops.costs.place[rows], NONE)
    time = "self_time" if cpu_only else "own_device_time"
    whole = frame[time].sum() or None
    return (
        frame.lazy()
        .select("op", "op_type", pl.col(time).alias("time"))
        .with_columns(gather(ops.costs.catalogue["reason"], priced).alias("why"))
        .filter(
            pl.Series(unknown)
            & (pl.col("time") > 0)
            & ~pl.col("op_type").cast(pl.String).is_in(FREE).fill_null(False)
        )
        .group_by("op", "op_type", "why")
        .agg(pl.len().cast(pl.Int64).alias("calls"), pl.col("time").sum())
        .with_columns((pl.col("time") / whole).alias("share"))
        .sort("time", "op", descending=[True, False])
        .select("op", "op_type", "calls", "time", "share", "why")
        .collect()
    )
