"""Kernels by name and by launch configuration: times, ops, occupancy, waves, limiting resource. || Figures
over several configurations are means weighted by the kernels' known time, as in the PyTorch profiler's
TensorBoard plug-in (torch-tb-profiler 0.4.3, ``kernel_parser.py``).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.device_columns import FORMS
from opscope.core.analysis.device.launches import (
    CONFIGURATION,
    SCHEMA,
    Launches,
    launch_configurations,
)
from opscope.core.analysis.ops.executed import kernel_executions
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.layout import Table
from opscope.core.question.record import Question, Report, View
from opscope.core.question.tables import listed
from opscope.core.question.words import columns
from opscope.core.tables.columns import compact, pairs

#: The columns that follow from a configuration on a model of device.
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
                _sum(kernels, row),
                distinct[of_configuration],
            ],
            how="horizontal",
        )
        .sort("total", "name", *CONFIGURATION, descending=[True, *[False] * 6], nulls_last=True)
        .select(BY_LAUNCH)
    )


def kernel_occupancy(kernels: pl.DataFrame, by_launch: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kernel name: ``BY_NAME``, by time (ns).

    ``by_launch`` is ``kernel_launches`` of the same kernels. ``limited_by`` is taken from the configuration
    with most of the time.
    """
    names, texts = compact(kernels["name"])
    first = _sum(kernels, names).with_columns(pl.Series("name", texts, pl.String))
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
    """Return the distinct configurations without process and device, and the configuration of each kernel."""
    table = launched.table.select(*CONFIGURATION, *_RATED)
    distinct = table.unique(maintain_order=True).with_row_index("place")
    codes = table.join(
        distinct, on=table.columns, how="left", nulls_equal=True, maintain_order="left"
    )["place"]
    return distinct.drop("place"), codes.to_numpy().astype(np.int64)[launched.code]


def _sum(kernels: pl.DataFrame, row: NDArray[np.int32]) -> pl.DataFrame:
    """Return for each row 0, 1, 2 … the kernels' times, the op with most of the time, and the use of
    Tensor Cores."""
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
    total = int(kernels["duration"].sum())
    share = pl.col("total") / total if total else pl.lit(None, pl.Float64)
    return (
        times.join(ops, on="row", how="left")
        .sort("row")
        .with_columns(share.alias("share"), pl.col("ops").fill_null(0))
        .drop("row")
    )


def answer(profile: Answers) -> pl.DataFrame:
    """Kernels by name and launch configuration: times, occupancy and what limits it, waves, tail."""
    return kernel_launches(profile.of(kernel_executions), profile.of(launch_configurations))


def kernel_launches_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the configurations, with notes on missing data and on figures that are bounds."""
    frame = report.frame(profile)
    table = listed(report, frame, view)
    notes = list(table.footnotes)
    if frame["waves"].is_not_null().any():
        notes.append(
            "tail: estimate, part of the places for blocks that the last wave leaves empty"
        )
    if frame["clustered"].any():
        notes.append(
            "blocks of some kernels start in clusters: their occupancy and waves are bounds"
        )
    reasons = frame["occupancy_reason"].drop_nulls().unique().sort()
    notes += [f"no occupancy of some kernels: {why}" for why in reasons]
    return Table(table.title, table.columns, table.rows, notes)


def answer_occupancy(profile: Answers) -> pl.DataFrame:
    """Kernels by name: times, ops, blocks per multiprocessor, occupancy, Tensor Cores."""
    return kernel_occupancy(profile.of(kernel_executions), profile.kernel_launches())


def occupancy_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the kernels, with the reasons why some have no occupancy."""
    frame = report.frame(profile)
    table = listed(report, frame, view)
    reasons = frame["occupancy_reason"].drop_nulls().unique().sort()
    notes = [*table.footnotes, *(f"no occupancy of some kernels: {why}" for why in reasons)]
    return Table(table.title, table.columns, table.rows, notes)


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "kernel_launches()",
                "one row per kernel name, launch configuration and model of device, by time",
                columns(
                    "name op ops grid block cluster registers shared_memory calls total mean "
                    "min max share tensor_core device_name sm_count blocks blocks_per_sm "
                    "warps_per_block resident_blocks theoretical_occupancy limited_by "
                    "achieved_occupancy waves tail_share register_use shared_use clustered "
                    "occupancy_reason",
                    """
                    cluster: text: size of the cluster of blocks: x,y,z; null if none or not recorded
                    blocks: count: blocks of the grid
                    warps_per_block: count: warps (32 threads) of a block
                    resident_blocks: count: blocks that fit on a multiprocessor at one time
                    register_use: fraction: registers of the blocks that fit / registers of a
                        multiprocessor
                    shared_use: fraction: shared memory of the blocks that fit / shared memory of a
                        multiprocessor
                    clustered: yes/no: whether blocks start in clusters, which need places for all their
                        blocks at one time: occupancy and waves are then bounds; null if not recorded
                    """,
                ),
            ),
        ),
        merged=lacking.MEDIANS,
        reports=(
            Report(
                name="kernel_launches",
                title="Launch configurations",
                empty="no kernels in this profile: no GPU was used, or kernels were not captured",
                shown=(
                    "share total calls name grid block registers shared_memory theoretical_occupancy "
                    "limited_by achieved_occupancy waves tail_share"
                ),
                forms=FORMS,
                table=kernel_launches_table,
                written=False,
                gpu_only=True,
            ),
        ),
    ),
    Question(
        answer=answer_occupancy,
        frames=(
            Frame(
                "kernel_occupancy()",
                "one row per kernel name, by time",
                columns(
                    "name op ops configurations calls total mean min max share tensor_core "
                    "blocks_per_sm theoretical_occupancy achieved_occupancy waves tail_share "
                    "limited_by occupancy_known occupancy_reason",
                    """
                    configurations: count: different launch configurations
                    blocks_per_sm: fraction: blocks of the grid / multiprocessors of the device, weighted
                        by the kernels' time
                    waves: fraction: waves of blocks, weighted by the kernels' time
                    limited_by: text: what limits the configuration with most of the time
                    """,
                ),
            ),
        ),
        merged=lacking.MEDIANS,
        reports=(
            Report(
                name="occupancy",
                title="Occupancy by kernel",
                empty="no kernels in this profile: no GPU was used, or kernels were not captured",
                shown=(
                    "share total calls name op blocks_per_sm theoretical_occupancy achieved_occupancy "
                    "limited_by tensor_core waves tail_share"
                ),
                forms=FORMS,
                table=occupancy_table,
                gpu_only=True,
            ),
        ),
    ),
)
