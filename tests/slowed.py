"""Copies of a profile in which some kernels take longer, and all that follows comes later."""

from __future__ import annotations

import numpy as np
import polars as pl

from opscope.core.tables.intervals import merge
from opscope.core.tables.trace import Trace
from opscope.profile import Profile

#: Columns that are points in time.
TIMES = ("start", "end", "time")


def slowed(profile: Profile, rows: np.ndarray, factor: float) -> Profile:
    """Return the profile with the kernels ``rows`` ``factor`` times as long; what was open meanwhile grows
    with them, what comes later is moved."""
    kernels = profile.trace["kernels"]
    start, end = merge(*(kernels[name].gather(rows).to_numpy() for name in ("start", "end")))
    later = np.round(np.cumsum((end - start) * (factor - 1))).astype(np.int64)
    at = np.stack((start, end), 1).reshape(-1)
    by = np.stack((np.concatenate(([0], later[:-1])), later), 1).reshape(-1)

    def moved(times: pl.Series) -> pl.Series:
        now = times.to_numpy()
        return pl.Series(times.name, now + np.round(np.interp(now, at, by)).astype(np.int64))

    tables = {}
    for name, table in profile.trace.tables.items():
        columns = [one for one in TIMES if one in table.columns and not table[one].null_count()]
        timed = len(table) and name in ("ranges", "calls", "kernels", "memops", "syncs", "windows")
        tables[name] = table.with_columns(moved(table[c]) for c in columns) if timed else table
    return Profile(Trace.of(tables, origin=dict(profile.trace.origin)))
