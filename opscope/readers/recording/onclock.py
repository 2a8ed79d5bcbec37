"""Move tables from one clock to another."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.tables.clockfit import ClockFit
from opscope.core.tables.trace import Trace

_TIMES: Final[tuple[str, ...]] = ("start", "time")


def to_unix(trace: Trace) -> int:
    """Return what to add to the trace's times to get Unix ns; 0 if the trace does not say."""
    offsets = trace["clocks"]["to_unix_ns"].drop_nulls()
    return int(offsets[0]) if len(offsets) else 0


def moved(frame: pl.DataFrame, clock: ClockFit) -> pl.DataFrame:
    """Return the frame with starts and instants moved by ``clock``; an end moves with its start."""
    times = [name for name in _TIMES if name in frame.columns]
    columns: dict[str, pl.Series] = {
        name: pl.Series(name, clock.apply(frame[name].to_numpy())) for name in times
    }
    if "end" in frame.columns:
        columns["end"] = (columns["start"] + (frame["end"] - frame["start"])).alias("end")
    return frame.with_columns(columns.values())
