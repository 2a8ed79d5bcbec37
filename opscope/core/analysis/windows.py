"""When what ran on a device was captured: ops outside such a window have no device time, not none.

A long training's kernels are captured for a window of it. Totals of kernels are the window's; an op
that lies outside, or only partly inside, has a device time of null; a step that does is in no statistics
of the device.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.tables.intervals import Ints, merge, union_length
from opscope.core.tables.trace import Trace

#: Why an op has no device time.
OUTSIDE_WINDOW: Final = "kernels not captured in this window"
NOT_CAPTURED: Final = "kernels were not captured"


def captured(trace: Trace, rows: Ints) -> NDArray[np.bool_] | None:
    """Whether each of the range rows lies in a window of its process; None where all was captured."""
    if trace["windows"].is_empty():
        return None
    return inside(trace, trace["ranges"][rows].select("process", "start", "end"))


def inside(trace: Trace, frame: pl.DataFrame) -> NDArray[np.bool_]:
    """Whether each row (``process``, ``start``, ``end``) lies in a window of its process."""
    found = np.ones(len(frame), bool)
    process = frame["process"].fill_null(-1).to_numpy()
    start, end = (frame[name].fill_null(0).to_numpy() for name in ("start", "end"))
    for (number,), part in trace["windows"].group_by("process"):
        here = process == number
        # parts of one process may touch; what spans two of them lies in both
        low, high = merge(part["start"].to_numpy(), part["end"].to_numpy())
        at_most = np.searchsorted(low, start[here], side="right") - 1
        known = at_most >= 0
        place = np.maximum(at_most, 0)
        found[here] = known & (end[here] <= high[place]) if len(low) else False
    return found


def captured_steps(trace: Trace, steps: pl.DataFrame) -> pl.DataFrame:
    """Those of the step ranges that lie in a window of their process."""
    if trace["windows"].is_empty():
        return steps
    return steps.filter(pl.Series(inside(trace, steps), dtype=pl.Boolean))


def captured_time(trace: Trace) -> int | None:
    """How long (ns) the device was captured in any process; None where throughout."""
    windows = trace["windows"].filter(pl.col("source").is_not_null())
    if windows.is_empty():
        return None
    return union_length(windows["start"].to_numpy(), windows["end"].to_numpy())


def reasons(trace: Trace, device: pl.Series, seen: NDArray[np.bool_] | None) -> pl.Series:
    """Why each of the device times ``device`` is null; null where it is not."""
    windowed = seen is not None and (trace.has("kernels") or not trace.used_gpu)
    why = pl.Series([OUTSIDE_WINDOW if windowed else NOT_CAPTURED], dtype=pl.String)
    every: pl.Series = why.new_from_index(0, len(device)).set(device.is_not_null(), None)
    return every.alias("reason")
