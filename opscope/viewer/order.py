"""Sort a table by one column: row numbers, equal rows in their order, null last in both directions.

A value and its row are packed into 64 bits and sorted as one number, which NumPy does with the processor's
vector instructions: 100,000 numbers take 1 ms, where Polars takes 5 to 8; names that repeat take 3, not 25.
"""

from __future__ import annotations

from typing import Final, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

Rows = NDArray[np.uint32]
_Keys = NDArray[np.uint64]

_SIGN: Final = np.uint64(1 << 63)
#: If at most this part of the rows has distinct texts, the distinct texts are numbered, and rows are sorted
#: by these numbers.
_DISTINCT: Final = 0.25
#: Rows at which the distinct texts are counted, to see whether they repeat.
_LOOKED_AT: Final = 4_096


def order(frame: pl.DataFrame, column: str, descending: bool) -> Rows:
    """Return the row numbers by the values of ``column``; NaN counts as null, as a page shows neither."""
    values = frame[column]
    if values.dtype.is_float():
        values = values.fill_nan(None)
    keys = _keys(values.drop_nulls())
    if keys is None:
        ranked = values.to_frame().select(
            pl.arg_sort_by(column, descending=descending, nulls_last=True, maintain_order=True)
        )
        return cast("Rows", ranked.to_series().cast(pl.UInt32).to_numpy())
    by = _sort(~keys if descending else keys)
    if not values.null_count():
        return by
    has_value = values.is_not_null().to_numpy()
    rows: Rows = np.concatenate(
        (
            np.flatnonzero(has_value).astype(np.uint32)[by],
            np.flatnonzero(~has_value).astype(np.uint32),
        )
    )
    return rows


def _keys(values: pl.Series) -> _Keys | None:
    """Return a number for each value, larger for larger values; None if Polars must sort."""
    dtype = values.dtype
    if dtype == pl.Boolean:
        return _numbers(values.cast(pl.UInt64))
    if dtype.is_float():
        bits = (values.cast(pl.Float64).to_numpy() + 0.0).view(np.uint64)  # -0.0 is 0.0
        return cast("_Keys", np.where(bits & _SIGN, ~bits, bits | _SIGN))
    if dtype in (pl.Int8, pl.Int16, pl.Int32, pl.Int64):
        return cast("_Keys", values.cast(pl.Int64).to_numpy().view(np.uint64) ^ _SIGN)
    if dtype in (pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64):
        return _numbers(values.cast(pl.UInt64))
    return _texts(values) if dtype == pl.String else None


def _numbers(values: pl.Series) -> _Keys:
    return cast("_Keys", values.to_numpy())


def _texts(values: pl.Series) -> _Keys | None:
    """Return each text's place among the distinct ones, if they repeat."""
    if values.head(_LOOKED_AT).n_unique() > _DISTINCT * min(len(values), _LOOKED_AT):
        return None
    distinct = values.unique()
    if len(distinct) > _DISTINCT * len(values):
        return None
    return _numbers(values.cast(pl.Enum(distinct.sort())).to_physical().cast(pl.UInt64))


def _sort(keys: _Keys) -> Rows:
    """Return the row numbers sorted by ``keys``; rows with equal keys keep their order."""
    count = len(keys)
    if not count:
        return np.zeros(0, np.uint32)
    keys = keys - keys.min()
    bits = max(1, (count - 1).bit_length())
    lost = max(0, int(keys.max()).bit_length() + bits - 64)
    packed = ((keys >> np.uint64(lost)) << np.uint64(bits)) | np.arange(count, dtype=np.uint64)
    packed.sort()
    rows: Rows = (packed & np.uint64((1 << bits) - 1)).astype(np.uint32)
    if lost:
        _repair(rows, keys, packed >> np.uint64(bits))
    return rows


def _repair(rows: Rows, keys: _Keys, high: _Keys) -> None:
    """Sort, in place, rows whose keys agree in the packed bits but differ in the bits that were cut off."""
    same = high[1:] == high[:-1]
    if not (same & (keys[rows[1:]] < keys[rows[:-1]])).any():
        return
    within = np.zeros(len(rows), bool)
    within[1:] |= same
    within[:-1] |= same
    at = np.flatnonzero(within)
    some = rows[at]
    rows[at] = some[np.lexsort((some, keys[some]))]
