"""Make frames from the rows of a stranger's file: values that a column cannot hold, or that mean nothing,
become null."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from opscope.core.tables.columns import to_read

Note = tuple[str, str, int]
#: Bytes of CSV whose lines are checked one by one: that takes three times the file's size in memory.
_MOST_CHECKED: Final = 512 << 20
#: Most columns of CSV: rocprofiler-compute writes a thousand. Of 80,000, 2,000 lines took 1.7 GB.
MOST_COLUMNS: Final = 10_000
_LONGEST_HEADER: Final = 16 << 20
#: The note on lines that ``csv_rows`` leaves out.
UNEVEN: Final = "lines of {} with fewer or more fields than its header were left out"
#: The note on rows that ``once`` leaves out.
TWICE: Final = "rows that stand in the file again, equal in all columns: counted once"

#: Values that JSON does not have and many programs write.
_NO_NUMBER: Final = re.compile(rb"(?i)([:\[,]\s*)[-+]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])")


def decode(data: bytes | msgspec.Raw, kind: Any, strict: bool = True) -> Any:
    """Return the JSON ``data`` as ``kind``, as msgspec does; ``NaN`` and ``Infinity`` in it are null."""
    try:
        return msgspec.json.decode(data, type=kind, strict=strict)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        mended, count = _NO_NUMBER.subn(rb"\1null", bytes(data))
        if not count:
            raise
        return msgspec.json.decode(mended, type=kind, strict=strict)


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


def once(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return each distinct row of a table once, and how many rows that leaves out. This is for tables in
    which no two rows can be equal, such as totals by name."""
    kept = frame.unique(maintain_order=True)
    return kept, len(frame) - len(kept)


def is_appended(rows: pl.Series) -> bool:
    """Whether a file was appended to itself: the second half of its rows (their hashes) repeats the first."""
    half = len(rows) // 2
    return half > 2 and len(rows) == 2 * half and bool((rows[:half] == rows[half:]).all())


def of_successful(correlation: pl.Series, result: pl.Series) -> pl.Series:
    """Return the correlation ids of calls, null where ``result`` is an error: such a call launched nothing.

    CUDA's 600, "not ready", is not an error: a query of unfinished work returns it.
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


def _columns(source: Path | bytes, separator: str, skip: int) -> int:
    """Return how many columns the header of CSV has at most: commas in quoted names count too."""
    with source.open("rb") if isinstance(source, Path) else io.BytesIO(source) as lines:
        for _ in range(skip):
            lines.readline()
        header = lines.readline(_LONGEST_HEADER)
    return header.count(separator.encode()) + 1


def csv_rows(
    source: Path | bytes, separator: str = ",", skip: int = 0, encoding: Any = "utf8"
) -> tuple[pl.DataFrame, int]:
    """Return the rows of CSV as texts, and how many lines were left out.

    A line with fewer or more fields than the header has its values in the wrong columns: a name with an
    unquoted comma moves a start of 10^15 ns into the end. Empty fields at the end of a line do not count; and
    if most lines are uneven, the tool is taken to write lines in this way. Raises what Polars raises.
    """

    def rows(data: Path | bytes, ragged: bool) -> pl.DataFrame:
        frame = pl.read_csv(
            to_read(data) if isinstance(data, Path) else data,
            separator=separator,
            skip_lines=skip if data is source else 0,
            infer_schema=False,
            truncate_ragged_lines=ragged,
            encoding=encoding,
        )
        if frame.width > MOST_COLUMNS:  # a quote that is not closed joins lines to the header
            raise pl.exceptions.ComputeError(f"more than {MOST_COLUMNS:,} columns")
        return frame

    if _columns(source, separator, skip) > MOST_COLUMNS:
        raise pl.exceptions.ComputeError(f"more than {MOST_COLUMNS:,} columns")
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
