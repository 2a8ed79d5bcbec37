"""Make frames of the rows of a stranger's file: what a column cannot hold, or what says nothing, is null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

Note = tuple[str, str, int]


def frame_of(
    rows: Iterable[Mapping[str, object]],
    schema: Mapping[str, Any],
    notes: list[Note] | None = None,
    table: str = "",
) -> pl.DataFrame:
    """Return the rows as a frame with the columns of ``schema``; a value that a row lacks is null.

    A value that does not fit its column (an integer beyond its width, an infinite number, a text in place of
    a number) becomes null, and is counted in ``notes`` by column, as ``readers.sound`` does. Polars's own
    constructor fails on such a row, also with ``strict=False``.
    """
    listed = list(rows)
    columns = []
    for name, dtype in schema.items():
        values = [row.get(name) for row in listed]
        column = _column(name, values, dtype)
        lost = column.null_count() - values.count(None)
        if lost > 0 and notes is not None:
            notes.append(("warning", f"values of {table}.{name} out of range, read as null", lost))
        columns.append(column)
    return pl.DataFrame(columns)


def of_successful(correlation: pl.Series, result: pl.Series) -> pl.Series:
    """Return the correlation ids of calls, null where ``result`` is an error: such a call launched nothing.

    CUDA's 600, "not ready", is what a query of unfinished work returns, and no error.
    """
    failed = (result != 0) & (result != 600)
    return correlation.set(failed, None) if failed.any() else correlation


def _column(name: str, values: Sequence[object], dtype: Any) -> pl.Series:
    try:
        return pl.Series(name, values, dtype)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        kept = [value if _is_a(value, dtype) else None for value in values]
        return pl.Series(name, kept, dtype, strict=False)


def _is_a(value: object, dtype: Any) -> bool:
    if dtype.is_numeric():
        return type(value) in (int, float)
    return isinstance(value, (str, bool, int, float))
