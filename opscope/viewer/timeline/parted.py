"""Divide the rows of a table among lanes: number each row's lane, then put each lane's rows together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import DTypeLike, NDArray

from opscope.core.tables.pool import Pool

#: Up to this many lanes have numbers of 16 bits, which NumPy sorts by counting.
_NEAR: Final = 1 << 16
#: Rows that are sorted at a time: they stay in the cache, where a gather takes a tenth of the time.
_PIECE: Final = 1 << 17
#: Rows per lane in a piece, so that with many lanes a piece still gives each lane more than a few rows.
_PER_LANE: Final = 1 << 10
_Codes = NDArray[np.unsignedinteger[Any]]
#: A column without nulls. A Polars column in many chunks stays as it is: NumPy would copy it into one array.
Column: TypeAlias = NDArray[Any] | pl.Series


def numbered(keys: Iterable[Column | int], count: int) -> tuple[_Codes, list[tuple[int, ...]]]:
    """Return the number of each row's lane, and the keys of each lane, in order. A key that is a number holds
    for all ``count`` rows."""
    code: _Codes = np.zeros(count, np.uint8)
    prefixes: list[tuple[int, ...]] = [()] if count else []
    for key in keys if count else ():
        if isinstance(key, int):
            prefixes = [(*prefix, key) for prefix in prefixes]
            continue
        low, high = _ends(key)
        if low == high:
            prefixes = [(*prefix, low) for prefix in prefixes]
            continue
        wide = high - low + 1
        values: Sequence[int] = range(low, low + wide)
        if wide * len(prefixes) <= _NEAR:
            number = np.empty(count, np.min_scalar_type(wide * len(prefixes) - 1))
            for part in _pieces(count):
                np.subtract(np.asarray(key[part]), low, out=number[part], casting="unsafe")
        else:
            distinct, inverse = np.unique(np.asarray(key), return_inverse=True)
            values = distinct.tolist()
            number = inverse.reshape(-1).astype(np.uint64)
        if len(prefixes) > 1:  # earlier keys sort first
            number = number + code.astype(number.dtype) * number.dtype.type(len(values))
        code, present = _dense(number, len(values) * len(prefixes))
        places = [divmod(code, len(values)) for code in present]
        prefixes = [(*prefixes[before], values[value_index]) for before, value_index in places]
    return code, prefixes


def _pieces(count: int) -> Iterator[slice]:
    """Yield pieces of this many rows: NumPy's copies of a whole column would not fit the cache."""
    for low in range(0, count, _PIECE):
        yield slice(low, min(low + _PIECE, count))


def _ends(key: Column) -> tuple[int, int]:
    """Return the least and the largest key."""
    parts = [np.asarray(key[part]) for part in _pieces(len(key))]
    return int(min(part.min() for part in parts)), int(max(part.max() for part in parts))


def _dense(number: _Codes, size: int) -> tuple[_Codes, list[int]]:
    """Return the rank of each number (below ``size``) among the numbers that occur, and these numbers in
    order."""
    if size <= _NEAR:
        seen = np.zeros(size, np.int64)
        for part in _pieces(len(number)):
            seen += np.bincount(number[part], minlength=size)
        present = np.flatnonzero(seen)
        if len(present) == size:
            return number, present.tolist()
        index = np.zeros(size, np.min_scalar_type(len(present)))
        index[present] = np.arange(len(present))
        return index.take(number), present.tolist()
    present, inverse = np.unique(number, return_inverse=True)
    return inverse.reshape(-1).astype(np.min_scalar_type(len(present))), present.tolist()


def parted(
    code: _Codes,
    lanes: int,
    kinds: Sequence[DTypeLike],
    read: Callable[[int, int], Sequence[NDArray[Any]]],
    pool: Pool,
) -> list[list[NDArray[Any]]]:
    """Return for each lane the numbers of its rows, in order, and its part of some columns.

    ``code``: each row's lane. ``read`` returns the columns of the rows ``[low, high)``, ``kinds`` the parts'
    content. A piece is read, put in order and written while it is in the cache, by the pool's threads.
    """
    count = len(code)
    piece = max(_PIECE, lanes * _PER_LANE)
    bounds = list(pairwise([*range(0, count, piece), count]))
    counts = np.array(
        [np.bincount(code[low:high], minlength=lanes) for low, high in bounds], np.int64
    ).reshape(len(bounds), lanes)
    offsets = (np.cumsum(counts, axis=0) - counts).tolist()
    totals = counts.sum(axis=0).tolist()
    lane_arrays = [[np.empty(total, kind) for kind in (np.int32, *kinds)] for total in totals]

    def put(number: int) -> None:
        low, high = bounds[number]
        columns = read(low, high)
        order = np.argsort(code[low:high], kind="stable") if lanes > 1 else np.arange(high - low)
        first = 0
        for lane, here in enumerate(counts[number].tolist()):
            if not here:
                continue
            rows = order[first : first + here]
            at = slice(offsets[number][lane], offsets[number][lane] + here)
            np.add(rows, low, out=lane_arrays[lane][0][at], casting="unsafe")
            for values, out in zip(columns, lane_arrays[lane][1:], strict=True):
                values.take(rows, out=out[at], mode="clip")  # with "raise" NumPy copies once more
            first += here

    for done in [pool.submit(put, number) for number in range(len(bounds))]:
        done.result()
    return lane_arrays
