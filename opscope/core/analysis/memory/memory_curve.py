"""The curve of memory: in use and reserved over time by device, in few points that keep every peak."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.memory.memory_blocks import ordered, unused_bytes
from opscope.core.question import lacking, parameters, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column, Table
from opscope.core.question.record import Question, Report, View
from opscope.core.question.tables import listed
from opscope.core.question.words import columns
from opscope.core.tables.intervals import Ints
from opscope.core.tables.trace import Trace

_PLACE: Final = ("process", "device")
CURVE: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "time": pl.Int64,
    "in_use": pl.Int64,
    "reserved": pl.Int64,
    "unused": pl.Int64,
}
#: The events kept of each span of time: the first and last, the least and the most in use, the most reserved,
#: and the most reserved but unused.
_KEPT: Final = 6


def memory_curve(trace: Trace, points: int = 1200) -> pl.DataFrame:
    """Return at most ``points`` rows per process and device, by time (ns): bytes in use and reserved then.

    ``unused``: the reserved bytes that are not in use; null if the source does not record reservations. A
    device with more events has its time divided into equal spans, and of each span these events are kept: the
    first and the last, the least and the most in use, the most reserved, the most unused. So no peak is lost,
    and a line drawn in as many columns as there are spans is the line of all events (the M4 aggregation of
    Jugel et al., PVLDB 7(10), 2014). Raises ValueError if ``points`` is less than 6.
    """
    if points < _KEPT:
        raise ValueError(f"points must be at least {_KEPT}, not {points}")
    events = ordered(trace).with_columns(unused_bytes().alias("unused"))
    parts = [
        device if len(device) <= points else device[np.sort(_choose(device, points // _KEPT))]
        for device in events.partition_by(_PLACE, maintain_order=True)
    ]
    if not parts:
        return pl.DataFrame(schema=CURVE)
    return (
        pl.concat(parts)
        .select(*_PLACE, "time", pl.col("total").alias("in_use"), "reserved", "unused")
        .cast(CURVE)  # type: ignore[arg-type]
        .select(*CURVE)
    )


def _choose(events: pl.DataFrame, spans: int) -> Ints:
    """Return the places of the events to keep, given those of one device in order."""
    time = events["time"].to_numpy()
    low, length = int(time[0]), max(int(time[-1]) - int(time[0]), 1)
    # doubles are precise enough to number spans; 2⁶³ ns times the number of spans would not fit
    span = np.minimum(((time - low) / length * spans).astype(np.int64), spans - 1)
    first = np.flatnonzero(np.concatenate(([True], span[1:] != span[:-1])))
    last = np.concatenate((first[1:], [len(span)])) - 1
    chosen = [first, last]
    total = events["total"].to_numpy()
    for values in (total, -total, *_known(events)):
        # the largest of each span first; of equal ones the earliest, because the sort is stable
        order = np.lexsort((-values, span))
        chosen.append(order[first])
    return np.unique(np.concatenate(chosen))


def _known(events: pl.DataFrame) -> list[Any]:
    names = [name for name in ("reserved", "unused") if events[name].null_count() < len(events)]
    return [events[name].fill_null(np.iinfo(np.int64).min + 1).to_numpy() for name in names]


def answer(profile: Answers, points: int = 1200) -> pl.DataFrame:
    """Memory in use and reserved over time, at most ``points`` rows a device; no peak is left out.

    The largest ``in_use`` of a device is its peak in ``memory()``. Raises ValueError if ``points`` is
    less than 6.
    """
    return memory_curve(profile.trace, points)


#: The fewest points that keep the peak.
_FEWEST = 6


def memory_curve_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the curve in as few points as the table has rows, with times since the first change."""
    devices = len(profile.memory())
    if view.top is None or not devices:
        frame = report.frame(profile)
    else:
        frame = profile.memory_curve(points=max(view.top // devices, _FEWEST))
    table = listed(
        report, frame.with_columns(pl.col("time") - pl.col("time").min()), replace(view, top=None)
    )
    if not devices:
        return table
    notes = ["times are since the first change of memory; every device's peak is among its points"]
    return replace(table, footnotes=[*table.footnotes, *notes])


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "memory_curve()",
            "one row per process, device and point of time",
            columns(
                "process device time in_use reserved unused",
                """
                time: ns: time of the change
                in_use: bytes: memory in use after the change
                reserved: bytes: device memory that the allocator had reserved then
                unused: bytes: memory reserved by the allocator and not in use: reserved - in_use
                """,
            ),
        ),
    ),
    parameters={"points": parameters.count("the most rows of a device", least=6)},
    merged=lacking.MOMENTS,
    reports=(
        Report(
            name="memory_curve",
            title="Memory over time",
            empty="memory was not recorded (opscope run --memory records it)",
            shown="process device time in_use reserved unused",
            forms=[Column("in_use", "in use", units.size)],
            table=memory_curve_table,
            sums="",
            written=False,
        ),
    ),
)
