"""Add up the sums of a table's pieces by key, so that only the sums are in memory."""

from __future__ import annotations

import polars as pl

from opscope.core.tables.narrow import MOST, Pieces


class Gathered:
    """Sums by ``key`` over pieces of a table; the sums of several pieces are added up as the pieces
    arrive."""

    def __init__(self, key: list[str], *sums: pl.Expr) -> None:
        """``sums``: how rows with equal key are combined. Without sums, only duplicates are dropped."""
        self._key, self._sums = key, sums
        self._parts: list[pl.DataFrame] = []
        self._rows = 0

    def add(self, part: pl.DataFrame) -> None:
        self._parts.append(part)
        self._rows += len(part)
        if self._rows > MOST and len(self._parts) > 1:
            self._parts = [self.all()]
            # rows that cannot be added up are not tried again each time
            self._rows = len(self._parts[0]) // 2

    def all(self) -> pl.DataFrame:
        """Return the sums of all pieces, in the order in which the keys came."""
        columns = self._parts[0].columns
        sums = pl.concat(self._parts).group_by(self._key, maintain_order=True).agg(*self._sums)
        return sums.select(columns)


def one_piece(frame: pl.DataFrame) -> Pieces:
    """Return the table as an iterable of one piece."""
    return lambda: iter((frame,))
