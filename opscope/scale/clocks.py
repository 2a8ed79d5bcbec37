"""Put the times of all partials on one clock by their collectives, as ``aligned`` does for whole traces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.job import clocks as job
from opscope.core.tables.narrow import Pieces
from opscope.core.tables.trace import UNRELATED, Trace


@dataclass(frozen=True, slots=True)
class Moves:
    """The amount to add to the times of each process, by its number; ``drifting``: some clock runs at
    another rate than the first one."""

    origin: NDArray[np.int64]
    offset: NDArray[np.int64]
    drift: NDArray[np.float64]

    @property
    def drifting(self) -> bool:
        return bool(self.drift.any())

    def moved(self, frame: pl.DataFrame, times: Iterable[str]) -> pl.DataFrame:
        """Return the frame with its columns ``times`` (ns) on the common clock."""
        if not (self.offset.any() or self.drifting) or not len(frame):
            return frame
        process = frame["process"].fill_null(-1).to_numpy()
        has_offset = (process >= 0) & (process < len(self.offset))
        process_index = np.where(has_offset, process, 0)
        columns = []
        for name in times:
            column = frame[name]
            value = column.fill_null(0).to_numpy()
            since = (value - self.origin[process_index]).astype(np.float64)
            moved = value + self.offset[process_index]
            moved = moved + np.rint(self.drift[process_index] * since).astype(np.int64)
            columns.append(
                pl.Series(name, np.where(has_offset, moved, value)).set(column.is_null(), None)
            )
        return frame.with_columns(columns)


def placed(trace: Trace, pieces: Pieces) -> tuple[Trace, Moves]:
    """Return the trace on the clock of its lowest rank's machine, and how the times of each process move.

    ``trace`` has the tables that partials hold, ``pieces`` the collectives (``exchanges``) of all processes,
    in pieces.
    """
    where = None if trace.origin.get(UNRELATED) else job.placed(trace, lambda: pieces)
    count = 1 + int(trace["processes"]["process"].max() or 0)  # type: ignore[arg-type]
    moves = Moves(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count))
    if where is None:
        return trace, moves
    for process, offset in where.of_processes().items():
        moves.origin[process] = offset.origin
        moves.offset[process] = offset.offset
        moves.drift[process] = offset.drift
    return job.moved(trace, where), moves
