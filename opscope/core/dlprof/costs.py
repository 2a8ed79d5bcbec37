"""FLOPs, bytes and the roofline of groups of kernels or ops: the columns that follow DLProf's own."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.roofline.roofline import roofline, tick
from opscope.core.dlprof.groups import Groups
from opscope.core.dlprof.model import Model
from opscope.core.schema import DTYPE_NAMES
from opscope.core.tables.columns import at, gather

_SUMS: Final = ("matrix_flops", "vector_flops", "bytes")
#: The columns, in order.
COLUMNS: Final = (
    "FLOPs",
    "Bytes",
    "Attained FLOP/s",
    "Arithmetic Intensity (FLOP/B)",
    "Roofline Efficiency %",
    "Bound",
)


def of_kernels(model: Model, groups: Groups) -> pl.DataFrame:
    """Return ``COLUMNS`` for each group of the model's kernels; null where a kernel's cost is unknown."""
    return _rate(model, _group(groups, model.kernels))


def of_ops(model: Model, number: NDArray[np.integer[Any]], count: int) -> pl.DataFrame:
    """Return ``COLUMNS`` for each of ``count`` groups of ops; ``number`` is the group of each op (-1: none).
    The cost is that of the kernels. Without kernels it is the ops' own cost, with their time on the CPU."""
    work = model.kernels if model.source.trace.has("kernels") else _op_sums(model)
    of = number[work["op"].to_numpy()]
    if (of < 0).any():
        work, of = work.filter(pl.Series(of >= 0)), of[of >= 0]
    present, index = np.unique(of, return_inverse=True)
    groups = Groups(index.reshape(-1), len(present))
    rated = _rate(model, _group(groups, work))
    where = np.full(count, -1, np.int64)
    where[present] = np.arange(len(present))
    return pl.DataFrame([gather(column, where) for column in rated.get_columns()])


def _group(groups: Groups, work: pl.DataFrame) -> pl.DataFrame:
    return pl.DataFrame(
        {
            **{name: groups.whole(work[name]) for name in _SUMS},
            "duration": groups.total(work["duration"]),
            "tensor_core": groups.proven(work["tensor_core"]),
            "op": work["op"].gather(groups.first()),
        }
    )


def _op_sums(model: Model) -> pl.DataFrame:
    """Return per op its cost and, as ``duration``, its time on the CPU, which is the device if there is no
    GPU."""
    source = model.source
    ops, attribution = source.ops, source.ops.attribution
    rows = np.flatnonzero(ops.costs.canonical & attribution.is_op)
    outer = attribution.is_op & (attribution.parent < 0)
    tops = attribution.climb(rows, outer)
    index = np.full(len(outer), -1, np.int64)
    ranges = source.instances.table["range"].to_numpy()
    rows_of_ops = np.flatnonzero(ranges >= 0)
    index[ranges[rows_of_ops]] = rows_of_ops
    owner = at(index, tops)
    inside = np.flatnonzero((owner >= 0) & model.kept[np.maximum(owner, 0)])
    priced = ops.costs.catalogue.select("matrix_flops", "vector_flops", "bytes")[
        ops.costs.place[rows[inside]]
    ]
    of = source.instances.table["op"].to_numpy()[owner[inside]]
    cpu = model.times.group_by("op").agg(pl.col("cpu").sum().alias("duration"))
    return (
        priced.with_columns(pl.Series("op", of, pl.Int64))
        .group_by("op")
        .agg(
            pl.when(~pl.col(name).is_null().any()).then(pl.col(name).sum()).alias(name)
            for name in _SUMS
        )
        .join(cpu, on="op", how="left")
        .with_columns(pl.lit(None, pl.Boolean).alias("tensor_core"))
    )


def _rate(model: Model, grouped: pl.DataFrame) -> pl.DataFrame:
    types = (
        model.ops["data_type"]
        .cast(pl.String)
        .replace_strict(DTYPE_NAMES, default=None, return_dtype=pl.String)
    )
    frame = grouped.with_columns(types.gather(grouped["op"]).alias("dtype"))
    durations = model.kernels["duration"]
    rated = roofline(frame, model.source.device, tick(durations) if len(durations) else 1)
    figures = {
        "FLOPs": pl.col("matrix_flops") + pl.col("vector_flops"),
        "Bytes": pl.col("bytes"),
        "Attained FLOP/s": pl.col("attained_flops"),
        "Arithmetic Intensity (FLOP/B)": pl.col("intensity"),
        "Roofline Efficiency %": pl.col("efficiency") * 100,
        "Bound": pl.col("bound").cast(pl.String),
    }
    return rated.select(figure.alias(name) for name, figure in figures.items()).with_columns(
        pl.col(pl.Float64).fill_nan(None)
    )
