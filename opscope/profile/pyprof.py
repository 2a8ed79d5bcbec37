"""PyProf's table of a Profile."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from opscope.core.once import once
from opscope.core.pyprof.table import COLUMNS, PyprofTable
from opscope.core.tables.columns import pieces
from opscope.core.tables.intervals import Ints

from .base import Base, selectable

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where

#: Rows that are made at a time: texts of all columns take 0.4 KB a row.
_ROWS = 100_000


class Pyprof(Base):
    """Every kernel as PyProf lists it."""

    @selectable
    def pyprof(
        self, columns: Collection[str] | None = None, **where: Unpack[Where]
    ) -> pl.DataFrame:
        """Every kernel execution in PyProf's columns, in the order in which they began.

        ``columns`` chooses and orders them; KeyError for an unknown one. FLOPs and bytes are opscope's, not
        PyProf's: docs/from-pyprof.md tells where they differ.
        """
        chosen = COLUMNS if columns is None else columns
        for name in chosen:
            if name not in COLUMNS:
                raise KeyError(f"no column named {name!r}; choose from: {', '.join(COLUMNS)}")
        return pl.concat(self.pyprof_pieces(chosen))

    def pyprof_pieces(self, columns: Collection[str]) -> Iterator[pl.DataFrame]:
        """Yield ``pyprof(columns)`` in pieces, at least one, so that it need not fit in memory."""
        whole, rows = self._pyprof_rows()
        for part in pieces(len(rows), _ROWS):
            frame = whole.rows(columns, rows[part])
            yield frame.with_columns(pl.col(pl.Categorical).cast(pl.String))

    def _pyprof_rows(self) -> tuple[PyprofTable, Ints]:
        """Return the table of the whole profile, and the places of this profile's kernels in it.

        A kernel's number and forward kernel are those that it has in the whole profile.
        """
        if self._part_of is None:
            whole = self._pyprof_table
            return whole, np.arange(len(whole.order))
        origin, kept = self._part_of
        if not isinstance(origin, Pyprof):
            raise TypeError("a part of another kind of profile")
        table, rows = origin._pyprof_rows()
        return table, rows[kept[table.order[rows]]]

    @once
    def _pyprof_table(self) -> PyprofTable:
        return PyprofTable(self._ops, self._executed)
