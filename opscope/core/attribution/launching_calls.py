"""Rule 1: a kernel's launch is the call with its process and correlation id."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.once import once
from opscope.core.tables.columns import LookUp, gathered, pieces
from opscope.core.tables.intervals import NONE, Ints, in_order
from opscope.core.tables.lanes import distinct_numbers, rows_of
from opscope.core.tables.mapped import Mapped, full, zeros
from opscope.core.tables.pool import Pool

#: Processes of the trace that are looked up at the same time.
_WORKERS: Final = 2


def launching_calls(
    executed: pl.DataFrame, calls: pl.DataFrame, mapped: Mapped | None = None
) -> NDArray[np.int32]:
    """Return for each executed row the row of the call with the same (process, correlation), or -1.

    Correlation ids repeat from process to process, so each process is looked up by itself. If several calls
    have one id (a runtime call and the driver call inside it), the last to start is the launch; if ids are
    reused later, the last call that starts before the kernel is the launch. ``mapped``: where long columns
    are kept, if not in memory.
    """
    last_calls = full(mapped, len(executed), NONE, np.int32)
    if not len(executed) or not len(calls):
        return last_calls
    theirs, ours = _by_process(calls, mapped), _by_process(executed, mapped)

    def find(process: int) -> None:
        rows, launches = ours[process], theirs[process]
        launches = in_order(calls["start"].to_numpy(), launches, mapped)
        ids = gathered(calls["correlation"], launches, mapped, NONE - 1)
        latest = LookUp(ids, launches, mapped)
        latest_before = None if _ascending(ids) else _LatestBefore(calls, ids, launches, mapped)
        for part in pieces(len(rows)):
            some = rows[part]
            wanted = executed["correlation"].gather(some).fill_null(NONE).to_numpy()
            last = latest(wanted)
            if latest_before is not None:
                begin = executed["start"].gather(some).to_numpy()
                last = latest_before(last, begin, wanted)
            last_calls[some] = last

    with Pool(_WORKERS) as pool:  # NumPy releases the GIL
        for _ in pool.map(find, ours.keys() & theirs.keys()):
            pass
    return last_calls


class _LatestBefore:
    """Finds the latest call of an id that starts before a kernel, where several calls have one id."""

    def __init__(
        self, calls: pl.DataFrame, ids: Ints, launches: Ints, mapped: Mapped | None
    ) -> None:
        """``ids`` and ``launches``: the ids and the rows of the calls, by start."""
        self._calls, self._ids, self._launches, self._mapped = calls, ids, launches, mapped

    def __call__(self, last: Ints, begin: Ints, wanted: Ints) -> Ints:
        """Return ``last``, the call of each kernel, replaced by the latest one that starts before the kernel.

        ``begin`` is each kernel's start (ns), ``wanted`` its id. If no call starts earlier, the last stays:
        the clocks of host and device may differ by more than a launch takes.
        """
        early = self._calls["start"].gather(np.maximum(last, 0)).to_numpy() > begin
        early &= last >= 0
        if not early.any():
            return last
        count = len(self._start) + 1
        code = np.searchsorted(self._known, wanted[early])
        time = np.searchsorted(self._start, begin[early], side="right")
        index = np.searchsorted(self._key, code * count + time, side="right") - 1
        hit = (index >= 0) & (self._key[index] // count == code)
        calls: Ints = last.copy()
        calls[np.flatnonzero(early)[hit]] = self._launches[self._order[index[hit]]]
        return calls

    @once
    def _start(self) -> Ints:
        """The start (ns) of each call, in order."""
        return gathered(self._calls["start"], self._launches, self._mapped)

    @once
    def _known(self) -> Ints:
        """The distinct ids, in order."""
        return np.unique(self._ids)

    @once
    def _order(self) -> Ints:
        """The places of the calls by id; calls of equal id by start."""
        return np.argsort(self._unordered, kind="stable")

    @once
    def _unordered(self) -> Ints:
        """The id and the place in time of each call, packed into one number: both are below the number of
        calls."""
        start, width = self._start, len(self._start) + 1
        index = np.searchsorted(start, start, side="left") + 1
        return np.searchsorted(self._known, self._ids) * width + index

    @once
    def _key(self) -> Ints:
        """``_unordered`` in order."""
        return self._unordered[self._order]


def _ascending(ids: Ints) -> bool:
    """Whether each id is greater than the id before."""
    last: int | None = None
    for part in pieces(len(ids)):
        some = ids[part]
        if len(some) and ((last is not None and some[0] <= last) or np.any(some[1:] <= some[:-1])):
            return False
        last = int(some[-1]) if len(some) else last
    return True


def _by_process(frame: pl.DataFrame, mapped: Mapped | None) -> dict[int, Ints]:
    process = frame["process"].fill_null(NONE).to_numpy()
    numbers = distinct_numbers(process)
    of = zeros(mapped, len(process), np.min_scalar_type(len(numbers)))
    for part in pieces(len(process)):
        of[part] = np.searchsorted(numbers, process[part])
    return {int(numbers[number]): rows for number, rows in rows_of(len(numbers), of, None, mapped)}
