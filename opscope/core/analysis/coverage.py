"""What the cost model does not know, ranked by the time it takes."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.ops import Ops
from opscope.core.analysis.summary import FREE
from opscope.core.columns import gather
from opscope.core.intervals import NONE


def missing_costs(ops: Ops) -> pl.DataFrame:
    """One row per op name without known FLOPs: op, op_type, calls, time (ns), share, why.

    Time is the op's own device time (CPU-only: self time; where a GPU's kernels were not captured,
    self time too), and the share is of all such time. Ops that launched nothing are left out.
    """
    times = ops.times
    taken = times.self_time if times.device_time is None else times.device_time
    busy = taken > 0
    rows, spent = times.rows[busy], taken[busy]
    unknown = ops.costs.costing(rows) == NONE
    rows, spent = rows[unknown], spent[unknown]
    reading = ops.attribution.meaning.reading[rows]
    why = gather(ops.costs.catalogue["reason"], ops.costs.place[rows])
    frame = pl.DataFrame(
        {
            "op": gather(ops.readings["op"], reading),
            "op_type": gather(ops.readings["op_type"], reading),
            "why": why,
            "time": spent,
        }
    )
    whole = int(taken.sum()) or None
    return (
        frame.lazy()
        .filter(~pl.col("op_type").cast(pl.String).is_in(FREE).fill_null(False))
        .group_by("op", "op_type", "why")
        .agg(pl.len().cast(pl.Int64).alias("calls"), pl.col("time").sum())
        .with_columns((pl.col("time") / whole).alias("share"))
        .sort("time", "op", descending=[True, False])
        .select("op", "op_type", "calls", "time", "share", "why")
        .collect()
    )
