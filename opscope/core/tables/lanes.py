"""Number the threads of a trace: a row's (process, thread) becomes one small integer, its lane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.tables.columns import pairs
from opscope.core.tables.intervals import NONE, Ints

#: Up to this many lanes, a scan of all rows per lane takes less time than a sort.
_FEW: Final = 32
#: Rows come thread by thread if there are at least this many per change of thread.
_RUN: Final = 16


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
            parts: dict[int, list[Ints]] = {}
            for begin, end in pairwise([0, *changes.tolist(), len(self.of)]):
                rows = np.flatnonzero(chosen[begin:end])
                if len(rows):
                    rows += begin
                    parts.setdefault(int(self.of[begin]), []).append(rows)
            for number in sorted(parts):
                yield self.keys[number], np.concatenate(parts.pop(number))
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
    changes = np.flatnonzero((process[1:] != process[:-1]) | (thread[1:] != thread[:-1])) + 1
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
