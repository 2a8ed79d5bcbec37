"""Totals: kernels by name, ops by what they are, unattributed time by reason."""

from __future__ import annotations

from typing import Final

import polars as pl

#: What makes two op instances the same op in a table of totals.
SAME_OP: Final = (
    "op",
    "op_type",
    "direction",
    "layer",
    "source",
    "inputs",
    "outputs",
    "dtypes",
    "params",
)


def _total(name: str) -> pl.Expr:
    """A sum that is null, not 0, where no row knows."""
    column = pl.col(name)
    return pl.when(column.is_not_null().any()).then(column.sum()).alias(name)


def kernel_totals(kernels: pl.DataFrame) -> pl.DataFrame:
    """One row per kernel name: calls, total/mean/min/max time (ns), share of all kernel time,
    the op it most often belongs to, whether it uses Tensor Cores, FLOPs and bytes (sums)."""
    duration = pl.col("duration")
    return (
        kernels.lazy()
        .group_by("name")
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            duration.sum().alias("total"),
            duration.mean().alias("mean"),
            duration.min().alias("min"),
            duration.max().alias("max"),
            pl.col("op").drop_nulls().mode(maintain_order=True).first().alias("op"),
            pl.col("tensor_core").first(),
            _total("flops"),
            _total("bytes"),
        )
        .with_columns((pl.col("total") / kernels["duration"].sum()).alias("share"))
        .sort("total", "name", descending=[True, False])
        .select(
            "name",
            "calls",
            "total",
            "mean",
            "min",
            "max",
            "share",
            "op",
            "tensor_core",
            "flops",
            "bytes",
        )
        .collect()
    )


def op_totals(ops: pl.DataFrame) -> pl.DataFrame:
    """One row per distinct op (name, direction, layer, source, shapes, params): calls, kernels,
    cpu_time, self_time, own device_time (ns, without the ops inside), FLOPs, bytes, share.

    ``share`` is of the summed device time; a nest's time is counted once, at the op that launched.
    """
    own = ops.with_columns(device_time="own_device_time", kernels="own_kernels")
    whole = own["device_time"].sum()
    return (
        own.lazy()
        .group_by(SAME_OP)
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            pl.col("kernels", "cpu_time", "self_time").sum(),
            *(_total(n) for n in ("device_time", "matrix_flops", "vector_flops", "flops", "bytes")),
        )
        .with_columns(
            pl.when(whole > 0).then(pl.col("device_time") / whole).alias("share")
            if whole
            else pl.lit(None, pl.Float64).alias("share")
        )
        .sort("device_time", "self_time", descending=True, nulls_last=True)
        .collect()
    )


def unattributed(kernels: pl.DataFrame) -> pl.DataFrame:
    """One row per reason for which kernels have no op: reason, kernels, time (ns), share."""
    whole = kernels["duration"].sum()
    return (
        kernels.lazy()
        .filter(pl.col("reason").is_not_null())
        .group_by("reason")
        .agg(pl.len().cast(pl.Int64).alias("kernels"), pl.col("duration").sum().alias("time"))
        .with_columns((pl.col("time") / whole).alias("share"))
        .sort("time", descending=True)
        .collect()
    )
