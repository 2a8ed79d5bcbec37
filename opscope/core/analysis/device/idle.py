"""Idle time of devices and streams, by what the next kernel waited for: the host, its launch, or other work.

The kinds are those of Holistic Trace Analysis. A gap is *host wait* if the launch of the work after it began
after the work before it had ended: the host was late. Otherwise it is *kernel wait* if it is shorter than 30
µs, the time that it takes to start a kernel. Otherwise it is *other*: the kernel was queued, and waited for
an event, another stream or a resource. A gap is also *other* if the device recorded that the stream waited
for most of it. Without a launch record the kind is *unknown*.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.device_work import DeviceWork, work_on_devices
from opscope.core.analysis.steps.step_times import covered
from opscope.core.question import parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report, Rows
from opscope.core.question.words import columns
from opscope.core.tables.intervals import NONE, Ints

#: A gap before a queued kernel that is shorter than this (ns) is the time it takes to start a kernel (HTA's
#: default).
KERNEL_WAIT: Final = 30_000
#: The kinds of gaps, by number.
KINDS: Final = ("host_wait", "kernel_wait", "other_wait", "unknown_wait")
HOST, KERNEL, OTHER, UNKNOWN = range(4)
NO_LAUNCHES: Final = "the trace records no launches, so what the device waited for is not known"
SOME_LAUNCHES: Final = "some launches are not recorded: their gaps are of no known kind"
By = Literal["device", "stream"]
_SCHEMA: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "stream": pl.Int64,
    "window": pl.Int64,
    "busy_time": pl.Int64,
    "idle_time": pl.Int64,
    "idle_share": pl.Float64,
    **dict.fromkeys(KINDS, pl.Int64),
    "idle_gaps": pl.Int64,
    "longest_gap": pl.Int64,
    "reason": pl.String,
}


@dataclass(frozen=True, slots=True)
class Gaps:
    """The times in which a device (or stream) ran nothing, between two pieces of work; by lane and start.

    ``lane``: row of ``work.devices`` or ``work.streams``. ``start``, ``end`` (ns). ``kind``: place in KINDS.
    ``after``: the row of ``work`` that ends the gap. ``low``, ``high`` (ns): first start and last end of the
    work in each captured window, and ``of`` its lane.
    """

    lane: NDArray[np.int32]
    start: Ints
    end: Ints
    kind: NDArray[np.uint8]
    after: Ints
    of: NDArray[np.int32]
    low: Ints
    high: Ints


def gaps_between(work: DeviceWork, by: By = "device", least: int = KERNEL_WAIT) -> Gaps:
    """Return the gaps of each device or stream; a gap of ``least`` ns or more before a queued kernel is
    *other*.

    None if it is not known what ran when (``work.untimed``).
    """
    parts: list[tuple[Ints, Ints, Ints, int]] = []
    stretches: list[tuple[int, int, int]] = []
    number = work.device if by == "device" else work.stream
    for lane, rows in work.lanes(number if work.timed else number[:0]):
        part = work.part[rows]
        for begin, after in _runs(part):
            here = rows[begin:after]
            reach = np.maximum.accumulate(work.end[here])
            start = work.start[here]
            idle = np.flatnonzero(start[1:] > reach[:-1])
            parts.append((reach[idle], start[idle + 1], here[idle + 1], lane))
            stretches.append((lane, int(start[0]), int(reach[-1])))
    empty = np.empty(0, np.int64)
    start = np.concatenate([part[0] for part in parts] or [empty])
    end = np.concatenate([part[1] for part in parts] or [empty])
    ends_it = np.concatenate([part[2] for part in parts] or [empty])
    lanes = np.repeat([part[3] for part in parts], [len(part[0]) for part in parts]).astype(
        np.int32
    )
    of, low, high = (
        np.array([stretch[side] for stretch in stretches], np.int64) for side in range(3)
    )
    kind = _kinds(work, start, end, ends_it, least)
    return Gaps(lanes, start, end, kind, ends_it, of.astype(np.int32), low, high)


def _runs(values: NDArray[np.int32]) -> list[tuple[int, int]]:
    """Return begin and end of each run of equal values."""
    edges = [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)]
    return [(begin, end) for begin, end in pairwise(edges) if end > begin]


def _kinds(work: DeviceWork, start: Ints, end: Ints, after: Ints, least: int) -> NDArray[np.uint8]:
    is_linked = work.call[after] >= 0
    late = work.called[after] > start
    kind = np.where(late, HOST, np.where(end - start < least, KERNEL, OTHER))
    for stream, waits in work.waits.items():
        mine = np.flatnonzero(work.stream[after] == stream)
        held_up = 2 * covered(waits, start[mine], end[mine]) > end[mine] - start[mine]
        kind[mine[held_up]] = OTHER
    return np.where(is_linked, kind, UNKNOWN).astype(np.uint8)


def idle(work: DeviceWork, by: By = "device", least: int = KERNEL_WAIT) -> pl.DataFrame:
    """Return one row per process and device, or per stream: process, device, stream (null for a device),
    window, busy_time, idle_time, idle_share, host_wait, kernel_wait, other_wait, unknown_wait (ns),
    idle_gaps, longest_gap (ns), reason.

    ``window`` is from the first start to the last end; with several captured windows, their sum.
    busy_time + idle_time = window, and the four kinds add up to idle_time. Without any launch record the
    kinds but ``unknown_wait`` are null; ``reason`` says what is not known.
    """
    gaps = gaps_between(work, by, least)
    names = work.devices if by == "device" else work.streams
    count = len(names)
    length = gaps.end - gaps.start
    kinds = _sums(gaps.lane.astype(np.int64) * len(KINDS) + gaps.kind, length, count * len(KINDS))
    kinds = kinds.reshape(count, len(KINDS))
    window, idle_time = _sums(gaps.of, gaps.high - gaps.low, count), kinds.sum(1)
    longest = np.zeros(count, np.int64)
    np.maximum.at(longest, gaps.lane, length)
    frame = names.with_columns(
        *([pl.lit(None, pl.Int64).alias("stream")] if by == "device" else []),
        pl.Series("window", window),
        pl.Series("busy_time", window - idle_time),
        pl.Series("idle_time", idle_time),
        *(pl.Series(name, kinds[:, index]) for index, name in enumerate(KINDS)),
        pl.Series("idle_gaps", np.bincount(gaps.lane, minlength=count).astype(np.int64)),
        pl.Series("longest_gap", longest),
        (pl.Series("idle_share", idle_time) / pl.Series("window", window)).fill_nan(None),
    )
    frame = reasoned(frame, work.with_calls, work.unlinked)
    if not work.timed:
        known = {"process", "device", "stream"}
        frame = frame.with_columns(
            pl.lit(None).alias(name) for name in _SCHEMA if name not in known
        ).with_columns(pl.lit(work.untimed).alias("reason"))
    return frame.select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items())


def _sums(group: NDArray[np.integer], length: Ints, count: int) -> Ints:
    """Return the sum of the lengths (ns) of each place; exact, unlike ``bincount``, which adds
    floating-point numbers."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, group, length)
    return sums


def reasoned(frame: pl.DataFrame, with_calls: bool, unlinked: str | None = None) -> pl.DataFrame:
    """Return the frame with ``reason``; without launches in the trace, the known kinds are null, not 0.

    ``unlinked``: why the launches in the trace cannot be used.
    """
    if not with_calls:
        nothing = (pl.lit(None, pl.Int64).alias(name) for name in KINDS[:UNKNOWN])
        return frame.with_columns(*nothing, pl.lit(unlinked or NO_LAUNCHES).alias("reason"))
    some = pl.when(pl.col("unknown_wait") > 0).then(pl.lit(unlinked or SOME_LAUNCHES))
    return frame.with_columns(some.alias("reason"))


def host_gaps(gaps: Gaps) -> Ints:
    """Return the gaps in which the device waited for the host."""
    return np.flatnonzero(gaps.kind == HOST)


__all__ = ["HOST", "KERNEL_WAIT", "KINDS", "NONE", "Gaps", "gaps_between", "host_gaps", "idle"]


def answer(profile: Answers, by: By = "device", *, kernel_wait: int = KERNEL_WAIT) -> pl.DataFrame:
    """Idle time of each ``device``, or of each ``stream``, by what the next work waited for.

    A gap is *host wait* if the launch of what ends it came after the work before it had ended; else
    *kernel wait* if it is shorter than ``kernel_wait`` ns; else *other*. Busy and idle time add up
    to the window, and the kinds to the idle time. Empty without work on a GPU.
    """
    return idle(profile.of(work_on_devices), by, kernel_wait)


#: Words of this question alone: unit and meaning.
_WORDS: Final = """
idle_gaps: count: times in which nothing ran
longest_gap: ns: longest time in which nothing ran
"""


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "idle()",
            "one row per process and device",
            columns(
                "process device stream window busy_time idle_time idle_share host_wait "
                "kernel_wait other_wait unknown_wait idle_gaps longest_gap reason",
                _WORDS,
                """
                stream: number: null: the device as a whole
                window: ns: from the first start to the last end; of several captured windows, their sum
                reason: text: what is not known, and why; null if all is known
                """,
            ),
        ),
        Frame(
            'idle("stream")',
            "one row per process, device and stream",
            columns(
                "process device stream window busy_time idle_time idle_share host_wait "
                "kernel_wait other_wait unknown_wait idle_gaps longest_gap reason",
                _WORDS,
                """
                window: ns: from the first start to the last end; of several captured windows, their sum
                reason: text: what is not known, and why; null if all is known
                """,
            ),
        ),
    ),
    parameters={
        "by": parameters.choice("what a row is", get_args(By)),
        "kernel_wait": parameters.duration("a shorter gap is kernel wait"),
    },
    merged=(
        Rows({"by": "device"}),
        Rows({"by": "stream"}),
    ),
    reports=(
        Report(
            name="idle",
            title="Idle time by device",
            empty="no kernels in this profile: no GPU was used, or kernels were not captured",
            shown=(
                "process device window busy_time idle_share idle_time host_wait kernel_wait "
                "other_wait unknown_wait idle_gaps longest_gap reason"
            ),
            gpu_only=True,
            aliases=("idle_time",),
        ),
        Report(
            name="idle_stream",
            title="Idle time by stream",
            empty="no kernels in this profile: no GPU was used, or kernels were not captured",
            asked={"by": "stream"},
            shown=(
                "process device stream window busy_time idle_share idle_time host_wait "
                "kernel_wait other_wait unknown_wait idle_gaps longest_gap reason"
            ),
            gpu_only=True,
        ),
    ),
)
