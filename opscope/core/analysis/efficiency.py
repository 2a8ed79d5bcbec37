"""How near each op comes to its roof: the roofline of every op that counts, with its own kernels."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.ops import Ops
from opscope.core.analysis.roofline import roofline, tick
from opscope.core.columns import gather
from opscope.core.perf import kernel_names
from opscope.core.perf.devices import Device

#: What the roofline needs of the cost model's catalogue, beside what the ops' own frame has.
_PRICED = ("masked_flops", "bytes_read", "bytes_written", "dtype", "note")


def op_efficiency(
    ops: Ops, frame: pl.DataFrame, kernels: pl.DataFrame, device: Device | None
) -> pl.DataFrame:
    """One row per op that counts and took device time: op_id, op, inputs, direction, layer, step,
    duration (ns), and the roofline.

    ``frame`` is ``ops_frame(ops)``, ``kernels`` the profile's kernels. Adds the cost's columns
    (``matrix_flops``, ``vector_flops``, ``masked_flops``, ``bytes``, ``dtype``, ``note``),
    ``tensor_core`` (any of its kernels), ``fast_algorithm`` and those of ``roofline``.
    """
    priced = ops.costs.place[ops.rows]
    whole = frame.with_columns(gather(ops.costs.catalogue[name], priced) for name in _PRICED)
    counted = whole.filter(
        pl.col("canonical") & (pl.col("device_time") > 0) & pl.col("matrix_flops").is_not_null()
    )
    table = counted.select(
        "op_id",
        "op",
        "inputs",
        "direction",
        "layer",
        "step",
        pl.col("device_time").alias("duration"),
        "matrix_flops",
        "vector_flops",
        "bytes",
        *_PRICED,
    ).join(_kernel_marks(kernels), on="op_id", how="left", maintain_order="left")
    return roofline(
        table.with_columns(pl.col("fast_algorithm").fill_null(False)),
        device,
        tick(kernels["duration"]),
    )


def _kernel_marks(kernels: pl.DataFrame) -> pl.DataFrame:
    """Per op id, whether any of its kernels is on Tensor Cores, and a fast algorithm's."""
    names = kernels["name"].unique().cast(pl.String)
    marks = pl.DataFrame(
        {
            "name": names,
            "tensor_core": pl.Series([kernel_names.used(n or "") for n in names], dtype=pl.Boolean),
            "fast_algorithm": pl.Series(
                [kernel_names.fast_algorithm(n or "") for n in names], dtype=pl.Boolean
            ),
        }
    )
    return (
        kernels.select("op_id", pl.col("name").cast(pl.String))
        .join(marks, on="name", how="left")
        .group_by("op_id")
        .agg(pl.col("tensor_core", "fast_algorithm").any(ignore_nulls=True))
    )


def group_efficiency(found: pl.DataFrame, *by: str) -> pl.DataFrame:
    """``op_efficiency`` by op name, layer, direction or step: sums of what is rated, and their ratio.

    Adds calls, duration, ideal_time (ns), matrix_flops, vector_flops, bytes, ``efficiency`` (the time
    at the roof over the time taken), ``rated`` (the share of the group's time that has a roof) and
    ``bound`` (what binds most of its time).
    """
    keys = list(by)
    rated = pl.col("efficiency").is_not_null()
    time = pl.col("duration").filter(rated).sum()
    groups = found.group_by(keys).agg(
        pl.len().alias("calls"),
        pl.col("duration").sum(),
        *(
            pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)
            for name in ("matrix_flops", "vector_flops", "bytes")
        ),
        pl.when(rated.any()).then(pl.col("ideal_time").filter(rated).sum()).alias("ideal_time"),
        pl.when(time > 0).then(pl.col("ideal_time").filter(rated).sum() / time).alias("efficiency"),
        (time / pl.col("duration").sum()).alias("rated"),
    )
    bound = (
        found.filter(rated)
        .group_by([*keys, "bound"])
        .agg(pl.col("duration").sum().alias("_time"))
        .sort("_time", descending=True)
        .group_by(keys)
        .agg(pl.col("bound").first())
    )
    return groups.join(bound, on=keys, how="left", nulls_equal=True).sort(
        "duration", descending=True
    )


def worst(found: pl.DataFrame, least_ns: int = 0) -> pl.DataFrame:
    """Op names by the time above their roof's: what reaching the roof would save (ns), ranked."""
    lost = (pl.col("duration") * (1 - pl.col("efficiency").clip(0, 1))).alias("lost")
    return (
        found.filter(pl.col("efficiency").is_not_null())
        .with_columns(lost)
        .group_by("op", "bound")
        .agg(pl.len().alias("calls"), pl.col("duration").sum(), pl.col("lost").sum())
        .filter(pl.col("lost") >= least_ns)
        .sort("lost", "op", descending=[True, False])
    )
