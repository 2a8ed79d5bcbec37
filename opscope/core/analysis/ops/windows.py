"""The windows in which kernels were captured: the device time of ops outside them is null, not 0.

In a long training, kernels are only captured in a window. Totals of kernels cover this window. An op that is
outside, or only partly inside, has a device time of null; such a step is left out of the device's statistics.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.tables.columns import pieces
from opscope.core.tables.impossible import FAR
from opscope.core.tables.intervals import Ints, merge, union_length
from opscope.core.tables.other_unit import AT_ONCE_SAID, AT_ZERO_SAID
from opscope.core.tables.trace import Trace

_ENDS: Final = (pl.col("start").min(), pl.col("end").max())
#: Reasons why an op has no device time.
OUTSIDE_WINDOW: Final = "kernels not captured in this window"
NOT_CAPTURED: Final = "kernels were not captured"


def captured(trace: Trace, rows: Ints) -> NDArray[np.bool_] | None:
    """Return whether each range row is inside a window of its process; None if the whole run was captured."""
    if trace["windows"].is_empty():
        return None
    return inside(trace, trace["ranges"][rows].select("process", "start", "end"))


def inside(trace: Trace, frame: pl.DataFrame) -> NDArray[np.bool_]:
    """Return whether each row (``process``, ``start``, ``end``) is inside a window of its process."""
    is_inside = np.ones(len(frame), bool)
    process = frame["process"].fill_null(-1).to_numpy()
    start, end = (frame[name].fill_null(0).to_numpy() for name in ("start", "end"))
    for (number,), part in trace["windows"].group_by("process"):
        here = process == number
        # parts of one process may touch: merge them, since a row may span two
        low, high = merge(part["start"].to_numpy(), part["end"].to_numpy())
        at_most = np.searchsorted(low, start[here], side="right") - 1
        has_window = at_most >= 0
        window = np.maximum(at_most, 0)
        is_inside[here] = has_window & (end[here] <= high[window]) if len(low) else False
    return is_inside


def captured_steps(trace: Trace, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the step ranges that are inside a window of their process."""
    if trace["windows"].is_empty():
        return steps
    return steps.filter(pl.Series(inside(trace, steps), dtype=pl.Boolean))


def bounds(trace: Trace) -> pl.DataFrame:
    """Return the first start and the last end (ns) of each process's events, on host and device, in order
    of process; on the host only, if the device has no times or its times are an hour away, on another
    clock."""
    said = trace["notes"]["what"].cast(pl.String)
    host = _bounds_in(trace, ("ranges", "calls"))
    parts = [host]
    for name in ("kernels", "memops"):
        if said.str.contains(f"{name} ({AT_ZERO_SAID}|{AT_ONCE_SAID})").any():
            continue
        device = _bounds_in(trace, (name,))
        both = host.join(device, on="process", suffix="_there", nulls_equal=True)
        away = pl.max_horizontal(
            pl.col("start_there") - pl.col("end"), pl.col("start") - pl.col("end_there")
        )
        apart = both.filter(away >= FAR)
        parts.append(device.join(apart, on="process", how="anti", nulls_equal=True))
    return pl.concat(parts).group_by("process").agg(*_ENDS).sort("process")


def between(each: pl.DataFrame) -> int | None:
    """Return the time (ns) from the first to the last of ``bounds``; None if there are none, or if
    everything began and ended at one time."""
    first: Any = each["start"].min()
    last: Any = each["end"].max()
    return int(last - first) or None if len(each) else None


def _bounds_in(trace: Trace, names: tuple[str, ...]) -> pl.DataFrame:
    parts = []
    for name in names:
        table_of_spans = trace[name].select("process", "start", "end")
        for part in pieces(len(table_of_spans)):
            table = table_of_spans[part]
            process = table["process"]
            alike = len(table) > 0 and not process.null_count() and process.min() == process.max()
            # most traces are of one process: a minimum is many times faster than a group of a million
            parts.append(
                table.select(pl.col("process").first(), *_ENDS)
                if alike
                else table.group_by("process").agg(*_ENDS)
            )
    return pl.concat(parts).group_by("process").agg(*_ENDS)


def captured_time(trace: Trace) -> int | None:
    """Return how long (ns) the device was captured in any process; None if all of it was captured."""
    windows = trace["windows"].filter(pl.col("source").is_not_null())
    if windows.is_empty():
        return None
    return union_length(windows["start"].to_numpy(), windows["end"].to_numpy())


def reasons(trace: Trace, device: pl.Series, seen: NDArray[np.bool_] | None) -> pl.Series:
    """Return why each device time of ``device`` is null; null if it is not."""
    windowed = seen is not None and (trace.has("kernels") or not trace.used_gpu)
    why = pl.Series([OUTSIDE_WINDOW if windowed else NOT_CAPTURED], dtype=pl.String)
    every: pl.Series = why.new_from_index(0, len(device)).set(device.is_not_null(), None)
    return every.alias("reason")


def event_bounds(profile: Answers) -> pl.DataFrame:
    """The first start and the last end (ns) of each process's events."""
    return bounds(profile.trace)
