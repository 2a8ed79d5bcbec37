"""Kernels by name and by launch configuration: times, ops, occupancy, waves, what limits them.

Figures of several configurations are means weighted by the kernels' time, as the PyTorch profiler's
TensorBoard plug-in has them (torch-tb-profiler 0.4.3, ``kernel_parser.py``), over the time that is known.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.device.launches import CONFIGURATION, SCHEMA, Launches
from opscope.core.tables.columns import compact, pairs

#: What follows from a configuration on one model of device.
_RATED: Final = tuple(name for name in SCHEMA if name not in ("process", "device", *CONFIGURATION))
_TIMES: Final = ("calls", "total", "mean", "min", "max", "share")
_MEANS: Final = (
    "blocks_per_sm",
    "theoretical_occupancy",
    "achieved_occupancy",
    "waves",
    "tail_share",
)
BY_LAUNCH: Final = (*("name", "op", "ops"), *CONFIGURATION, *_TIMES, "tensor_core", *_RATED)
BY_NAME: Final = (
    *("name", "op", "ops", "configurations", *_TIMES, "tensor_core", *_MEANS),
    *("limited_by", "occupancy_known", "occupancy_reason"),
)


def kernel_launches(kernels: pl.DataFrame, launched: Launches) -> pl.DataFrame:
    """Return one row per kernel name, launch configuration and model of device: ``BY_LAUNCH``, by time.

    Times are in ns. ``kernels`` is ``Profile.kernels``' frame.
    """
    names, texts = compact(kernels["name"])
    distinct, number = _alike(launched)
    of_name, of_configuration, row = pairs(names, number)
    return (
        pl.concat(
            [
                pl.DataFrame({"name": pl.Series(texts, dtype=pl.String).gather(of_name)}),
                _summed(kernels, row),
                distinct[of_configuration],
            ],
            how="horizontal",
        )
        .sort("total", "name", *CONFIGURATION, descending=[True, *[False] * 6], nulls_last=True)
        .select(BY_LAUNCH)
    )


def kernel_occupancy(kernels: pl.DataFrame, by_launch: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kernel name: ``BY_NAME``, by time (ns).

    ``by_launch`` is ``kernel_launches`` of the same kernels. ``limited_by`` is that of the configuration with
    most of the time.
    """
    names, texts = compact(kernels["name"])
    first = _summed(kernels, names).with_columns(pl.Series("name", texts, pl.String))
    total = pl.col("total")
    rated = pl.col("achieved_occupancy").is_not_null()
    means = by_launch.group_by("name", maintain_order=True).agg(
        *(
            ((pl.col(name) * total).sum() / total.filter(pl.col(name).is_not_null()).sum()).alias(
                name
            )
            for name in _MEANS
        ),
        pl.len().cast(pl.Int64).alias("configurations"),
        pl.col("limited_by").drop_nulls().first(),
        (total.filter(rated).sum() / total.sum()).alias("occupancy_known"),
        pl.col("occupancy_reason").drop_nulls().first(),
    )
    return (
        first.join(means, on="name", how="left", nulls_equal=True)
        .with_columns(pl.when(pl.col(name).is_finite()).then(name).alias(name) for name in _MEANS)
        .with_columns(
            pl.when(pl.col("occupancy_known").is_finite())
            .then("occupancy_known")
            .alias("occupancy_known")
        )
        .sort("total", "name", descending=[True, False])
        .select(BY_NAME)
    )


def _alike(launched: Launches) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """Return the configurations without their process and device, and which of them each kernel has."""
    table = launched.table.select(*CONFIGURATION, *_RATED)
    distinct = table.unique(maintain_order=True).with_row_index("place")
    place = table.join(
        distinct, on=table.columns, how="left", nulls_equal=True, maintain_order="left"
    )["place"]
    return distinct.drop("place"), place.to_numpy().astype(np.int64)[launched.code]


def _summed(kernels: pl.DataFrame, row: NDArray[np.int32]) -> pl.DataFrame:
    """Return times, the op with most of the time, and Tensor Cores of the kernels of each row 0, 1, 2 …"""
    duration = pl.col("duration")
    frame = kernels.select("duration", "op", "tensor_core", pl.Series("row", row, pl.Int64))
    times = frame.group_by("row").agg(
        pl.len().cast(pl.Int64).alias("calls"),
        duration.sum().alias("total"),
        duration.mean().alias("mean"),
        duration.min().alias("min"),
        duration.max().alias("max"),
        pl.col("tensor_core").any(ignore_nulls=False),
    )
    ops = (
        frame.filter(pl.col("op").is_not_null())
        .group_by("row", "op")
        .agg(duration.sum())
        .with_columns(pl.col("op").cast(pl.String))
        .sort("duration", "op", descending=[True, False])
        .group_by("row", maintain_order=True)
        .agg(pl.col("op").first(), pl.len().cast(pl.Int64).alias("ops"))
    )
    whole = int(kernels["duration"].sum())
    share = pl.col("total") / whole if whole else pl.lit(None, pl.Float64)
    return (
        times.join(ops, on="row", how="left")
        .sort("row")
        .with_columns(share.alias("share"), pl.col("ops").fill_null(0))
        .drop("row")
    )
