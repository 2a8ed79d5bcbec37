"""Find and add up the rows of a table: row numbers, never copies of the frame."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from .order import Rows
from .question import BadParameter

#: JavaScript's numbers are exact up to here; larger whole numbers are sent as text.
EXACT: Final = 2**53
#: Characters that a regular expression would treat specially.
_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")


@dataclass(frozen=True, slots=True)
class Found:
    """The matching rows in the requested order (None: all rows in their own order), and sums of some
    columns."""

    rows: Rows | None
    matching: int
    sums: Mapping[str, Any]

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return 512 + (0 if self.rows is None else self.rows.nbytes)


def containing(frame: pl.DataFrame, text: str, within: str = "") -> pl.Expr | None:
    """Return the condition that some text column contains ``text``, ignoring case; None if all rows match.
    ``within``: the only column to search."""
    if not text:
        return None
    pattern = "(?i)" + _SPECIAL.sub(r"\\\g<0>", text)
    texts = [
        name for name, dtype in frame.schema.items() if dtype == pl.String and within in ("", name)
    ]
    if not texts:
        return pl.lit(False)
    return pl.any_horizontal(pl.col(name).str.contains(pattern).fill_null(False) for name in texts)


def equal(frame: pl.DataFrame, where: Mapping[str, Any]) -> list[pl.Expr]:
    """Return the conditions that columns have these values. Raises BadParameter for another kind."""
    return [_equals(name, frame.schema[name], value) for name, value in where.items()]


def _equals(name: str, dtype: pl.DataType, value: Any) -> pl.Expr:
    column = pl.col(name)
    if value is None:
        return column.is_null()
    if dtype == pl.String and isinstance(value, str):
        return column == pl.lit(value)
    if dtype == pl.Boolean and isinstance(value, bool):
        return column == pl.lit(value)
    if dtype.is_integer() and isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value):
        value = int(value)  # larger values are sent as text
    if dtype.is_integer() and isinstance(value, int) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**63:
            return pl.lit(False)
        return column == pl.lit(value, pl.Int64)
    if dtype.is_float() and isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return column == pl.lit(float(value))
        except OverflowError:
            return pl.lit(False)
    raise BadParameter(f"where: {name} cannot be {value!r:.60}: its values are of another kind")


def find(
    frame: pl.DataFrame,
    conditions: Iterable[pl.Expr],
    sorted_by: Rows | None,
    summed: Iterable[str],
) -> Found:
    """Return the rows that satisfy all conditions, in the order ``sorted_by``."""
    wanted = list(conditions)
    summed = list(summed)
    if not wanted:
        return Found(sorted_by, len(frame), sums(frame, summed))
    mask = frame.select(pl.all_horizontal(wanted).alias("mask"))["mask"]
    if len(mask) != len(frame):  # all conditions are constants
        mask = pl.repeat(mask[0], len(frame), dtype=pl.Boolean, eager=True)
    flags = mask.fill_null(False).to_numpy()
    if sorted_by is None:
        rows = np.flatnonzero(flags).astype(np.uint32)
    else:
        rows = sorted_by[flags[sorted_by]]
    part = frame.select(summed).filter(mask) if summed else frame.clear()
    return Found(rows, len(rows), sums(part, summed))


def sums(frame: pl.DataFrame, columns: Iterable[str]) -> dict[str, Any]:
    """Return the sum of each column; null where no row has a value."""
    sums_by_column: dict[str, Any] = {}
    for name in columns:
        column = frame[name]
        if column.null_count() == len(column):
            sums_by_column[name] = None
            continue
        # the sum of a stranger's numbers may exceed 64 bits
        wide = column.cast(pl.Int128) if column.dtype.is_integer() else column
        sums_by_column[name] = plain(wide.sum())
    return sums_by_column


def plain(value: Any) -> Any:
    """Return ``value`` as JSON and JavaScript can hold it exactly."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -EXACT <= value <= EXACT else str(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value if value is None or isinstance(value, (str, bool)) else str(value)


def values(column: pl.Series) -> list[Any]:
    """Return the values of a column as JSON can hold them."""
    dtype = column.dtype
    if dtype.is_nested():
        return [plain(item) for item in column.to_list()]
    if dtype.is_float():
        return column.set(~column.is_finite(), None).to_list()
    if dtype.is_integer():
        low, high = column.min(), column.max()
        items = column.to_list()
        if low is not None and (low < -EXACT or high > EXACT):  # type: ignore[operator]
            return [plain(item) for item in items]
        return items
    if dtype in (pl.String, pl.Boolean):
        return column.to_list()
    return [plain(item) for item in column.to_list()]
