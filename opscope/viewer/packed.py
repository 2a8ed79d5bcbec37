"""A table as bytes that the viewer's script reads: columns of small numbers, and each text once.

The layout is a 4-byte little-endian length, a header in JSON, and the columns' pieces one after another. The
header has ``rows`` and ``columns``; a column is stored as one of:

``none``    every value is unknown; no piece
``whole``   integers: ``least`` (as text) plus an unsigned number of ``size`` bytes; with ``step`` the numbers
            are what each value is above the one before, zigzag; with ``beside`` what it is above that
            column's in the same row, zigzag, and ``least`` is not used: times end soon after they start
``real``    floating point, 8 bytes
``words``   any values: ``of`` lists the distinct ones (texts in order of their code points, numbers in
            theirs); the piece has 0 for an unknown value, else a position in ``of`` plus 1, in ``size`` bytes
A ``whole`` or ``real`` column with unknown values (``nulls``) begins with one byte a row: 1 if it is known;
in its numbers an unknown value repeats the one before.
Numbers are stored byte plane by byte plane (all lowest bytes first): gzip then makes them three times
smaller.
"""

from __future__ import annotations

import json
import math
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Small tables are stored plainly: ways to make a column smaller are tried from this many rows on.
_TRIED: Final = 1_000
#: Integer columns before a column that it is tried beside.
_BEFORE: Final = 4
#: Floating-point numbers are stored as words if there are at most this many rows for each distinct one.
_REPEATED: Final = 4


def pack(frame: pl.DataFrame) -> bytes:
    """Return the table as bytes, the same for the same table. NaN and infinity become unknown."""
    columns, pieces = [], []
    before: dict[str, NDArray[Any]] = {}
    for column in frame:
        how, stored = _packed(column, before)
        columns.append({"name": column.name, **how})
        pieces += stored
    header = json.dumps(
        {"rows": frame.height, "columns": columns},
        ensure_ascii=False, allow_nan=False, separators=(",", ":"),
    ).encode("utf-8", "surrogatepass")  # fmt: skip
    return b"".join((len(header).to_bytes(4, "little"), header, *pieces))


def _packed(
    column: pl.Series, before: dict[str, NDArray[Any]]
) -> tuple[dict[str, Any], list[bytes]]:
    """Return how a column is stored, and its pieces; ``before``: the integers of columns before it."""
    dtype = column.dtype
    if dtype.is_float():
        column = column.cast(pl.Float64)
        column = pl.select(pl.when(column.is_finite()).then(column)).to_series()
    if column.null_count() == len(column):
        return {"as": "none"}, []
    if dtype.is_integer():
        return _whole(column, before)
    if dtype.is_float():
        if column.n_unique() * _REPEATED > len(column):
            known, start = _known(column)
            values = column.fill_null(strategy="forward").fill_null(0.0)
            return {"as": "real", **known}, [*start, _planes(values.to_numpy(), 8)]
        return _words(column)
    if dtype == pl.String or dtype == pl.Boolean:
        return _words(column)
    if dtype == pl.Categorical or dtype == pl.Enum:
        return _words(column.cast(pl.String))
    return _other(column)


def _whole(
    column: pl.Series, before: dict[str, NDArray[Any]]
) -> tuple[dict[str, Any], list[bytes]]:
    """Store integers plainly, or as differences from the row or a column before where those are smaller."""
    known, start = _known(column)
    filled = column.fill_null(strategy="forward").fill_null(column.drop_nulls()[0])
    low, high = int(filled.min()), int(filled.max())  # type: ignore[arg-type]
    # modulo 2**64 the differences are right whatever the sign
    values = (
        filled.cast(pl.UInt64 if low >= 0 else pl.Int64).to_numpy().astype(np.uint64, copy=False)
    )
    above = values - np.uint64(low % 2**64)
    size = _size(high - low)
    how = {"as": "whole", "least": str(low), **known}
    ways: list[tuple[dict[str, Any], bytes]] = [({**how, "size": size}, _planes(above, size))]
    if len(column) >= _TRIED:
        ways.append(_differing({**how, "step": True}, np.diff(above, prepend=np.uint64(0))))
        for name in list(before)[-_BEFORE:] if high < 2**63 else ():
            ways.append(_differing({**how, "beside": name}, values - before[name]))
    before[column.name] = values
    way, piece = min(ways, key=lambda one: len(zlib.compress(one[1], 1)) if len(ways) > 1 else 0)
    return way, [*start, piece]


def _differing(how: dict[str, Any], differences: NDArray[Any]) -> tuple[dict[str, Any], bytes]:
    signed = differences.view(np.int64)
    zigzag = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    size = _size(int(zigzag.max()))
    return {**how, "size": size}, _planes(zigzag, size)


def _words(column: pl.Series) -> tuple[dict[str, Any], list[bytes]]:
    """Store each distinct value once, in order, and a position for each row."""
    distinct = column.drop_nulls().unique().sort()
    places = column.replace_strict(
        distinct, pl.int_range(1, len(distinct) + 1, dtype=pl.UInt32, eager=True),
        default=0, return_dtype=pl.UInt32,
    ).fill_null(0)  # fmt: skip
    return _listed(distinct.to_list(), places.to_numpy())


def _other(column: pl.Series) -> tuple[dict[str, Any], list[bytes]]:
    """Store lists and records as words. A loop is fast enough: reports have few of them, in few rows."""
    places: dict[str, int] = {}
    rows = np.zeros(len(column), np.uint32)
    for row, value in enumerate(column.to_list()):
        if value is not None:
            text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
            rows[row] = places.setdefault(text, len(places) + 1)
    return _listed([json.loads(text) for text in places], rows)


def _listed(values: list[Any], places: NDArray[Any]) -> tuple[dict[str, Any], list[bytes]]:
    size = _size(len(values))
    return {"as": "words", "of": values, "size": size}, [_planes(places, size)]


def _known(column: pl.Series) -> tuple[dict[str, Any], list[bytes]]:
    if not column.null_count():
        return {}, []
    return {"nulls": True}, [column.is_not_null().to_numpy().astype(np.uint8).tobytes()]


def _size(most: int) -> int:
    """Return how many bytes a number up to ``most`` needs: 1 to 8."""
    return max(1, (most.bit_length() + 7) // 8)


def _planes(values: NDArray[Any], size: int) -> bytes:
    """Return the lowest ``size`` bytes of each number, plane by plane."""
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    planes: bytes = little.view(np.uint8).reshape(len(values), -1)[:, :size].T.tobytes()
    return planes


def _finite(value: Any) -> Any:
    """Return the value with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return list(_finite(value.to_list())) if hasattr(value, "to_list") else value
