"""Time by the user's own ranges: what ran in each, and what ran in none."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.kernels import launched_in
from opscope.core.analysis.ops import Ops, first
from opscope.core.attribute import Launched
from opscope.core.columns import gather
from opscope.core.intervals import NONE

_SUMS: Final = ("matrix_flops", "vector_flops", "flops", "bytes")


def range_totals(ops: Ops, executed: pl.DataFrame, frame: pl.DataFrame | None) -> pl.DataFrame:
    """One row per innermost user range (null: none), by time: range, device_time (ns), share, calls,
    kernels, copies, matrix_flops, vector_flops, flops, bytes.

    ``calls`` are kernels, copies and sets; without a GPU, where ``frame`` is the profile's ops, they
    are ops and ``device_time`` is their self time. Sums are null where nothing is known.
    """
    if frame is not None:
        ran = frame.lazy().select("range", pl.col("self_time").alias("time"), *_SUMS)
        nothing = pl.lit(None, pl.Boolean)
        ran = ran.with_columns(nothing.alias("kernel"))
    else:
        attribution = ops.attribution
        kernels = executed.lazy().select(
            _range_of(ops, attribution.kernels), pl.col("duration").alias("time"), *_SUMS
        )
        table = attribution.trace["memops"]
        copies = table.lazy().select(
            _range_of(ops, attribution.memops), (pl.col("end") - pl.col("start")).alias("time")
        )
        ran = pl.concat(
            [
                kernels.with_columns(pl.lit(value=True).alias("kernel")),
                copies.with_columns(pl.lit(value=False).alias("kernel")),
            ],
            how="diagonal",
        )
    kernel = pl.col("kernel")
    return (
        ran.group_by("range")
        .agg(
            pl.col("time").sum().alias("device_time"),
            pl.len().cast(pl.Int64).alias("calls"),
            _counted(kernel).alias("kernels"),
            _counted(~kernel).alias("copies"),
            *(pl.when(pl.col(n).is_not_null().any()).then(pl.col(n).sum()).alias(n) for n in _SUMS),
        )
        .with_columns((pl.col("device_time") / _or_none("device_time")).alias("share"))
        .sort("device_time", "range", descending=[True, False], nulls_last=True)
        .select("range", "device_time", "share", "calls", "kernels", "copies", *_SUMS)
        .collect()
    )


def _counted(chosen: pl.Expr) -> pl.Expr:
    """How many are; null where that is not asked of any."""
    return pl.when(chosen.is_not_null().any()).then(chosen.sum().cast(pl.Int64))


def _or_none(name: str) -> pl.Expr:
    whole = pl.col(name).sum()
    return pl.when(whole > 0).then(whole)


def _range_of(ops: Ops, launched: Launched) -> pl.Series:
    """The user range around the launch, else around the op, of each row of a device's table."""
    rows = launched.op
    distinct = rows[rows >= 0]
    inside = launched_in(ops, launched.call)
    if not len(distinct):
        return inside
    each, place = np.unique(distinct.astype(np.int64), return_inverse=True)
    code = np.full(len(rows), NONE, np.int32)
    code[rows >= 0] = place
    return first(inside, gather(ops.user_range(each, ops.forward_of(each)), code)).alias("range")
