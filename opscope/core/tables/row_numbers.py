"""Number the distinct rows of integer columns that arrive a piece at a time.

A table with a place for every possible pair of values is several times faster than hashing or sorting
rows. If there are too many values for a table, the pairs met so far are kept in order.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.intervals import NONE, Ints

#: Most places in a table; 4 bytes each.
_MOST: Final = 1 << 24


class Numbering:
    """Numbers the distinct rows of ``width`` columns: 0, 1, 2 … in no meaningful order."""

    def __init__(self, width: int) -> None:
        self._columns = [_Column() for _ in range(width)]

    @property
    def many(self) -> int:
        """How many numbers have been assigned so far."""
        return self._columns[-1].many

    def of(self, *columns: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
        """Return the number of each row; values must be -1 or greater."""
        number = np.zeros(len(columns[0]), np.int32)
        for step, column in zip(self._columns, columns, strict=True):
            number = step.of(number, column)
        return number


class _Column:
    """Numbers the pairs of an incoming number and a column's value.

    While the column has had only one value, as most columns of most traces do, the incoming numbers are
    returned unchanged.
    """

    def __init__(self) -> None:
        self._only: int | None = None
        self._came = 0  # how many incoming numbers existed while there was one value
        self._pairs: tuple[_Pairs, _Pairs] | None = None

    @property
    def many(self) -> int:
        return self._came if self._pairs is None else self._pairs[1].many

    def of(self, left: NDArray[np.int32], column: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
        if not len(left):
            return left
        if self._pairs is None:
            low, high = int(column.min()), int(column.max())
            if low == high and self._only in (None, low):
                self._only, self._came = low, max(self._came, int(left.max()) + 1)
                return left
            self._pairs = _Pairs(), _Pairs()
            if self._only is not None:  # until now, the pair (number, value) had that number
                came = np.arange(self._came, dtype=np.int32)
                self._number(self._pairs, came, np.full(self._came, self._only))
        return self._number(self._pairs, left, column)

    @staticmethod
    def _number(
        pairs: tuple[_Pairs, _Pairs], left: NDArray[np.int32], column: NDArray[np.integer[Any]]
    ) -> NDArray[np.int32]:
        # number the values first, so that a table of pairs only needs places for these
        values = pairs[0].of(np.zeros(len(left), np.int32), column.astype(np.int64) + 1)
        return pairs[1].of(left, values)


class _Pairs:
    """Numbers the pairs (left, right) of integers from 0."""

    def __init__(self) -> None:
        self.many = 0
        self._wide = 1  # all right integers are less than this
        self._table: NDArray[np.int32] | None = np.empty(0, np.int32)
        self._keys: Ints = np.empty(0, np.int64)  # in order, if there is no table any more
        self._numbers: NDArray[np.int32] = np.empty(0, np.int32)

    def of(self, left: NDArray[np.int32], right: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
        if not len(left):
            return left
        if int(right.max()) >= self._wide:
            self._widen(int(right.max()) * 5 // 4 + 1)
        key = left * np.int64(self._wide) + right
        size = (int(left.max()) + 1) * self._wide
        if size > _MOST:
            self._leave_table()
        return self._sorted(key) if self._table is None else self._direct(self._table, key, size)

    def _direct(self, table: NDArray[np.int32], key: Ints, size: int) -> NDArray[np.int32]:
        if size > len(table):
            table = np.concatenate((table, np.full(size - len(table), NONE, np.int32)))
            self._table = table
        numbers = table[key]
        new = np.zeros(len(table) if (numbers < 0).any() else 0, bool)
        if len(new):
            new[key[numbers < 0]] = True
            fresh = np.flatnonzero(new)
            table[fresh] = self._next(len(fresh))
            numbers = table[key]
        return numbers

    def _sorted(self, key: Ints) -> NDArray[np.int32]:
        distinct, inverse = np.unique(key, return_inverse=True)
        fresh = np.setdiff1d(distinct, self._keys, assume_unique=True)
        keys = np.concatenate((self._keys, fresh))
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._numbers = np.concatenate((self._numbers, self._next(len(fresh))))[order]
        numbers: NDArray[np.int32] = self._numbers[np.searchsorted(self._keys, distinct)][inverse]
        return numbers

    def _next(self, count: int) -> NDArray[np.int32]:
        self.many += count
        return np.arange(self.many - count, self.many, dtype=np.int32)

    def _leave_table(self) -> None:
        if self._table is not None:
            self._keys = np.flatnonzero(self._table >= 0)
            self._numbers = self._table[self._keys]
            self._table = None

    def _widen(self, wide: int) -> None:
        if self._table is not None and len(self._table) // self._wide * wide > _MOST:
            self._leave_table()
        if self._table is None:
            left, right = np.divmod(self._keys, self._wide)
            self._keys = left * wide + right
        else:
            rows = self._table.reshape(-1, self._wide)
            table = np.full((len(rows), wide), NONE, np.int32)
            table[:, : self._wide] = rows
            self._table = table.reshape(-1)
        self._wide = wide
