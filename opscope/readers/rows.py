"""Make frames of the rows of a stranger's file: what a column cannot hold, or what says nothing, is null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

Note = tuple[str, str, int]
#: Bytes of CSV whose lines are looked at one by one: that takes three times the file's size of memory.
_MOST_CHECKED: Final = 512 << 20
#: What is told of the lines that ``csv_rows`` leaves out.
UNEVEN: Final = "lines of {} with fewer or more fields than its header were left out"


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


def csv_rows(
    source: Path | bytes, separator: str = ",", skip: int = 0, encoding: Any = "utf8"
) -> tuple[pl.DataFrame, int]:
    """Return the rows of CSV as texts, and how many lines were left out.

    A line with fewer or more fields than the header has its values in the wrong columns: a name with an
    unquoted comma moves a start of 10^15 ns into the end. Empty fields at its end do not count, and if most
    lines are uneven, the tool writes them so. Raises what Polars raises.
    """

    def rows(data: Path | bytes, ragged: bool) -> pl.DataFrame:
        return pl.read_csv(
            data,
            separator=separator,
            skip_lines=skip if data is source else 0,
            infer_schema=False,
            truncate_ragged_lines=ragged,
            encoding=encoding,
        )

    try:
        frame = rows(source, ragged=False)
        if not frame.width or not frame[frame.columns[-1]].null_count():
            return frame, 0
    except pl.exceptions.ComputeError:  # a line is too long
        frame = rows(source, ragged=True)
    if (source.stat().st_size if isinstance(source, Path) else len(source)) > _MOST_CHECKED:
        return frame, 0
    text = source.read_bytes() if isinstance(source, Path) else source
    lines = pl.Series(text.decode("utf-8", "replace").splitlines()[skip:], dtype=pl.String)
    if (
        lines.str.count_matches('"', literal=True) % 2 == 1
    ).any():  # a field has ends of lines in it
        return frame, 0
    plain = lines.str.replace_all('"[^"]*"', "q")
    bare = plain.str.strip_chars_end(f" {separator}")
    fields = bare.str.count_matches(separator, literal=True)
    given = plain.str.count_matches(separator, literal=True)
    need = int(fields[0])
    even = (fields <= need) & (given >= need) | (bare == "")
    uneven = int((~even).sum())
    if not uneven or 2 * uneven > len(lines):
        return frame, 0
    return rows("\n".join(lines.filter(even)).encode(), ragged=True), uneven
