"""How long kernels are: a distribution by fixed lengths, and the kernels below a given length.

A kernel that takes less time than its launch (a few µs) leaves the device waiting for the next one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.device_columns import FORMS
from opscope.core.analysis.ops.executed import kernel_executions
from opscope.core.question import lacking, parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report, Sums
from opscope.core.question.words import columns

#: Bounds of the lengths, ns: 1, 2, 5 times each power of ten from 1 µs to 100 ms.
BOUNDS: Final = (
    *(digit * 10**power for power in range(3, 8) for digit in (1, 2, 5)),
    100_000_000,
)
#: The default length (ns) below which a kernel is short; as in Holistic Trace Analysis
#: (``get_cuda_kernel_launch_stats``: 10 µs).
SHORT: Final = 10_000
LENGTHS: Final = ("at_least", "below", "calls", "calls_share", "calls_running", "total", "share")
BY_NAME: Final = (
    *("name", "op", "ops", "calls", "short", "short_share", "short_time", "total", "share"),
    *("mean", "median"),
)


def length_sums(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return how many kernels are in each range of lengths (``place`` in BOUNDS), and their time: place,
    calls, total (ns). The results of several parts of a job may be joined."""
    duration = kernels["duration"].to_numpy()
    index = np.searchsorted(np.array(BOUNDS), duration, side="right")
    return (
        pl.DataFrame({"place": index, "duration": duration})
        .group_by("place")
        .agg(pl.len().cast(pl.Int64).alias("calls"), pl.col("duration").sum().alias("total"))
        .sort("place")
    )


def added_lengths(sums: pl.DataFrame) -> pl.DataFrame:
    """Return the ``length_sums`` of parts of a job, joined, with one row per range of lengths."""
    return sums.group_by("place").agg(pl.col("calls", "total").sum()).sort("place")


def kernel_lengths(sums: pl.DataFrame) -> pl.DataFrame:
    """Return one row per range of lengths, from the shortest that kernels have to the longest: ``LENGTHS``.

    ``at_least`` and ``below`` are in ns; below 1 µs ``at_least`` is 0, and above 100 ms ``below`` is null. A
    range in between without kernels is a row with 0 calls; without it, its neighbours would look adjacent.
    ``sums`` is ``length_sums``.
    """
    low = pl.Series("at_least", [0, *BOUNDS], pl.Int64)
    high = pl.Series("below", [*BOUNDS, None], pl.Int64)
    sums = added_lengths(sums)
    position = sums["place"].to_numpy()
    every = pl.DataFrame(
        {"place": np.arange(position.min(), position.max() + 1) if len(position) else position}
    )
    sums = every.join(sums, on="place", how="left", maintain_order="left").with_columns(
        pl.col("calls", "total").fill_null(0)
    )
    total, count = int(sums["total"].sum()), int(sums["calls"].sum())
    share = pl.col("total") / total if total else pl.lit(None, pl.Float64)
    return sums.with_columns(
        low.gather(sums["place"]),
        high.gather(sums["place"]),
        (pl.col("calls") / max(count, 1)).alias("calls_share"),
        (pl.col("calls").cum_sum() / max(count, 1)).alias("calls_running"),
        share.alias("share"),
    ).select(LENGTHS)


def short_kernels(kernels: pl.DataFrame, below: int = SHORT) -> pl.DataFrame:
    """Return one row per kernel name with some kernels shorter than ``below`` ns: ``BY_NAME``.

    ``calls`` and ``total`` cover all kernels of the name, ``short`` and ``short_time`` the short ones;
    ``share`` is short_time over the time of all kernels. The names with most short kernels come first.
    """
    duration = pl.col("duration")
    short = duration < below
    lengths = kernels.select("name", "op", "duration")
    few = lengths.filter(short)["name"].unique()
    lengths = lengths.filter(pl.col("name").is_in(few.implode()))
    ops = (
        lengths.filter(short & pl.col("op").is_not_null())
        .group_by("name", "op")
        .agg(pl.len().alias("many"))
        .with_columns(pl.col("op").cast(pl.String))
        .sort("many", "op", descending=[True, False])
        .group_by("name", maintain_order=True)
        .agg(pl.col("op").first(), pl.len().cast(pl.Int64).alias("ops"))
    )
    total = int(kernels["duration"].sum())
    share = pl.col("short_time") / total if total else pl.lit(None, pl.Float64)
    return (
        lengths.group_by("name")
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            short.sum().cast(pl.Int64).alias("short"),
            duration.filter(short).sum().alias("short_time"),
            duration.sum().alias("total"),
            duration.mean().alias("mean"),
            duration.median().alias("median"),
        )
        .join(ops, on="name", how="left")
        .with_columns(
            (pl.col("short") / pl.col("calls")).alias("short_share"),
            share.alias("share"),
            pl.col("ops").fill_null(0),
            pl.col("name").cast(pl.String),
        )
        .sort("short", "short_time", "name", descending=[True, True, False])
        .select(BY_NAME)
    )


def answer_lengths(profile: Answers) -> pl.DataFrame:
    """How long kernels are: how many, and how much of their time, by ranges of lengths."""
    return kernel_lengths(length_sums(profile.of(kernel_executions)))


def answer(profile: Answers, below: int = SHORT) -> pl.DataFrame:
    """The kernels of which some are shorter than ``below`` ns (10 µs), by name; the most first."""
    return short_kernels(profile.of(kernel_executions), below)


QUESTION = (
    Question(
        answer=answer_lengths,
        frames=(
            Frame(
                "kernel_lengths()",
                "one row per range of lengths, from the shortest that kernels have to the longest",
                columns(
                    "at_least below calls calls_share calls_running total share",
                    """
                    at_least: ns: shortest length in this row
                    below: ns: lengths in this row are less than this; null if there is no bound
                    calls_share: fraction: calls / all kernel executions
                    calls_running: fraction: sum of calls_share over this row and all rows above it
                    """,
                ),
            ),
        ),
        merged=Sums(
            table="kernel_lengths",
            of=lambda profile: length_sums(profile.of(kernel_executions)),
            added=added_lengths,
            finished=lambda sums, _: kernel_lengths(sums),
        ),
        reports=(
            Report(
                name="kernel_lengths",
                title="Lengths of kernels",
                empty="no kernels in this profile: no GPU was used, or kernels were not captured",
                forms=FORMS,
                gpu_only=True,
                lean=True,
            ),
        ),
    ),
    Question(
        answer=answer,
        frames=(
            Frame(
                "short_kernels()",
                "one row per name of kernels of which some are shorter than 10 µs, the most first",
                columns(
                    "name op ops calls short short_share short_time total share mean median",
                    """
                    op: text: the op that most of the short executions belong to
                    ops: count: ops that the short executions belong to
                    short: count: executions that are shorter than the given length
                    short_share: fraction: short / calls
                    short_time: ns: durations of the short executions added up
                    share: fraction: short_time / the time of all kernels
                    """,
                ),
            ),
        ),
        parameters={"below": parameters.duration("a kernel that takes less time is short")},
        merged=lacking.MEDIANS,
        reports=(
            Report(
                name="short_kernels",
                title="Short kernels (less than {below})",
                empty="no kernel took less than {below}, or none was captured",
                shown="name op short calls short_share short_time share mean",
                forms=FORMS,
                sums="calls total short short_time",
                gpu_only=True,
                lean=True,
            ),
        ),
    ),
)
