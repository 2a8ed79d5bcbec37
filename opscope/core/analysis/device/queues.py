"""The queue of each stream: the work that the host has launched and the device has not yet started.

The length goes up by one when a launch call begins and down by one when its work starts, as in Holistic Trace
Analysis. A stream holds 1,024 launches; when it is full, the next call blocks until one starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.device_work import DeviceWork, work_on_devices
from opscope.core.analysis.device.launch_delays import Launches, launches_of
from opscope.core.analysis.device.thinned import POINTS, thinned
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import Ints

#: Launches that a stream can hold.
FULL: Final = 1_024
NO_LAUNCHES: Final = "no launch record: when its work was launched is not known"
SOME_LAUNCHES: Final = "some launches are not recorded; the queue was at least this long"
_SCHEMA: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "stream": pl.Int64,
    "launches": pl.Int64,
    "median_queue": pl.Int64,
    "p90_queue": pl.Int64,
    "longest_queue": pl.Int64,
    "empty_share": pl.Float64,
    "full_time": pl.Int64,
    "stalled_launches": pl.Int64,
    "stalled_time": pl.Int64,
    "reason": pl.String,
}
_CURVE: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "stream": pl.Int64,
    "time": pl.Int64,
    "queued": pl.Int64,
}


@dataclass(frozen=True, slots=True)
class Queue:
    """The length of one stream's queue: ``length`` holds from ``time`` (ns) to the next."""

    time: Ints
    length: Ints

    def above(self, least: int) -> tuple[Ints, Ints]:
        """Return the times (ns) in which the length is at least ``least``, as disjoint spans in order."""
        over = self.length[:-1] >= least
        return self.time[:-1][over], self.time[1:][over]


def queue_of(launches: Launches, rows: Ints) -> Queue:
    """Return the queue of the launches ``rows`` of one stream; a launch that starts at once does not wait."""
    rows = rows[launches.start[rows] > launches.called[rows]]
    time = np.concatenate((launches.start[rows], launches.called[rows]))
    order = np.argsort(time, kind="stable")  # at equal times, starting work leaves the queue first
    change = np.repeat(np.array([-1, 1], np.int64), len(rows))[order]
    time = time[order]
    last = np.append(time[1:] != time[:-1], True) if len(time) else np.empty(0, bool)
    return Queue(time[last], np.cumsum(change)[last])


def queues(work: DeviceWork, full: int = FULL) -> pl.DataFrame:
    """Return one row per process, device and stream: process, device, stream, launches,
    median_queue, p90_queue (by time), longest_queue, empty_share, full_time (ns), stalled_launches,
    stalled_time (ns), reason.

    Shares are over the time from the first launch to the last start. ``full_time`` is the time
    with at least ``full`` launches in the queue. A launch stalls while the queue holds more than that:
    ``stalled_time`` is the part of the launch calls in such times. All are null for a stream without launch
    records; if only some are missing, the figures are lower bounds.
    """
    launches = launches_of(work, work.stream)
    missing = np.bincount(work.stream[work.call < 0], minlength=len(work.streams))
    of = _by_lane(launches, len(work.streams))
    rows: list[dict[str, Any]] = []
    for lane, (process, device, stream) in enumerate(work.streams.rows()):
        key = {"process": process, "device": device, "stream": stream}
        mine = of[lane]
        if not len(mine):
            rows.append({**key, "reason": work.unlinked or NO_LAUNCHES})
            continue
        reason = (work.unlinked or SOME_LAUNCHES) if missing[lane] else None
        rows.append(
            {**key, "launches": len(mine), **_figures(launches, mine, full), "reason": reason}
        )
    return pl.DataFrame(rows, schema=_SCHEMA)


def _figures(launches: Launches, rows: Ints, full: int) -> dict[str, Any]:
    queue = queue_of(launches, rows)
    if not len(queue.time):  # all began at the same time
        return dict.fromkeys(("longest_queue", "full_time", "stalled_launches", "stalled_time"), 0)
    times = np.diff(queue.time)
    length = queue.length[:-1]
    total = int(times.sum())
    order = np.argsort(length, kind="stable")
    reached = np.cumsum(times[order])
    middle, high = (
        int(length[order[np.searchsorted(reached, part * total, side="left")]])
        for part in (0.5, 0.9)
    )
    stalled = _overlap(*queue.above(full + 1), launches.called[rows], launches.returned[rows])
    return {
        "median_queue": middle,
        "p90_queue": high,
        "longest_queue": int(queue.length.max()),
        "empty_share": float(times[length == 0].sum() / total),
        "full_time": int(times[length >= full].sum()),
        "stalled_launches": int((stalled > 0).sum()),
        "stalled_time": int(stalled.sum()),
    }


def _overlap(low: Ints, high: Ints, start: Ints, end: Ints) -> Ints:
    """Return how much (ns) of each [start, end) lies in the disjoint spans [low, high), in order."""
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(high - low)))

    def until(time: Ints) -> Ints:
        index = np.searchsorted(low, time, side="right")
        cut = np.where(index > 0, np.maximum(at(high, index - 1, 0) - time, 0), 0)
        found: Ints = total[index] - cut
        return found

    return until(end) - until(start)


def queue_curve(work: DeviceWork, most: int = POINTS) -> pl.DataFrame:
    """Return the length of each stream's queue over time: process, device, stream, time (ns), queued.

    A value holds until the next row of its stream. If a stream has more than ``most`` changes, points are
    left out, but the maxima and minima are kept. Streams without launch records have no rows.
    """
    launches = launches_of(work, work.stream)
    of = _by_lane(launches, len(work.streams))
    parts = [pl.DataFrame(schema=_CURVE)]
    for lane, key in enumerate(work.streams.rows(named=True)):
        queue = queue_of(launches, of[lane])
        keep = thinned(queue.time, queue.length, most)
        parts.append(
            pl.DataFrame({"time": queue.time[keep], "queued": queue.length[keep]})
            .with_columns(pl.lit(value, _CURVE[name]).alias(name) for name, value in key.items())
            .select(*_CURVE)
        )
    return pl.concat(parts)


def _by_lane(launches: Launches, count: int) -> list[Ints]:
    order = np.argsort(launches.lane, kind="stable")
    edges = np.searchsorted(launches.lane[order], np.arange(count + 1))
    return [order[edges[lane] : edges[lane + 1]] for lane in range(count)]


def answer(profile: Answers) -> pl.DataFrame:
    """How many launches wait on each stream, and how long calls stalled because it was full.

    A stream holds 1,024 launches.
    """
    return queues(profile.of(work_on_devices))


def answer_curve(profile: Answers) -> pl.DataFrame:
    """How many launches wait on each stream over time, at most 4,000 points a stream.

    The points that are left out lie between those that stay: maxima and minima are kept.
    """
    return queue_curve(profile.of(work_on_devices))


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "queue()",
                "one row per process, device and stream",
                columns(
                    "process device stream launches median_queue p90_queue longest_queue "
                    "empty_share full_time stalled_launches stalled_time reason",
                    """
                    median_queue: count: length that the queue did not exceed in half of the time
                    p90_queue: count: length that the queue did not exceed in 90 % of the time
                    longest_queue: count: greatest length of the queue
                    empty_share: fraction: part of the time in which the queue was empty
                    full_time: ns: time in which the queue held at least 1,024 launches
                    stalled_launches: count: launch calls during which the queue held more than 1,024
                        launches
                    stalled_time: ns: part of launch calls in which the queue held more than 1,024
                        launches
                    reason: text: what is not known, and why; null if all is known
                    """,
                ),
            ),
        ),
        merged=lacking.MOMENTS,
        reports=(
            Report(
                name="queue",
                title="Launch queues",
                empty="no kernels in this profile: no GPU was used, or kernels were not captured",
                shown=(
                    "process device stream launches median_queue p90_queue longest_queue empty_share "
                    "full_time stalled_launches stalled_time reason"
                ),
                sums="",
                gpu_only=True,
                aliases=("queue_length",),
            ),
        ),
    ),
    Question(
        answer=answer_curve,
        frames=(
            Frame(
                "queue_curve()",
                "one row per process, device, stream and time at which the queue's length changed",
                columns(
                    "process device stream time queued",
                    """
                    time: ns: time from which this length holds, until the stream's next row
                    queued: count: launches that wait from this time on
                    """,
                ),
            ),
        ),
        merged=lacking.MOMENTS,
        reports=(
            Report(
                name="queue_curve",
                title="Launch queues over time",
                empty="no launch records: no GPU was used, or launches were not captured",
                shown="process device stream time queued",
                sums="",
                written=False,
                gpu_only=True,
            ),
        ),
    ),
)
