"""Divide the rows of a table among lanes: number each row's lane, then put each lane's rows together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.pool import Pool

#: So many lanes are told apart by numbers of 16 bits, which a sort counts.
_NEAR: Final = 1 << 16
#: Rows that are put in order at a time: they stay in the cache, where a gather takes a tenth of the time.
_PIECE: Final = 1 << 16
#: Rows of a piece per lane, so that pieces of many lanes do not fall into parts of a few rows.
_PER_LANE: Final = 1 << 10
_Codes = NDArray[np.unsignedinteger[Any]]


def numbered(keys: Iterable[NDArray[Any] | int], many: int) -> tuple[_Codes, list[tuple[int, ...]]]:
    """Return the number of each row's lane, and the keys of each lane, in order. A key that is a number is
    that of all ``many`` rows."""
    code: _Codes = np.zeros(many, np.uint8)
    known: list[tuple[int, ...]] = [()] if many else []
    for key in keys if many else ():
        if isinstance(key, int):
            known = [(*one, key) for one in known]
            continue
        low, wide = int(key.min()), int(key.max()) - int(key.min()) + 1
        values: Sequence[int] = range(low, low + wide)
        if wide * len(known) <= _NEAR:
            number = np.empty(many, np.min_scalar_type(wide * len(known) - 1))
            np.subtract(key, low, out=number, casting="unsafe")
        else:
            distinct, inverse = np.unique(key, return_inverse=True)
            values = distinct.tolist()
            number = inverse.reshape(-1).astype(np.uint64)
        if len(known) > 1:  # by the earlier keys first
            number = number + code.astype(number.dtype) * number.dtype.type(len(values))
        code, present = _dense(number, len(values) * len(known))
        places = [divmod(one, len(values)) for one in present]
        known = [(*known[before], values[place]) for before, place in places]
    return code, known


def _dense(number: _Codes, size: int) -> tuple[_Codes, list[int]]:
    """Return the place of each number (below ``size``) among those that occur, and these in order."""
    if size <= _NEAR:
        present = np.flatnonzero(np.bincount(number, minlength=size))
        if len(present) == size:
            return number, present.tolist()
        place = np.zeros(size, np.min_scalar_type(len(present)))
        place[present] = np.arange(len(present))
        return place.take(number), present.tolist()
    present, inverse = np.unique(number, return_inverse=True)
    return inverse.reshape(-1).astype(np.min_scalar_type(len(present))), present.tolist()


def parted(
    code: _Codes, lanes: int, columns: Sequence[NDArray[Any]], pool: Pool
) -> list[list[NDArray[Any]]]:
    """Return each lane's part of the columns, rows in their order. ``code``: each row's lane."""
    if lanes < 2:
        return [list(columns)][:lanes]
    many = len(code)
    piece = max(_PIECE, lanes * _PER_LANE)
    bounds = list(pairwise([*range(0, many, piece), many]))
    counts = np.array([np.bincount(code[low:high], minlength=lanes) for low, high in bounds])
    place = (np.cumsum(counts, axis=0) - counts).tolist()
    found = [[np.empty(one, of.dtype) for of in columns] for one in counts.sum(axis=0).tolist()]

    def put(number: int) -> None:
        low, high = bounds[number]
        order = np.argsort(code[low:high], kind="stable")
        edges = [0, *np.cumsum(counts[number]).tolist()]
        filled = [(lane, *ends) for lane, ends in enumerate(pairwise(edges)) if ends[1] > ends[0]]
        for column, values in enumerate(columns):
            in_order = values[low:high].take(order)
            for lane, first, after in filled:
                at = place[number][lane]
                found[lane][column][at : at + after - first] = in_order[first:after]

    for done in [pool.submit(put, number) for number in range(len(bounds))]:
        done.result()
    return found
