"""Rule 1: a kernel's launch is the call with its process and correlation id."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.tables.columns import LookUp, pieces
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.pool import Pool

#: Processes of the trace that are looked up at the same time.
_WORKERS: Final = 2


def launching_calls(executed: pl.DataFrame, calls: pl.DataFrame) -> NDArray[np.int32]:
    """Return for each executed row the row of the call with the same (process, correlation), or -1.

    Correlation ids repeat from process to process, so each process is looked up by itself. If several
    calls have one id (a runtime call and the driver call inside it), the last to start is the launch; if
    ids are reused later, it is the last that starts before the kernel does.
    """
    found = np.full(len(executed), NONE, np.int32)
    if not len(executed) or not len(calls):
        return found
    theirs, ours = _by_process(calls), _by_process(executed)

    def find(process: int) -> None:
        rows, launches = ours[process], theirs[process]
        ids = calls["correlation"].gather(launches).fill_null(NONE - 1).to_numpy()
        start = calls["start"].gather(launches).to_numpy()
        if np.any(start[1:] < start[:-1]):
            by_start = np.argsort(start, kind="stable")
            launches, ids, start = launches[by_start], ids[by_start], start[by_start]
        latest = LookUp(ids, launches)
        once = bool(np.all(ids[1:] > ids[:-1]))
        # several calls of one id are sorted for all kernels at once
        for part in pieces(len(rows)) if once else (slice(None),):
            some = rows[part]
            wanted = executed["correlation"].gather(some).fill_null(NONE).to_numpy()
            last = latest(wanted)
            if not once:
                begin = executed["start"].gather(some).to_numpy()
                last = _before(last, begin, wanted, calls, (ids, launches, start))
            found[some] = last

    with Pool(_WORKERS) as pool:  # NumPy releases the GIL
        for _ in pool.map(find, ours.keys() & theirs.keys()):
            pass
    return found


def _before(
    last: Ints, begin: Ints, wanted: Ints, calls: pl.DataFrame, launches: tuple[Ints, Ints, Ints]
) -> Ints:
    """Return ``last``, the call of each kernel, replaced by the latest call that starts before the kernel.

    ``begin`` is each kernel's start (ns), ``wanted`` its id; ``launches`` are ids, rows and starts (ns) of
    the calls, by start. If no call starts earlier, the last stays: the clocks of host and device may differ
    by more than a launch takes.
    """
    early = calls["start"].gather(np.maximum(last, 0)).to_numpy() > begin
    early &= last >= 0
    if not early.any():
        return last
    ids, numbers, start = launches
    known = np.unique(ids)
    # (id, place in time) as one number: both are below the number of calls
    many = len(start) + 1
    key = np.searchsorted(known, ids) * many + np.searchsorted(start, start, side="left") + 1
    order = np.argsort(key, kind="stable")
    code = np.searchsorted(known, wanted[early])
    time = np.searchsorted(start, begin[early], side="right")
    place = np.searchsorted(key[order], code * many + time, side="right") - 1
    hit = (place >= 0) & (key[order[place]] // many == code)
    found: Ints = last.copy()
    found[np.flatnonzero(early)[hit]] = numbers[order[place[hit]]]
    return found


def _by_process(frame: pl.DataFrame) -> dict[int, Ints]:
    process = frame["process"].fill_null(NONE).to_numpy()
    return {int(number): np.flatnonzero(process == number) for number in np.unique(process)}
