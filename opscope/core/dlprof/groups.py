"""Sums over groups of rows, one NumPy pass each: a million rows in as many groups take milliseconds.

Polars takes a second for each aggregate of a million groups, and a report has twenty.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.tables.intervals import Ints

_INT: Any = np.iinfo(np.int64)
#: DLProf's names for the times (ns) of an instance, by their names in ``Source.times``.
CALLED: Final = {
    "cpu": "CPU Time (ns)",
    "gpu": "GPU Time (ns)",
    "overhead": "CPU Overhead (ns)",
    "idle": "GPU Idle (ns)",
}


class Groups:
    """The groups of rows: ``number`` is each row's group, ``many`` the number of groups; none is empty."""

    def __init__(self, number: NDArray[np.integer[Any]], count: int) -> None:
        self.many = count
        self._number = number
        self._order = np.argsort(number, kind="stable")
        ordered = number[self._order]
        self._begin = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        if not len(number):
            self._begin = self._begin[:0]

    @property
    def sizes(self) -> Ints:
        """How many rows each group has."""
        return np.diff(np.append(self._begin, len(self._order))).astype(np.int64)

    def first(self) -> Ints:
        """Return the first row of each group."""
        rows: Ints = self._order[self._begin]
        return rows

    def total(self, column: pl.Series) -> pl.Series:
        """Return the sum of each group's known values; null if all are unknown."""
        is_stated, values = self._known(column, 0)
        return self._null(self._reduce(np.add, values), self._reduce(np.add, is_stated) == 0)

    def whole(self, column: pl.Series) -> pl.Series:
        """Return the sum of each group's values; null if any of them is unknown."""
        is_stated, values = self._known(column, 0)
        return self._null(
            self._reduce(np.add, values), self._reduce(np.add, is_stated) < self.sizes
        )

    def statistics(self, column: pl.Series) -> tuple[pl.Series, pl.Series, pl.Series, pl.Series]:
        """Return the sum, average, least and most of each group's known values; null if all are unknown."""
        is_stated, values = self._known(column, 0)
        count = self._reduce(np.add, is_stated)
        unknown = count == 0
        total = self._reduce(np.add, values)
        mean = total / np.maximum(count, 1)
        least = self._reduce(np.minimum, self._known(column, _INT.max)[1])
        most = self._reduce(np.maximum, self._known(column, _INT.min)[1])
        return (
            self._null(total, unknown),
            self._null(mean, unknown),
            self._null(least, unknown),
            self._null(most, unknown),
        )

    def proven(self, column: pl.Series) -> pl.Series:
        """Return whether a row of each group is true; null if none is true and some are unknown."""
        yes = self._reduce(np.maximum, column.fill_null(False).cast(pl.Int64).to_numpy()) > 0
        unknown = self._reduce(np.maximum, column.is_null().cast(pl.Int64).to_numpy()) > 0
        return self._null(yes, ~yes & unknown)

    def _known(self, column: pl.Series, otherwise: int) -> tuple[Ints, Ints]:
        is_stated = column.is_not_null().cast(pl.Int64).to_numpy()
        return is_stated, column.cast(pl.Int64).fill_null(otherwise).to_numpy()

    def _reduce(self, operation: Any, values: NDArray[Any]) -> NDArray[Any]:
        if not len(self._begin):
            return values[:0]
        reduced: NDArray[Any] = operation.reduceat(values[self._order], self._begin)
        return reduced

    @staticmethod
    def _null(values: NDArray[Any], where: NDArray[np.bool_]) -> pl.Series:
        column: pl.Series = pl.Series(values)
        return column.set(pl.Series(where), None) if where.any() else column


def statistics(
    groups: Groups, column: pl.Series, called: str, dot: str = "."
) -> dict[str, pl.Series]:
    """Return total, average, least and most of a column in each group."""
    titles = ("Total", f"Avg{dot}", "Min", "Max")
    values = groups.statistics(column)
    return {f"{title} {called}": value for title, value in zip(titles, values, strict=True)}


def times(groups: Groups, frame: pl.DataFrame) -> dict[str, pl.Series]:
    """Return the sixteen columns of the four times."""
    columns: dict[str, pl.Series] = {}
    for name in CALLED:
        columns |= statistics(groups, frame[name], CALLED[name])
    return columns


def yes(name: str) -> pl.Expr:
    """Return ``yes`` or ``no``; null if unknown."""
    return pl.when(pl.col(name)).then(pl.lit("yes")).when(~pl.col(name)).then(pl.lit("no"))


def yes_or_no(column: pl.Series) -> pl.Series:
    """Return ``yes`` or ``no``; null if unknown."""
    return column.to_frame("known").select(yes("known")).to_series()
