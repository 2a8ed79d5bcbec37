"""Totals: kernels by name, ops by what they are, unattributed time by reason."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.analysis.op_frame import COST_COLUMNS, costs_of, identity_of
from opscope.core.analysis.op_times import device_column
from opscope.core.analysis.ops import Ops

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
#: Sums that are null where nothing is known.
_PARTIAL: Final = ("device_time", *COST_COLUMNS)
#: Ops described at a time.
_PIECE: Final = 2_000_000


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


def op_totals(ops: Ops) -> pl.DataFrame:
    """One row per distinct op (name, direction, layer, source, shapes, params): calls, kernels,
    cpu_time, self_time, own device_time (ns), FLOPs, bytes, share.

    ``share`` is of the summed device time; a nest's time is counted once: at the op that counts
    (``canonical``) around the op that launched, else at the latter.
    Worked out piece by piece, so that thirty million instances need not be described at once.
    """
    many = len(ops.rows)
    pieces = [_piece(ops, at, min(at + _PIECE, many)) for at in range(0, max(many, 1), _PIECE)]
    device = ops.counted_times.device_time
    whole = None if device is None else int(device.sum())
    share = pl.col("device_time") / whole if whole else pl.lit(None, pl.Float64)
    return (
        pl.concat(pieces)
        .lazy()
        .group_by(SAME_OP)
        .agg(pl.col("calls", "kernels", "cpu_time", "self_time").sum(), *map(_total, _PARTIAL))
        .with_columns(share.alias("share"))
        .sort(
            "device_time",
            "self_time",
            *SAME_OP,
            descending=[True, True, *[False] * len(SAME_OP)],
            nulls_last=True,
        )
        .collect()
    )


def _piece(ops: Ops, begin: int, end: int) -> pl.DataFrame:
    times, rows = ops.counted_times, ops.rows[begin:end]
    ranges = ops.attribution.trace["ranges"]
    device = None if times.device_time is None else times.device_time[begin:end]
    frame = pl.DataFrame(
        {
            **identity_of(ops, rows),
            "kernels": times.kernels[begin:end].astype("int64"),
            "cpu_time": ranges["end"].gather(rows) - ranges["start"].gather(rows),
            "self_time": times.self_time[begin:end],
            "device_time": device_column("device_time", device, len(rows)),
            **costs_of(ops, rows),
        }
    )
    return frame.group_by(SAME_OP).agg(
        pl.len().cast(pl.Int64).alias("calls"),
        pl.col("kernels", "cpu_time", "self_time").sum(),
        *map(_total, _PARTIAL),
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
