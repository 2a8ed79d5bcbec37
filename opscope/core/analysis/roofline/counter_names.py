"""The frame of measured kernels with the column names of Holistic Trace Analysis."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.analysis.roofline.counters import COLUMNS

#: Its columns, each with ours. Its times are in µs.
_NAMES: Final = {
    "cat": None,
    "name": "name",
    "pid": "device",
    "ts": "start",
    "dur": "duration",
    "stream": "stream",
    "correlation": "correlation",
    "rank": "rank",
    "op_stack": "op_stack",
    "top_level_op": "top_op",
    "bottom_level_op": "bottom_op",
}
_CATEGORY: Final = "cuda_profiler_range"


def as_hta(frame: pl.DataFrame) -> pl.DataFrame:
    """Return ``measured_kernels`` with HTA's columns: ``op_stack`` a list, outermost first, times in µs.

    Its frame is one a rank: filter by ``rank``. Where its file has no value, it has -1, this frame null;
    ``ts`` is the launch's time, not the one that Kineto makes up.
    """
    made = frame.select(
        pl.lit(_CATEGORY).alias("cat"),
        *(pl.col(ours).alias(theirs) for theirs, ours in _NAMES.items() if ours is not None),
        *(pl.col(name) for name in frame.columns if name not in COLUMNS),
    )
    counters = [name for name in frame.columns if name not in COLUMNS]
    stack = pl.col("op_stack").str.split(" | ").fill_null([])
    made = made.with_columns(stack.alias("op_stack"), pl.col("ts") / 1e3, pl.col("dur") / 1e3)
    first = ["cat", "name", "pid", "ts", "dur", "stream", "correlation", "rank"]
    return made.select(*first, *counters, "op_stack", "top_level_op", "bottom_level_op")
