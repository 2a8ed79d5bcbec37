"""A column of integers, some of them unknown: in memory, or as numbers and flags in mapped files.

Polars columns with nulls cannot lie in mapped files. A column without any known value takes no memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.tables.columns import at, pieces
from opscope.core.tables.intervals import Ints
from opscope.core.tables.mapped import Mapped, zeros


class Numbers:
    """Integers by row, null where not known. Immutable."""

    def __init__(
        self, column: pl.Series | None, values: Ints, flags: NDArray[np.bool_], count: int
    ) -> None:
        self._column, self._values, self._known, self._many = column, values, flags, count

    @classmethod
    def of(cls, column: pl.Series) -> Numbers:
        """Return the numbers of a column, without copying it."""
        nothing = np.empty(0, np.int64)
        return cls(column.cast(pl.Int64), nothing, nothing.astype(bool), len(column))

    @classmethod
    def of_pieces(cls, parts: Iterable[pl.Series], count: int, mapped: Mapped | None) -> Numbers:
        """Return the numbers of a column of ``count`` rows that comes in pieces."""
        values, flags, begin = np.empty(0, np.int64), np.empty(0, bool), 0
        for part in parts:
            rows = slice(begin, begin := begin + len(part))
            if part.null_count() == len(part):
                continue
            if not len(flags):
                values, flags = zeros(mapped, count, np.int64), zeros(mapped, count, bool)
            values[rows] = part.fill_null(0).to_numpy()
            flags[rows] = part.is_not_null().to_numpy()
        return cls(None, values, flags, count)

    def __len__(self) -> int:
        return self._many

    @property
    def column(self) -> pl.Series:
        """All numbers as a column in memory."""
        return self.gather(np.arange(self._many)) if self._column is None else self._column

    def gather(self, rows: NDArray[Any]) -> pl.Series:
        """Return the numbers of some rows; null for row -1."""
        if self._column is not None:
            places = pl.Series(rows, dtype=pl.Int64)
            some: pl.Series = self._column.gather(
                places.set(places < 0, None) if (rows < 0).any() else places
            )
            return some
        if not len(self._known):
            nothing: pl.Series = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(rows))
            return nothing
        values = pl.Series(at(self._values, rows, 0), dtype=pl.Int64)
        flags = at(self._known, rows, False)
        return values if flags.all() else values.set(pl.Series(~flags), None)

    def at_least(self, low: int, rows: slice | NDArray[Any]) -> NDArray[np.bool_]:
        """Return which rows have a number of ``low`` or more."""
        if self._column is not None:
            some = self._column[rows] if isinstance(rows, slice) else self._column.gather(rows)
            flags: NDArray[np.bool_] = (some >= low).fill_null(False).to_numpy()
            return flags
        if not len(self._known):
            return np.zeros(
                len(range(self._many)[rows]) if isinstance(rows, slice) else len(rows), bool
            )
        return self._known[rows] & (self._values[rows] >= low)

    def max(self) -> int | None:
        """Return the highest number, None if none is known."""
        if self._column is not None:
            top: Any = self._column.max()
            return None if top is None else int(top)
        maxima = [
            int(self._values[part][self._known[part]].max())
            for part in pieces(len(self._known))
            if self._known[part].any()
        ]
        return max(maxima, default=None)

    def extended(self, count: int) -> Numbers:
        """Return the numbers followed by this many unknown ones."""
        if not count:
            return self
        if self._column is not None:
            return Numbers.of(self._column.extend_constant(None, count))
        if not len(self._known):
            return Numbers(None, self._values, self._known, self._many + count)
        longer = Numbers(None, self._values, self._known, self._many + count)
        longer._values = np.concatenate((self._values, np.zeros(count, np.int64)))
        longer._known = np.concatenate((self._known, np.zeros(count, bool)))
        return longer

    def moved(self, mapped: Mapped) -> Numbers:
        """Return the same numbers in mapped files."""
        if self._column is not None:
            column = self._column
            parts = (column[part] for part in pieces(len(column)))
            return Numbers.of_pieces(parts, len(column), mapped)
        values, flags = mapped.array(self._values), mapped.array(self._known)
        return Numbers(None, values, flags, self._many)
