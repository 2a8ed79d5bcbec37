"""Number the threads and streams of a trace: the columns that identify a thread become one small integer,
its lane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.tables.columns import pieces
from opscope.core.tables.intervals import NONE, Ints, nest
from opscope.core.tables.mapped import Mapped, zeros

#: Name of the column with row numbers within a piece; no table has a column of this name.
_ROW: Final = "row of the piece"


@dataclass(frozen=True, slots=True)
class Lanes:
    """``keys``: the (process, thread) of each lane, -1 where unknown. ``of``: the lane of each row."""

    keys: list[tuple[int, int]]
    of: NDArray[np.unsignedinteger[Any]]

    def rows(
        self, chosen: NDArray[np.bool_], mapped: Mapped | None = None
    ) -> Iterator[tuple[tuple[int, int], Ints]]:
        """Yield (process, thread) and the ``chosen`` rows, in order, of each lane that has such rows."""
        for number, rows in rows_of(len(self.keys), self.of, chosen, mapped):
            yield self.keys[number], rows


def lanes(frame: pl.DataFrame, mapped: Mapped | None = None) -> Lanes:
    """Return the lanes of a table with columns ``process`` and ``thread``."""
    process, thread = (frame[name].fill_null(NONE).to_numpy() for name in ("process", "thread"))
    return lanes_of(process, thread, mapped)


def lanes_of(process: NDArray[Any], thread: NDArray[Any], mapped: Mapped | None = None) -> Lanes:
    """Return the lanes of rows with these processes and threads, piece by piece."""
    count = len(process)
    threads = distinct_numbers(thread)  # thread ids are large numbers but few
    low = min((int(process[part].min()) for part in pieces(count) if count), default=0)

    def codes(part: slice) -> tuple[Ints, NDArray[Any]]:
        """The first row of each run of rows with equal lane, and the lane's code."""
        there, on = process[part], thread[part]
        differs = np.flatnonzero((there[1:] != there[:-1]) | (on[1:] != on[:-1])) + 1
        first = np.concatenate((np.zeros(min(1, len(there)), np.int64), differs))
        code = (there[first].astype(np.int64) - low) * len(threads)
        return first, code + np.searchsorted(threads, on[first])

    distinct = _unite(codes(part)[1] for part in pieces(count))
    process_codes, other = np.divmod(distinct, max(len(threads), 1))
    keys = list(zip((process_codes + low).tolist(), threads[other].tolist(), strict=True))
    of = zeros(mapped, count, np.min_scalar_type(len(keys)))
    for part in pieces(count):
        first, code = codes(part)
        runs = np.diff(np.append(first, part.stop - part.start))
        of[part] = np.repeat(np.searchsorted(distinct, code), runs)
    return Lanes(keys, of)


def open_ranges(calls: pl.DataFrame, ranges: pl.DataFrame, rows: Ints) -> Ints:
    """Return for each call the place in ``rows`` of the innermost of these ranges that is open on its
    thread when the call starts; -1: none."""
    range_of_call = np.full(len(calls), NONE, np.int64)
    if not len(calls) or not len(rows):
        return range_of_call
    index = np.full(len(ranges), NONE, np.int64)
    index[rows] = np.arange(len(rows))
    theirs = dict(lanes(calls).rows(np.ones(len(calls), bool)))
    for key, part in lanes(ranges).rows(index >= 0):
        if key in theirs:
            here = theirs[key]
            tree = nest(*(ranges[name].gather(part).to_numpy() for name in ("start", "end")))
            inner = tree.innermost(calls["start"].gather(here).to_numpy())
            range_of_call[here] = np.where(inner >= 0, index[part[np.maximum(inner, 0)]], NONE)
    return range_of_call


def distinct_numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct values in order, found piece by piece: sorting all values would double the
    memory."""
    return _unite(np.unique(_change(values[part])) for part in pieces(len(values)))


def _change(values: NDArray[Any]) -> NDArray[Any]:
    """Return the first row of each run of equal values. (In most columns, runs are long.)"""
    first = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return values[first]


def _unite(parts: Iterable[NDArray[Any]]) -> NDArray[Any]:
    united: NDArray[Any] | None = None
    for part in parts:
        if united is None or len(part) > 1 or (len(part) and part[0] not in united):
            united = np.unique(part if united is None else np.concatenate((united, part)))
    return np.empty(0, np.int64) if united is None else united


def numbered_by(
    frame: pl.DataFrame, columns: Sequence[str]
) -> tuple[list[tuple[Any, ...]], NDArray[np.unsignedinteger[Any]]]:
    """Return the distinct values of ``columns`` (None for null) in order of first appearance, and the number
    of each row's value.

    It works piece by piece: grouping ten million rows at once takes 0.5 GB.
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
    """Return whether all rows are equal, as process and device are in most traces; cheaper than grouping
    them."""
    return len(piece) > 0 and all(
        column.null_count() in (0, len(piece)) and column.min() == column.max() for column in piece
    )


def rows_of(
    count: int,
    of: NDArray[np.unsignedinteger[Any]],
    chosen: NDArray[np.bool_] | None = None,
    mapped: Mapped | None = None,
) -> Iterator[tuple[int, Ints]]:
    """Yield the number and the rows, in order, of each of ``count`` lanes that has ``chosen`` rows (or any).

    Rows are counted, then written to their lane's place, piece by piece. Only the result is in memory; with
    ``mapped`` it is in a file instead.
    """
    begin = np.zeros(count + 1, np.int64)
    for part in pieces(len(of)):
        some = of[part] if chosen is None else of[part][chosen[part]]
        begin[1:] += np.bincount(some, minlength=count)
    np.cumsum(begin, out=begin)
    order, next_place = zeros(mapped, int(begin[-1]), np.int64), begin[:-1].copy()
    for part in pieces(len(of)):
        here = np.arange(part.stop - part.start) if chosen is None else np.flatnonzero(chosen[part])
        lane = of[part][here]
        counts = np.bincount(lane, minlength=count)
        here += part.start
        lanes_here = np.flatnonzero(counts)
        if len(lanes_here) > 1:
            here = here[np.argsort(lane, kind="stable")]  # NumPy sorts 8 and 16 bits by counting
            moved = next_place[lanes_here] - (np.cumsum(counts[lanes_here]) - counts[lanes_here])
            order[np.arange(len(here)) + np.repeat(moved, counts[lanes_here])] = here
        elif len(lanes_here):
            order[next_place[lanes_here[0]] : next_place[lanes_here[0]] + len(here)] = here
        next_place += counts
    for number in np.flatnonzero(np.diff(begin)).tolist():
        yield number, order[begin[number] : begin[number + 1]]
