"""A table as bytes that the viewer's script reads: columns of small numbers, and each text once.

The layout is a 4-byte little-endian length, a header in JSON, and the columns' pieces one after another. The
header has ``rows`` and ``columns``. With ``turns`` the first piece is a byte a row, its lane, and the columns
have the rows of the first lane first, then those of the second …, each in their order. A column is one of:

``none`` every value is unknown; no piece ``whole`` integers: ``least`` (as text) plus an unsigned number of
``size`` bytes. Or the numbers are zigzag (0, -1, 1, -2 … are 0, 1, 2, 3 …) differences: with ``step`` from
the value before, with ``beside`` from that column's in the same row (times end soon after they start), with
``guess`` from the value that the page computes (``length``: end - start; others are given to ``pack``), so
nearly always 0. With ``of`` they are places in this list of the distinct ones (as text) ``time`` integers
that are on the file's axes (``axes.py``). A byte a row is its axis; ``axis`` in its place is the axis of all
rows. Then the place on it, ``size`` bytes, as a zigzag difference: from the place of the row before that is
on this axis (the first: from 0), or with ``beside`` from that column's place in the same row, where it is on
the same axis ``real`` floating point, 8 bytes ``words`` any values: ``of`` lists the distinct ones (texts in
order of their code points, numbers in theirs); the piece has 0 for an unknown value, else a position in
``of`` plus 1, in ``size`` bytes A ``whole`` or ``real`` column with unknown values (``nulls``) begins with
one byte a row: 1 if it is known; in its numbers an unknown value repeats the one before. Numbers are stored
byte plane by byte plane (all lowest bytes first): gzip then makes them three times smaller.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from .axes import Axes, headed, planes

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Small tables are stored plainly: smaller forms are tried from this many rows on.
TRIED: Final = 1_000
#: Rows are stored lane by lane if lanes change at least once in this many rows, and if that is smaller.
_SWITCHES: Final = 50
#: Number of preceding integer columns that a column is tried beside.
_BEFORE: Final = 4
#: Floating-point numbers are stored as words if a distinct one has at least this many rows on average.
_REPEATED: Final = 4
#: Distinct integers that are stored once each, at most.
_FEW: Final = 256
#: Whole numbers up to here are exact in JavaScript.
_EXACT: Final = 2**53


#: The columns that pages compute themselves: by column, the guess's name and its values.
Guesses = Mapping[str, tuple[str, "NDArray[np.int64]"]]


@dataclass(slots=True)
class _Known:
    """The context of packing a column: the axes, guesses, and the columns before it."""

    axes: Axes
    likely: NDArray[np.uint8] | None
    guesses: Guesses
    #: Integers by column, modulo 2**64, and their places on axes.
    integers: dict[str, NDArray[np.uint64]] = field(default_factory=dict)
    places: dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]] = field(default_factory=dict)


def pack(frame: pl.DataFrame, axes: Axes | None = None, guesses: Guesses | None = None) -> bytes:
    """Return the table as bytes, the same for the same table. NaN and infinity become unknown.

    ``axes``: times on them are stored as places. ``guesses``: the values that the page computes for a column.
    """
    axes = axes or Axes()
    likely = axes.lanes_of(frame)
    plain = _table(frame, _Known(axes, likely, guesses or {}), {}, [])
    if likely is None or (np.diff(likely) != 0).sum() * _SWITCHES < len(frame):
        return plain
    # events of different lanes interleave differently in each step, but each lane by itself repeats
    by_lane = np.argsort(likely, kind="stable")
    moved = {name: (axis, values[by_lane]) for name, (axis, values) in (guesses or {}).items()}
    packing = _Known(axes, likely[by_lane], moved)
    turns = _table(frame[by_lane], packing, {"turns": True}, [likely.tobytes()])
    return min(plain, turns, key=lambda packed: len(zlib.compress(packed, 1)))


def _table(
    frame: pl.DataFrame, packing: _Known, head: dict[str, Any], pieces: list[bytes]
) -> bytes:
    columns = []
    for column in frame:
        how, stored = _packed(column, packing)
        columns.append({"name": column.name, **how})
        pieces += stored
    return headed({"rows": frame.height, **head, "columns": columns}, *pieces)


def _packed(column: pl.Series, packing: _Known) -> tuple[dict[str, Any], list[bytes]]:
    """Return how a column is stored, and its pieces."""
    dtype = column.dtype
    if dtype.is_float():
        column = column.cast(pl.Float64)
        column = pl.select(pl.when(column.is_finite()).then(column)).to_series()
    if column.null_count() == len(column):
        return {"as": "none"}, []
    if dtype.is_integer():
        return _whole(column, packing)
    if dtype.is_float():
        if column.n_unique() * _REPEATED > len(column):
            how, start = _nulls(column)
            values = column.fill_null(strategy="forward").fill_null(0.0)
            return {"as": "real", **how}, [*start, planes(values.to_numpy(), 8)]
        return _words(column)
    if dtype == pl.String or dtype == pl.Boolean:
        return _words(column)
    if dtype == pl.Categorical or dtype == pl.Enum:
        return _words(column.cast(pl.String))
    return _other(column)


def _whole(column: pl.Series, packing: _Known) -> tuple[dict[str, Any], list[bytes]]:
    """Store integers plainly, or in a way that is smaller: as differences or places."""
    nulls, start = _nulls(column)
    filled = column.fill_null(strategy="forward").fill_null(column.drop_nulls()[0])
    low, high = int(filled.min()), int(filled.max())  # type: ignore[arg-type]
    # modulo 2**64 the differences are right whatever the sign
    values = (
        filled.cast(pl.UInt64 if low >= 0 else pl.Int64).to_numpy().astype(np.uint64, copy=False)
    )
    above = values - np.uint64(low % 2**64)
    size = _size(high - low)
    how = {"as": "whole", "least": str(low), **nulls}
    ways: list[tuple[dict[str, Any], bytes]] = [({**how, "size": size}, planes(above, size))]
    if len(column) >= TRIED:
        ways.append(_differing({**how, "step": True}, np.diff(above, prepend=np.uint64(0))))
        if high < 2**63:
            for name in list(packing.integers)[-_BEFORE:]:
                ways.append(_differing({**how, "beside": name}, values - packing.integers[name]))
            ways += _guess(column.name, how, values, packing)
            ways += _place(column.name, nulls, values.view(np.int64), packing)
        if size > 1:
            ways += _number(how, values)
    packing.integers[column.name] = values
    way, piece = min(
        ways, key=lambda packed: len(zlib.compress(packed[1], 1)) if len(ways) > 1 else 0
    )
    return way, [*start, piece]


def _guess(
    name: str, how: dict[str, Any], values: NDArray[np.uint64], packing: _Known
) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the ways to store a column that the page predicts almost exactly."""
    if name in packing.guesses:
        called, guess = packing.guesses[name]
        yield _differing({**how, "guess": called}, values - guess.view(np.uint64))
    if {"start", "end"} <= set(packing.integers):
        length = packing.integers["end"] - packing.integers["start"]
        usual = (values[:TRIED] == length[:TRIED]).mean() > 0.5
        if usual and int(np.abs(length.view(np.int64)).max()) < _EXACT:
            yield _differing({**how, "guess": "length"}, values - length)


def _place(
    name: str, nulls: dict[str, Any], values: NDArray[np.int64], packing: _Known
) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the ways to store times as places on axes."""
    # calls have times of a thread, even in a table of work on a stream
    placed = packing.axes.places(values, None if name.startswith("call") else packing.likely)
    if placed is None:
        return
    axis, index = placed
    how: dict[str, Any] = {"as": "time", **nulls}
    lanes = b""
    if (axis == axis[0]).all():
        how["axis"] = int(axis[0])
    else:
        lanes = axis.tobytes()
    step = index.copy()
    for number in np.unique(axis):
        rows = np.flatnonzero(axis == number)
        step[rows] = np.diff(index[rows], prepend=0)
    form, piece = _differing(how, step.view(np.uint64))
    yield form, lanes + piece
    for other, (its_axis, its_place) in list(packing.places.items())[-2:]:
        beside = np.where(its_axis == axis, index - its_place, step)
        form, piece = _differing({**how, "beside": other}, beside.view(np.uint64))
        yield form, lanes + piece
    packing.places[name] = placed


def _number(
    how: dict[str, Any], values: NDArray[np.uint64]
) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the way to store few distinct integers once each."""
    if len(np.unique(values[:TRIED])) > _FEW:
        return
    distinct, number = np.unique(values, return_inverse=True)
    if len(distinct) <= _FEW:
        signed = distinct.view(np.int64) if int(how["least"]) < 0 else distinct
        of = [str(number) for number in signed.tolist()]
        yield {**how, "of": of, "size": 1}, planes(number.astype(np.uint8), 1)


def _differing(how: dict[str, Any], differences: NDArray[Any]) -> tuple[dict[str, Any], bytes]:
    size, piece = zigzag(differences)
    return {**how, "size": size}, piece


def zigzag(differences: NDArray[Any]) -> tuple[int, bytes]:
    """Return the size of, and signed numbers as, unsigned ones: 0, -1, 1, -2 … are 0, 1, 2, 3 …"""
    signed = differences.view(np.int64)
    unsigned = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    size = _size(int(unsigned.max())) if len(unsigned) else 1
    return size, planes(unsigned, size)


def _words(column: pl.Series) -> tuple[dict[str, Any], list[bytes]]:
    """Store each distinct value once, in order, and a position for each row."""
    distinct = column.drop_nulls().unique().sort()
    places = column.replace_strict(
        distinct, pl.int_range(1, len(distinct) + 1, dtype=pl.UInt32, eager=True),
        default=0, return_dtype=pl.UInt32,
    ).fill_null(0)  # fmt: skip
    return _list(distinct.to_list(), places.to_numpy())


def _other(column: pl.Series) -> tuple[dict[str, Any], list[bytes]]:
    """Store lists and records as words. A loop is fast enough: few reports have them, in few rows."""
    places: dict[str, int] = {}
    rows = np.zeros(len(column), np.uint32)
    for row, value in enumerate(column.to_list()):
        if value is not None:
            text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
            rows[row] = places.setdefault(text, len(places) + 1)
    return _list([json.loads(text) for text in places], rows)


def _list(values: list[Any], places: NDArray[Any]) -> tuple[dict[str, Any], list[bytes]]:
    size = _size(len(values))
    return {"as": "words", "of": values, "size": size}, [planes(places, size)]


def _nulls(column: pl.Series) -> tuple[dict[str, Any], list[bytes]]:
    if not column.null_count():
        return {}, []
    return {"nulls": True}, [column.is_not_null().to_numpy().astype(np.uint8).tobytes()]


def _size(most: int) -> int:
    """Return how many bytes a number up to ``most`` needs: 1 to 8."""
    return max(1, (most.bit_length() + 7) // 8)


def _finite(value: Any) -> Any:
    """Return the value with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return list(_finite(value.to_list())) if hasattr(value, "to_list") else value
