"""The cost of launching: the calls, the wait of the work after them, and kernels shorter than their launch.

A call that launches a CUDA graph starts many kernels. It counts as one launch, whose work begins with the
first kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.device_work import COPY, DeviceWork, work_on_devices
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import at, gather, pairs
from opscope.core.tables.intervals import Ints

#: What a call launched.
WHAT: Final = ("kernel", "copy", "set", "CUDA graph")
GRAPH: Final = 3
#: The measures of launches, in order.
MEASURES: Final = ("launch call", "delay", "queued", "execution")
_SCHEMA: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "kind": pl.String,
    "measure": pl.String,
    "launches": pl.Int64,
    **dict.fromkeys(("min", "mean", "median", "p90", "p95", "p99", "max"), pl.Float64),
    "total": pl.Int64,
}
_SHORT: Final = {
    "name": pl.String,
    "op": pl.String,
    "launches": pl.Int64,
    "short_launches": pl.Int64,
    "shorter_share": pl.Float64,
    "total": pl.Int64,
    "shorter_time": pl.Int64,
    "launching_time": pl.Int64,
}


@dataclass(frozen=True, slots=True)
class Launches:
    """One entry per call that launched something and per stream or device that it launched on.

    ``lane``: row of ``work.devices`` or ``work.streams``. ``call``: row of ``calls``; ``called``,
    ``returned``: its begin and end (ns); ``start``: when its first work started (ns). ``work``: the row of
    this work in the device work. ``busy``: the sum of the durations of its work (ns); ``many``: the number of
    pieces of work.
    """

    lane: NDArray[np.int32]
    call: NDArray[np.int32]
    called: Ints
    returned: Ints
    start: Ints
    work: Ints
    busy: Ints
    many: Ints


def launches_of(work: DeviceWork, lane: NDArray[np.int32]) -> Launches:
    """Return the launches on each lane (``work.device`` or ``work.stream``); work without a launch is left
    out."""
    rows = np.flatnonzero(work.call >= 0)
    if len(rows) and np.bincount(work.call[rows]).max() == 1:  # usually there is nothing to group
        return Launches(
            lane[rows], work.call[rows], work.called[rows], work.returned[rows], work.start[rows],
            rows, (work.end - work.start)[rows], np.ones(len(rows), np.int64),
        )  # fmt: skip
    _, _, number = pairs(lane[rows], work.call[rows])
    order = np.argsort(number, kind="stable")  # of one launch, the first to start comes first
    begin = np.flatnonzero(np.append(True, number[order][1:] != number[order][:-1]))
    if not len(rows):
        begin = begin[:0]
    head = rows[order[begin]]
    length = (work.end - work.start)[rows[order]]
    counts = np.diff(np.append(begin, len(rows)))
    busy = np.add.reduceat(length, begin) if len(begin) else length
    return Launches(
        lane[head], work.call[head], work.called[head], work.returned[head], work.start[head],
        head, busy, counts,
    )  # fmt: skip


def launch_statistics(work: DeviceWork, memops: pl.DataFrame) -> pl.DataFrame:
    """Return four rows per process, device and kind of work, one per measure: process, device, kind, measure,
    launches, min, mean, median, p90, p95, p99, max, total (ns). ``memops`` is the trace's table.

    Measures: *launch call*, the call on the host; *delay*, from the call's begin to the start of its work;
    *queued*, from the call's end to that start, 0 if the work started before the call returned;
    *execution*, the durations of the call's work. Percentiles are interpolated linearly.
    """
    launches = launches_of(work, work.device)
    kind = _what(work, launches, memops)
    device, of, number = pairs(launches.lane, kind)
    values = (
        launches.returned - launches.called,
        launches.start - launches.called,
        np.maximum(launches.start - launches.returned, 0),
        launches.busy,
    )
    rows: list[dict[str, Any]] = []
    for index, (lane, kind_number) in enumerate(zip(device.tolist(), of.tolist(), strict=True)):
        process, on = work.devices.row(lane)
        here = np.flatnonzero(number == index)
        for measure, value in zip(MEASURES, values, strict=True):
            mine = value[here]
            middle = np.percentile(mine, (50, 90, 95, 99))
            names = ("median", "p90", "p95", "p99")
            rows.append(
                {
                    "process": process,
                    "device": on,
                    "kind": WHAT[kind_number],
                    "measure": measure,
                    "launches": len(mine),
                    "min": float(mine.min()),
                    "mean": float(mine.mean()),
                    **dict(zip(names, middle.tolist(), strict=True)),
                    "max": float(mine.max()),
                    "total": int(mine.sum()),
                }
            )
    return pl.DataFrame(rows, schema=_SCHEMA)


def _what(work: DeviceWork, launches: Launches, memops: pl.DataFrame) -> NDArray[np.uint8]:
    """Return the kind of work (a place in WHAT) of each launch."""
    kind = work.kind[launches.work]
    copies = np.flatnonzero(kind == COPY)
    sets = (memops["kind"].cast(pl.String) == "memset").fill_null(False).to_numpy()
    kinds = np.zeros(len(kind), np.uint8)
    kinds[copies] = np.where(sets[work.row[launches.work[copies]]], 2, 1)
    kinds[launches.many > 1] = GRAPH
    return kinds


def short_launches(ops: Ops, work: DeviceWork) -> pl.DataFrame:
    """Return one row per kernel that at least once ran shorter than its launch call, ordered by the time of
    those calls: name, op, launches, short_launches, shorter_share, total, shorter_time, launching_time (ns).

    ``total`` covers all launches of the kernel, ``shorter_time`` the short ones, and ``launching_time`` their
    calls. ``op`` is the op that the kernel most often belongs to. Calls that launch a CUDA graph are left
    out: one call launches all its kernels.
    """
    attribution = ops.attribution
    launches = launches_of(work, work.device)
    alone = np.flatnonzero((launches.many == 1) & (work.kind[launches.work] != COPY))
    row = work.row[launches.work[alone]]
    call = (launches.returned - launches.called)[alone]
    busy = launches.busy[alone]
    short = busy < call
    reading = at(attribution.meaning.reading, attribution.kernels.op[row])
    frame = pl.DataFrame(
        {
            "name": attribution.trace["kernels"]["name"].gather(row),
            "op": gather(ops.readings["op"], reading),
            "short": short,
            "busy": busy,
            "short_busy": np.where(short, busy, 0),
            "short_call": np.where(short, call, 0),
        }
    )
    by_op = frame.group_by("name", "op").agg(
        pl.len().alias("launches"),
        pl.col("short").sum().alias("short_launches"),
        pl.col("busy", "short_busy", "short_call").sum(),
    )
    return (
        by_op.with_columns(pl.col("name", "op").cast(pl.String))
        .sort("launches", "op", descending=[True, False], nulls_last=True)
        .group_by("name", maintain_order=True)
        .agg(
            pl.col("op").first(),
            pl.col("launches", "short_launches").sum(),
            pl.col("busy").sum().alias("total"),
            pl.col("short_busy").sum().alias("shorter_time"),
            pl.col("short_call").sum().alias("launching_time"),
        )
        .filter(pl.col("short_launches") > 0)
        .with_columns((pl.col("short_launches") / pl.col("launches")).alias("shorter_share"))
        .sort("launching_time", "name", descending=[True, False])
        .select(pl.col(name).cast(dtype) for name, dtype in _SHORT.items())
    )


def answer(profile: Answers) -> pl.DataFrame:
    """How long launch calls take, and how long after them the work starts, with percentiles.

    A call that launches a CUDA graph is one launch.
    """
    return launch_statistics(profile.of(work_on_devices), profile.trace["memops"])


def answer_short(profile: Answers) -> pl.DataFrame:
    """The kernels that ran shorter than the call that launched them, by the time of those calls."""
    return short_launches(profile.of(op_index), profile.of(work_on_devices))


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "launches()",
                "one row per process, device, kind of work and measure",
                columns(
                    "process device kind measure launches min mean median p90 p95 p99 max total",
                    """
                    kind: text: what was launched: kernel, copy, set or CUDA graph
                    measure: text: launch call: the call on the host; delay: from its begin to the start
                        of the work; queued: from its end to that start, 0 if that is earlier; execution:
                        the work on the device
                    min: ns: the shortest
                    mean: ns: their mean
                    median: ns: their median
                    p90: ns: 90th percentile, interpolated linearly
                    p95: ns: 95th percentile, interpolated linearly
                    p99: ns: 99th percentile, interpolated linearly
                    max: ns: the longest
                    total: ns: all added up
                    """,
                ),
            ),
        ),
        merged=lacking.MEDIANS,
        reports=(
            Report(
                name="launches",
                title="Launches",
                empty=(
                    "no usable launch records: no GPU was used, launches were not captured, or kernels begin "
                    "before them, as clocks differ"
                ),
                shown="process device kind measure launches mean median p90 p99 max total",
                gpu_only=True,
            ),
        ),
    ),
    Question(
        answer=answer_short,
        frames=(
            Frame(
                "short_launches()",
                (
                    "one row per kernel that ran shorter than a call that launched it, by the time of "
                    "those calls"
                ),
                columns(
                    "name op launches short_launches shorter_share total shorter_time "
                    "launching_time",
                    """
                    op: text: the op that the kernel most often belongs to
                    short_launches: count: launches whose kernel ran shorter than the call
                    shorter_share: fraction: short_launches / launches
                    total: ns: durations of all its launches' kernels
                    shorter_time: ns: durations of the short launches' kernels
                    launching_time: ns: time of the calls of the short launches
                    """,
                ),
            ),
        ),
        merged=lacking.MEDIANS,
        reports=(
            Report(
                name="short_launches",
                title="Kernels shorter than their launch",
                empty=(
                    "none: every kernel ran longer than its launch, or launches were not captured, or "
                    "kernels begin before them"
                ),
                shown=("launching_time shorter_time short_launches shorter_share launches name op"),
                gpu_only=True,
            ),
        ),
    ),
)
