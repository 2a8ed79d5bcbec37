"""Remove duplicate records of a trace, and note records that only look like duplicates.

Joined files, events appended twice, or table rows written twice would double all times. Records with a
correlation id that are equal in every column are duplicates. Rows without such an id may be equal by chance
(times in whole microseconds); they are removed only if at least half of a table's rows are repeated, or if
all rows of several small tables are, as in a short trace that was written twice. A stream never runs two
kernels of one name with equal start and end: for these, equal ids are not needed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from polars import selectors as cs

from .trace import Trace

#: Tables whose rows take time or memory, with the column that holds their time.
_TIMED: Final = {
    "kernels": "start",
    "memops": "start",
    "calls": "start",
    "syncs": "start",
    "ranges": "start",
    "allocations": "time",
}
#: Columns that readers number themselves.
_NUMBER: Final = "id"
#: Number of equal rows from which a note is made. In the ranges of two real traces, 12 of 40,794 and 14 of
#: 25,545 are equal.
_SOME: Final = 10
_SHARE: Final = 100
#: A trace that was written again has each kernel at most this often.
_COPIES: Final = 4
#: How the notes on repeated records end, those of readers included.
COUNTED: Final = ": counted (once|each)$"
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


def without_doubles(trace: Trace) -> Trace:
    """Return the trace with each record once; notes say what was removed, and what only looks repeated."""
    changed = {}
    repeated = {name: _again(trace[name], column) for name, column in _TIMED.items()}
    doubles = {name: again for name, again in repeated.items() if again is not None}
    wholly = [name for name, again in doubles.items() if _is_wholly(trace[name], again)]
    for name, again in doubles.items():
        table = trace[name]
        if "correlation" in table.columns:
            identified = again & table["correlation"].is_not_null()
        else:
            identified = again & ~again
        alike = int((again & ~identified).sum())
        half = 2 * int(again.sum()) >= len(table) - int(again.sum())
        small = name in wholly and (len(wholly) > 1 or int(again.sum()) > 2)
        if small or (half and alike + int(identified.sum()) >= _SOME):
            identified, alike = again, 0
        count = int(identified.sum())
        if count:
            changed[name] = table.filter(~identified)
            trace.note(
                "warning",
                f"{name} that the trace holds again, equal in all columns: counted once",
                count,
            )
        if alike >= _SOME and alike * _SHARE >= len(table):
            note = f"{name} that look like another in all columns, and have no id that tells: counted each"
            trace.note("warning", note, alike)
    return _once_a_stream(trace.replace(**changed) if changed else trace)


def _once_a_stream(trace: Trace) -> Trace:
    """Return the trace with each kernel of a stream once, even if it is repeated under another id: keep the
    one whose launch is recorded, else the first."""
    kernels = trace["kernels"]
    own = pl.col("stream").is_not_null() & pl.col("graph_node").is_null()
    begun = kernels["start"]
    if len(kernels) < _SOME or (np.diff(begun.to_numpy()) > 0).all():
        return trace
    key = ["process", "device", "context", "stream", "name", "start", "end"]
    linked = pl.col("correlation").is_in(trace["calls"]["correlation"].unique().implode())
    timed = own & (pl.col("end") > pl.col("start")) & pl.col("correlation").is_not_null()
    rows = kernels.select(*key, "correlation", "graph_node").with_row_index("row")
    rows = rows.filter(timed & pl.Series(begun.is_duplicated()))
    if len(rows) < max(_SOME, len(kernels) / _SHARE):
        return trace
    rows = rows.filter(pl.len().over(key) <= _COPIES)  # if more share a time, it is not real
    kept = rows.sort(linked.not_(), maintain_order=True).unique(key, keep="first")
    again = np.setdiff1d(rows["row"].to_numpy(), kept["row"].to_numpy())
    if len(again) < max(_SOME, len(kernels) / _SHARE):
        return trace
    note = "kernels that a stream runs again at the same time, under other ids: counted once"
    trace.note("warning", note, len(again))
    return trace.replace(kernels=kernels[np.setdiff1d(np.arange(len(kernels)), again)])


def _is_wholly(table: pl.DataFrame, again: pl.Series) -> bool:
    """Whether every row of a small table is there at least twice."""
    if len(table) > 4 * _SOME or 2 * int(again.sum()) < len(table):
        return False
    return (
        not table.drop(_NUMBER, strict=False).select(pl.struct(pl.all()).is_unique().any()).item()
    )


def _again(table: pl.DataFrame, column: str) -> pl.Series | None:
    """Return for each row whether it equals an earlier row in all columns; None if no row does.

    Only rows whose numbers have the same sum as another row are compared: the sums of three million ranges
    that begin in whole microseconds take 0.3 s, comparing all rows would take 3 s.
    """
    times = table[column]
    if len(times) < 2 or times.null_count():
        return None
    steps = np.diff(times.to_numpy())
    rows = np.arange(len(table))
    if (steps >= 0).all():  # equal rows have equal times, so they are adjacent
        same = np.concatenate(([False], steps == 0, [False]))
        rows = np.flatnonzero(same[1:] | same[:-1])
        table = table[rows]
    numbers = table.drop(_NUMBER, strict=False).select(cs.integer())
    sums = np.zeros(len(rows), np.uint64)
    for values in numbers.iter_columns():
        sums *= _ODD
        sums += values.fill_null(-1).cast(pl.Int64).to_numpy().view(np.uint64)
    ordered = np.sort(sums)
    shared = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(shared):
        return None
    alike = np.flatnonzero(np.isin(sums, np.unique(shared)))
    part = table[alike].drop(_NUMBER, strict=False)
    first = part.select(pl.struct(pl.all()).is_first_distinct()).to_series().to_numpy()
    if first.all():
        return None
    again = np.zeros(len(times), bool)
    again[rows[alike[~first]]] = True
    return pl.Series(again)
