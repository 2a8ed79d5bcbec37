"""How computation, communication and copies share the time of each device: alone, two at a time, and all
three at a time."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.device_work import (
    COMMUNICATION,
    COMPUTATION,
    COPY,
    DeviceWork,
    spans,
    work_on_devices,
)
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report, Rows
from opscope.core.question.words import columns
from opscope.core.tables.intervals import Ints

#: The kinds that run, as the sum of 1 << kind: 1 computation, 2 communication, 4 copies and sets.
RUNNING: Final = (
    "nothing",
    "computation",
    "communication",
    "computation and communication",
    "copies",
    "computation and copies",
    "communication and copies",
    "all three",
)
_SCHEMA: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "running_work": pl.String,
    "time": pl.Int64,
    "busy_share": pl.Float64,
    "reason": pl.String,
}


def overlaps(work: DeviceWork) -> pl.DataFrame:
    """Return seven rows per process and device: process, device, running_work, time (ns), busy_share,
    reason.

    Communication means the kernels of collectives, computation all other kernels, and copies means copies and
    sets. A row is the time in which exactly these kinds ran, so the rows of a device add up to its busy time.
    Overlapping work of one kind counts once.
    """
    parts = []
    for lane, rows in work.lanes(work.device):
        kind = work.kind[rows]
        unions = [
            spans(work, rows[kind == kind_number])
            for kind_number in (COMPUTATION, COMMUNICATION, COPY)
        ]
        time = by_running(unions)[1:]
        total = int(time.sum())
        process, device = work.devices.row(lane)
        parts.append(
            pl.DataFrame(
                {
                    "process": pl.Series([process] * len(time), dtype=pl.Int32),
                    "device": pl.Series([device] * len(time), dtype=pl.Int32),
                    "running_work": RUNNING[1:],
                    "time": time,
                    "busy_share": time / total if total else np.full(len(time), np.nan),
                }
            )
        )
    if not parts:
        return pl.DataFrame(schema=_SCHEMA)
    frame = pl.concat(parts).with_columns(
        pl.col("busy_share").fill_nan(None), pl.lit(None, pl.String).alias("reason")
    )
    if not work.timed:
        nothing = (pl.lit(None).alias(name) for name in ("time", "busy_share"))
        frame = frame.with_columns(*nothing, pl.lit(work.untimed).alias("reason"))
    return frame.select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items())


def by_running(unions: list[tuple[Ints, Ints]]) -> Ints:
    """Return, for each combination of unions (the sum of 1 << place), how long (ns) exactly these are
    open."""
    time = np.concatenate([edge for union in unions for edge in union])
    change = np.concatenate(
        [
            np.full(len(union[0]), sign << index)
            for index, union in enumerate(unions)
            for sign in (1, -1)
        ]
    )
    order = np.argsort(time, kind="stable")
    state = np.cumsum(change[order])[:-1]
    times = np.zeros(1 << len(unions), np.int64)
    np.add.at(times, state, np.diff(time[order]))
    return times


def answer(profile: Answers) -> pl.DataFrame:
    """The time in which computation, communication and copies ran alone, in pairs, and all three.

    The rows of a device add up to the time in which it was busy.
    """
    return overlaps(profile.of(work_on_devices))


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "overlap()",
            (
                "seven rows per process and device: computation, communication and copies alone, "
                "in pairs, all three"
            ),
            columns(
                "process device running_work time busy_share reason",
                """
                running_work: text: what ran, and nothing else: computation, communication, copies and
                    sets, or several
                time: ns: time in which exactly this ran
                busy_share: fraction: time / the device's busy time
                reason: text: what is not known, and why; null if all is known
                """,
            ),
        ),
    ),
    merged=(Rows(),),
    reports=(
        Report(
            name="overlap",
            title="Overlap of computation, communication and copies",
            empty="no kernels in this profile: no GPU was used, or kernels were not captured",
            shown="process device running_work time busy_share reason",
            sums="time",
            gpu_only=True,
        ),
    ),
)
