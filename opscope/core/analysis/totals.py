"""Totals: kernels by name, ops by what they are, unattributed time by reason."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.op_frame import COST_COLUMNS, identity_of, priced
from opscope.core.analysis.op_times import Times, device_column
from opscope.core.analysis.ops import Ops
from opscope.core.columns import PIECE, gather, pieces

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
_SUMMED: Final = ("calls", "kernels", "cpu_time", "self_time")
_KIND: Final = ("reading", "theirs", "direction", "layer", "source", "priced")


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
    Summed piece by piece, by the numbers that tell ops apart; one op of each kind is then described.
    """
    times = ops.counted_times()
    whole = None if times.device_time is None else int(times.device_time.sum())
    share = pl.col("device_time") / whole if whole else pl.lit(None, pl.Float64)
    kinds = _kinds(ops, times)
    return (
        kinds.select(*_SUMMED, "device_time")
        .with_columns(
            *identity_of(ops, kinds["row"].to_numpy()).values(),
            # what costs alike costs alike each time
            *(
                gather(ops.costs.catalogue[name], kinds["priced"].to_numpy()) * kinds["calls"]
                for name in COST_COLUMNS
            ),
        )
        .lazy()
        .group_by(SAME_OP)
        .agg(pl.col(_SUMMED).sum(), *map(_total, _PARTIAL))
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


def _kinds(ops: Ops, times: Times) -> pl.DataFrame:
    """One row per kind of op: one op's ``row``, its place ``priced`` among the costs, and the sums."""
    ranges = ops.attribution.trace["ranges"]
    kinds: list[pl.DataFrame] = []
    limit = PIECE
    for part in pieces(len(ops.rows)):
        rows = ops.rows[part]
        device = None if times.device_time is None else times.device_time[part]
        piece = ops.outline(rows).with_columns(
            pl.Series("row", rows),
            pl.Series("priced", priced(ops, rows)),
            pl.lit(1, pl.Int64).alias("calls"),
            pl.Series("kernels", times.kernels[part].astype(np.int64)),
            (ranges["end"].gather(rows) - ranges["start"].gather(rows)).alias("cpu_time"),
            pl.Series("self_time", times.self_time[part]),
            device_column("device_time", device, len(rows)),
        )
        kinds.append(_alike(piece))
        if sum(map(len, kinds)) > limit:
            kinds = [_alike(pl.concat(kinds))]
            limit = max(PIECE, 2 * len(kinds[0]))
    return _alike(pl.concat(kinds))


def _alike(kinds: pl.DataFrame) -> pl.DataFrame:
    return kinds.group_by(*_KIND).agg(
        pl.col("row").first(), pl.col(_SUMMED).sum(), _total("device_time")
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
