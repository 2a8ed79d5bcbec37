"""Idle time of each device in each step, by the cause of the wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.device_work import NOT_TIMED, DeviceWork, spans, work_on_devices
from opscope.core.analysis.device.idle import (
    HOST,
    KERNEL_WAIT,
    KINDS,
    UNKNOWN,
    gaps_between,
    reasoned,
)
from opscope.core.analysis.ops.windows import captured_steps
from opscope.core.analysis.summary.summary import ended_steps
from opscope.core.attribution.attribute import Attribution
from opscope.core.question import parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report, Rows
from opscope.core.question.words import columns
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import Ints

_SCHEMA: Final = {
    "step": pl.Int64,
    "process": pl.Int32,
    "device": pl.Int32,
    "time": pl.Int64,
    "busy_time": pl.Int64,
    "idle_time": pl.Int64,
    "idle_share": pl.Float64,
    **dict.fromkeys(KINDS, pl.Int64),
    "reason": pl.String,
}


def idle_steps(
    attribution: Attribution, work: DeviceWork, least: int = KERNEL_WAIT
) -> pl.DataFrame:
    """Return one row per step, process and device: step, process, device, time, busy_time, idle_time (ns),
    idle_share, host_wait, kernel_wait, other_wait, unknown_wait (ns), reason.

    busy_time + idle_time = time, the step's length on the host; the kinds add up to idle_time. If a gap is
    only partly inside a step, that part counts. The time before the device's first work is treated as a gap
    that begins with the step; the time after its last work is host wait, because the host launched nothing
    more.
    """
    steps = numbered_steps(attribution) if work.untimed != NOT_TIMED else pl.DataFrame()
    if steps.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    if work.untimed is not None:
        return _unknown(steps, work)
    gaps = gaps_between(work, "device", least)
    parts = []
    for lane, rows in work.lanes(work.device):
        process, device = work.devices.row(lane)
        mine = steps.filter(pl.col("process").eq_missing(pl.lit(process, pl.Int32)))
        if mine.is_empty() or not len(rows):
            continue
        first, last = mine["start"].to_numpy(), mine["end"].to_numpy()
        busy = _inside(*spans(work, rows), first, last)
        here = np.flatnonzero(gaps.lane == lane)
        length: dict[int, Ints] = {}
        for number in range(len(KINDS)):
            of = here[gaps.kind[here] == number]
            length[number] = _inside(gaps.start[of], gaps.end[of], first, last)
        for number, start, end in _edges(work, rows, gaps.low[gaps.of == lane], first, last, least):
            length[number] = length[number] + np.maximum(end - start, 0)
        # between two captured windows nothing is known
        length[UNKNOWN] = length[UNKNOWN] + (last - first) - busy - sum(length.values())
        parts.append(
            mine.select(
                "step",
                "process",
                pl.lit(device, pl.Int32).alias("device"),
                (pl.col("end") - pl.col("start")).alias("time"),
                pl.Series("busy_time", busy),
                pl.Series("idle_time", last - first - busy),
                *(pl.Series(KINDS[number], value) for number, value in length.items()),
            )
        )
    if not parts:
        return pl.DataFrame(schema=_SCHEMA)
    share = (pl.col("idle_time") / pl.col("time")).fill_nan(None).alias("idle_share")
    frame = reasoned(pl.concat(parts), work.with_calls, work.unlinked).with_columns(share)
    return frame.select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items()).sort(
        "process", "device", "step", maintain_order=True
    )


def _unknown(steps: pl.DataFrame, work: DeviceWork) -> pl.DataFrame:
    """Return the rows of steps for which it is unknown when the device was idle."""
    frame = steps.join(
        work.devices, on="process", how="inner", nulls_equal=True, maintain_order="left"
    )
    frame = frame.select(
        *("step", "process", "device"),
        (pl.col("end") - pl.col("start")).alias("time"),
        pl.lit(work.untimed).alias("reason"),
    )
    columns = (
        pl.col(name).cast(kind) if name in frame.columns else pl.lit(None, kind).alias(name)
        for name, kind in _SCHEMA.items()
    )
    return frame.select(*columns).sort("process", "device", "step", maintain_order=True)


def _edges(
    work: DeviceWork, rows: Ints, low: Ints, first: Ints, last: Ints, least: int
) -> Iterator[tuple[int, Ints, Ints]]:
    """Yield kind, start and end (ns) of each step's time before the first work and after the last."""
    begin, end = int(work.start[rows[0]]), int(work.end[rows].max())
    row = rows[0]
    before = np.minimum(begin, last)
    is_linked, late = work.call[row] >= 0, work.called[row] > first
    short = begin - first < least
    for number, chosen in enumerate(
        (
            is_linked & late,
            is_linked & ~late & short,
            is_linked & ~late & ~short,
            np.full(len(first), not is_linked),
        )
    ):
        yield number, np.where(chosen, first, before), before
    yield (HOST if work.with_calls else UNKNOWN), np.maximum(end, first), last


def _inside(start: Ints, end: Ints, first: Ints, last: Ints) -> Ints:
    """Return how much (ns) of disjoint, ordered intervals lies in each [first, last)."""
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(end - start)))

    def until(time: Ints) -> Ints:
        index = np.searchsorted(start, time, side="right")
        over = at(end, index - 1, 0) - time
        found: Ints = total[index] - np.where(index > 0, np.maximum(over, 0), 0)
        return found

    return until(last) - until(first)


def numbered_steps(attribution: Attribution) -> pl.DataFrame:
    """Return step, process, start and end (ns) of each captured step that has a number."""
    trace, meaning = attribution.trace, attribution.meaning
    ranges = trace["ranges"].with_row_index("_row")
    steps = captured_steps(trace, ended_steps(ranges))
    numbers = [meaning.readings[code].step for code in meaning.reading[steps["_row"].to_numpy()]]
    return steps.select(
        pl.Series("step", numbers, dtype=pl.Int64), "process", "start", "end"
    ).filter(pl.col("step").is_not_null() & (pl.col("end") > pl.col("start")))


def answer(profile: Answers, *, kernel_wait: int = KERNEL_WAIT) -> pl.DataFrame:
    """Idle time of each device in each step, by what the next work waited for.

    Busy and idle time of the device add up to the step's time on the host; a gap counts with its part
    inside the step.
    """
    return idle_steps(profile.attribution, profile.of(work_on_devices), kernel_wait)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "idle_steps()",
            "one row per step, process and device",
            columns(
                "step process device time busy_time idle_time idle_share host_wait "
                "kernel_wait other_wait unknown_wait reason",
                """
                time: ns: the step's time on the host
                reason: text: what is not known, and why; null if all is known
                """,
            ),
        ),
    ),
    parameters={"kernel_wait": parameters.duration("a shorter gap is kernel wait")},
    merged=(Rows(),),
    reports=(
        Report(
            name="idle_steps",
            title="Idle time by step",
            empty="no steps with work on a GPU in this profile (mark steps with opscope.step)",
            shown=(
                "step process device time busy_time idle_share idle_time host_wait kernel_wait "
                "other_wait unknown_wait reason"
            ),
            gpu_only=True,
        ),
    ),
)
