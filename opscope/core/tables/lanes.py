"""Number the threads and streams of a trace: what tells a row's place becomes one small integer, its lane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.tables.columns import pairs, pieces
from opscope.core.tables.intervals import NONE, Ints

#: Up to this many lanes, a scan of all rows per lane takes less time than a sort.
_FEW: Final = 32
#: Rows come thread by thread if there are at least this many per change of thread.
_RUN: Final = 16
#: The number of a row of a piece; no table has a column of this name.
_ROW: Final = "row of the piece"


@dataclass(frozen=True, slots=True)
class Lanes:
    """``keys``: the (process, thread) of each lane, -1 where unknown. ``of``: each row's lane."""

    keys: list[tuple[int, int]]
    of: NDArray[np.unsignedinteger[Any]]

    def rows(self, chosen: NDArray[np.bool_]) -> Iterator[tuple[tuple[int, int], Ints]]:
        """Yield (process, thread) and the ``chosen`` rows, in order, of each lane that has such rows."""
        changes = np.flatnonzero(self.of[1:] != self.of[:-1]) + 1
        if len(changes) * _RUN < len(self.of):
            # one scan for all lanes, run by run
            parts: dict[int, list[NDArray[np.int32]]] = {}
            for begin, end in pairwise([0, *changes.tolist(), len(self.of)]):
                rows = np.flatnonzero(chosen[begin:end])
                if len(rows):
                    rows += begin
                    held = parts.setdefault(int(self.of[begin]), [])
                    # those of all lanes are held; a table has no more rows than fit
                    held.append(rows.astype(np.int32))
            for number in sorted(parts):
                yield self.keys[number], np.concatenate(parts.pop(number), dtype=np.int64)
            return
        if len(self.keys) <= _FEW:
            for number, key in enumerate(self.keys):
                rows = np.flatnonzero((self.of == number) & chosen)
                if len(rows):
                    yield key, rows
            return
        rows = np.flatnonzero(chosen)
        order = rows[np.argsort(self.of[rows], kind="stable")]
        edges = np.flatnonzero(np.diff(self.of[order])) + 1
        for part in np.split(order, edges):
            if len(part):
                yield self.keys[int(self.of[part[0]])], part


def lanes(frame: pl.DataFrame) -> Lanes:
    """Return the lanes of a table with columns ``process`` and ``thread``."""
    process, thread = (frame[name].fill_null(NONE).to_numpy() for name in ("process", "thread"))
    return lanes_of(process, thread)


def lanes_of(process: NDArray[Any], thread: NDArray[Any]) -> Lanes:
    """Return the lanes of rows with these processes and threads."""
    differs = np.zeros(max(len(process) - 1, 0), bool)
    for part in pieces(len(differs)):
        here, after = part, slice(part.start + 1, part.stop + 1)
        differs[here] = (process[after] != process[here]) | (thread[after] != thread[here])
    changes = np.flatnonzero(differs) + 1
    del differs
    if len(changes) * _RUN < len(process):
        first = np.concatenate((np.zeros(min(1, len(process)), np.int64), changes))
        keys, of = _numbered(process[first], thread[first])
        return Lanes(keys, np.repeat(of, np.diff(np.append(first, len(process)))))
    return Lanes(*_numbered(process, thread))


def _numbered(
    process: NDArray[Any], thread: NDArray[Any]
) -> tuple[list[tuple[int, int]], NDArray[np.unsignedinteger[Any]]]:
    known = np.unique(thread)  # thread ids are large and few
    one, other, number = pairs(process, np.searchsorted(known, thread))
    keys = list(zip(one.tolist(), known[other].tolist(), strict=True))
    return keys, number.astype(np.min_scalar_type(len(keys)))


def numbered_by(
    frame: pl.DataFrame, columns: Sequence[str]
) -> tuple[list[tuple[Any, ...]], NDArray[np.unsignedinteger[Any]]]:
    """Return the distinct values of ``columns``, None for null, by first appearance, and which each row has.

    It works piece by piece: to group ten million rows at once takes 0.5 GB.
    """
    keys: dict[tuple[Any, ...], int] = {}
    of: NDArray[Any] = np.zeros(len(frame), np.uint8)
    for part in pieces(len(frame)):
        piece = frame[part].select(columns)
        rows: Any = slice(None)
        if _alike(piece):
            found = [piece.row(0)]
        else:
            groups = piece.with_row_index(_ROW).group_by(columns, maintain_order=True).agg(_ROW)
            found = groups.select(columns).rows()
            rows = groups[_ROW].explode().to_numpy()
        numbers = [keys.setdefault(key, len(keys)) for key in found]
        if len(keys) > np.iinfo(of.dtype).max:
            of = of.astype(np.min_scalar_type(len(keys) << 8))
        of[part][rows] = (
            numbers[0] if len(found) == 1 else np.repeat(numbers, groups[_ROW].list.len())
        )
    return list(keys), of


def _alike(piece: pl.DataFrame) -> bool:
    """Whether all rows are equal, as process and device are in most traces: cheaper than to group them."""
    return len(piece) > 0 and all(
        column.null_count() in (0, len(piece)) and column.min() == column.max() for column in piece
    )


def rows_of(many: int, of: NDArray[np.unsignedinteger[Any]]) -> Iterator[tuple[int, Ints]]:
    """Yield the number and the rows, in order, of each of ``many`` lanes that has rows."""
    if many <= _FEW:
        for number in range(many):
            rows = np.flatnonzero(of == number)
            if len(rows):
                yield number, rows
        return
    order = np.argsort(of, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(of[order])) + 1):
        if len(part):
            yield int(of[part[0]]), part
