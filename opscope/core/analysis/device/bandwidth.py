"""The bandwidth of copies and sets, by kind: as a summary, and over time."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.thinned import POINTS, thinned
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import known_sum
from opscope.core.tables.intervals import Ints, union_length

NO_BYTES: Final = "the trace does not record how many bytes were moved"
SOME_BYTES: Final = "some copies have no recorded bytes; they are in no rate"
NO_TIME: Final = "the copies took less time than the clock resolves"
_SCHEMA: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "kind": pl.String,
    "src_kind": pl.String,
    "dst_kind": pl.String,
    "calls": pl.Int64,
    "bytes": pl.Int64,
    "total": pl.Int64,
    "busy_time": pl.Int64,
    "mean_bandwidth": pl.Float64,
    "least_bandwidth": pl.Float64,
    "median_bandwidth": pl.Float64,
    "most_bandwidth": pl.Float64,
    "reason": pl.String,
}
_CURVE: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "kind": pl.String,
    "time": pl.Int64,
    "moving_bandwidth": pl.Float64,
}
_BY: Final = ("process", "device", "kind", "src_kind", "dst_kind")


def bandwidth(memops: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process, device, kind of copy and kinds of memory, by time: process, device, kind,
    src_kind, dst_kind, calls, bytes, total, busy_time (ns), mean_bandwidth, least_bandwidth,
    median_bandwidth, most_bandwidth (bytes/s), reason.

    ``memops`` is the trace's table. ``mean_bandwidth`` is the bytes over the time of the copies whose bytes
    are known; the other bandwidths are of single copies. Copies without a duration have no bandwidth of their
    own. All bandwidths are null where no bytes are recorded.
    """
    length = pl.col("end") - pl.col("start")
    is_sized = pl.col("bytes").is_not_null()
    rate = pl.col("bytes").filter(length > 0) / length.filter(length > 0) * 1e9
    timed = length.filter(is_sized).sum()
    frame = (
        memops.with_columns(pl.col("kind", "src_kind", "dst_kind").cast(pl.String))
        .group_by(_BY, maintain_order=True)
        .agg(
            pl.len().alias("calls"),
            known_sum("bytes"),
            length.sum().alias("total"),
            pl.struct("start", "end")
            .map_batches(_union, return_dtype=pl.Int64, returns_scalar=True)
            .alias("busy_time"),
            pl.when(is_sized.any() & (timed > 0))
            .then(pl.col("bytes").sum() / timed * 1e9)
            .alias("mean_bandwidth"),
            rate.min().alias("least_bandwidth"),
            rate.median().alias("median_bandwidth"),
            rate.max().alias("most_bandwidth"),
            pl.when(~is_sized.any())
            .then(pl.lit(NO_BYTES))
            .when(~is_sized.all())
            .then(pl.lit(SOME_BYTES))
            .when(timed == 0)
            .then(pl.lit(NO_TIME))
            .alias("reason"),
        )
    )
    return frame.select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items()).sort(
        "total", *_BY, descending=[True, *[False] * len(_BY)], nulls_last=True
    )


def _union(rows: pl.Series) -> int:
    frame = rows.struct.unnest()
    return union_length(frame["start"].to_numpy(), frame["end"].to_numpy())


def bandwidth_curve(memops: pl.DataFrame, most: int = POINTS) -> pl.DataFrame:
    """Return the bandwidth of each process, device and kind of copy over time: process, device, kind, time
    (ns), moving_bandwidth (bytes/s, of all copies of the kind that run then, added up).

    A value holds until the next row of its kind. If a kind has more than ``most`` changes, points are left
    out, but the extremes are kept. Copies without bytes or without a length are left out.
    """
    sized = memops.filter(pl.col("bytes").is_not_null() & (pl.col("end") > pl.col("start")))
    parts = []
    for (process, device, kind), rows in sized.with_columns(
        pl.col("kind").cast(pl.String)
    ).group_by("process", "device", "kind", maintain_order=True):
        time, value = moving(*(rows[name].to_numpy() for name in ("start", "end", "bytes")))
        keep = thinned(time, value, most)
        key = {"process": process, "device": device, "kind": kind}
        parts.append(
            pl.DataFrame({"time": time[keep], "moving_bandwidth": value[keep]})
            .with_columns(pl.lit(value, _CURVE[name]).alias(name) for name, value in key.items())
            .select(*_CURVE)
        )
    curve = pl.concat(parts) if parts else pl.DataFrame(schema=_CURVE)
    return curve.sort("process", "device", "kind", "time", maintain_order=True, nulls_last=True)


def moving(start: Ints, end: Ints, size: Ints) -> tuple[Ints, NDArray[np.float64]]:
    """Return the times (ns) at which the sum of the rates (bytes/s) of running copies changes, and the sums.

    The sum is exactly 0 where no copy runs.
    """
    rate = size / (end - start) * 1e9
    time = np.concatenate((end, start))
    order = np.argsort(time, kind="stable")  # at equal times, ending copies are subtracted first
    change = np.concatenate((-rate, rate))[order]
    running = np.cumsum(np.repeat(np.array([-1, 1]), len(start))[order])
    value = np.cumsum(change)
    # sums restart where nothing runs, so that floating-point remainders of ended copies do not stay
    idle = np.where(running == 0, value, 0.0)
    since = np.maximum.accumulate(np.where(running == 0, np.arange(len(value)), -1))
    value = value - np.where(since >= 0, idle[since], 0.0)
    last = np.append(time[order][1:] != time[order][:-1], True) if len(time) else np.empty(0, bool)
    return time[order][last], np.maximum(value[last], 0.0)


def answer(profile: Answers) -> pl.DataFrame:
    """The bytes and the bandwidth of copies and sets, by direction and kind of memory."""
    return bandwidth(profile.trace["memops"])


def answer_curve(profile: Answers) -> pl.DataFrame:
    """The bandwidth of each kind of copy over time, at most 4,000 points a kind and device."""
    return bandwidth_curve(profile.trace["memops"])


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "bandwidth()",
                "one row per process, device, kind of copy and kinds of memory, by time",
                columns(
                    "process device kind src_kind dst_kind calls bytes total busy_time "
                    "mean_bandwidth least_bandwidth median_bandwidth most_bandwidth reason",
                    """
                    kind: text: direction of a copy: HtoD, DtoH, DtoD, HtoH, PtoP …; memset for a set
                    calls: count: copies or sets
                    bytes: bytes: bytes copied or set; null if none are recorded
                    busy_time: ns: time in which at least one of them ran
                    mean_bandwidth: bytes/s: bytes / time of the copies whose bytes are known
                    least_bandwidth: bytes/s: bandwidth of the slowest copy
                    most_bandwidth: bytes/s: bandwidth of the fastest copy
                    reason: text: what is not known, and why; null if all is known
                    """,
                ),
            ),
        ),
        merged=lacking.MEDIANS,
        reports=(
            Report(
                name="bandwidth",
                title="Bandwidth of copies and sets",
                empty="no copies or sets in this profile: none ran, or they were not captured",
                shown=(
                    "process device kind src_kind dst_kind calls bytes total mean_bandwidth "
                    "median_bandwidth most_bandwidth reason"
                ),
                gpu_only=True,
                aliases=("memory_bandwidth",),
            ),
        ),
    ),
    Question(
        answer=answer_curve,
        frames=(
            Frame(
                "bandwidth_curve()",
                "one row per process, device, kind of copy and time at which the bandwidth changed",
                columns(
                    "process device kind time moving_bandwidth",
                    """
                    kind: text: direction of a copy: HtoD, DtoH, DtoD, HtoH, PtoP …; memset for a set
                    time: ns: time from which this bandwidth holds, until the next row of the kind
                    moving_bandwidth: bytes/s: bandwidth of all copies of the kind that run from this time
                        on, added up
                    """,
                ),
            ),
        ),
        merged=lacking.MOMENTS,
        reports=(
            Report(
                name="bandwidth_curve",
                title="Bandwidth of copies and sets over time",
                empty="no copies or sets with known bytes in this profile",
                shown="process device kind time moving_bandwidth",
                written=False,
                gpu_only=True,
            ),
        ),
    ),
)
