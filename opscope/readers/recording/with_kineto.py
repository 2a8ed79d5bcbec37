"""A process's ranges with what PyTorch's profiler saw beside them, on the recorder's clock."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.recording_format import PROBE_CALL
from opscope.core.tables.clockfit import NEAR_DRIFT, ClockFit, fit
from opscope.core.tables.trace import Trace
from opscope.readers.recording.beside import clock_of, hits, joined, probes
from opscope.readers.recording.kineto_threads import unseen, with_os_threads
from opscope.readers.recording.onclock import to_unix

#: What the profiler's trace gives; its own ranges would double the recorder's.
_TAKEN: Final = ("devices", "calls", "kernels", "memops", "graph_nodes", "syncs")


def merge(ranges: Trace, kernels: Trace) -> Trace:
    """The recorder's part ``ranges`` with the tables of ``kernels``, all times on the recorder's clock.

    The probes in the part say how the clocks lie; where none can be found in ``kernels``, the two
    Unix clocks do. Either is noted with its error. Durations stay as they were.
    """
    guess = to_unix(kernels) - to_unix(ranges)
    fitted, met = _fit(ranges, kernels["calls"], guess)
    clock, note = clock_of(fitted, guess, "kernels")
    calls, unclear = with_os_threads(kernels["calls"], ranges, clock, met)
    known = pl.concat([ranges["threads"], unseen(calls, ranges["threads"])])
    with_threads = kernels.replace(calls=calls) if kernels.has("calls") else kernels
    merged = joined(ranges, with_threads, _TAKEN, clock, "kineto", {"threads": known})
    merged.origin["kernels"] = kernels.origin
    merged.note(*note)
    if unclear:
        merged.note(
            "warning",
            "GPU runtime calls whose thread is not known: the profiler's number of it is that of "
            "several threads",
            unclear,
        )
    return merged


def _fit(ranges: Trace, calls: pl.DataFrame, guess: int) -> tuple[ClockFit | None, pl.DataFrame]:
    """The fit over the probes and their calls, None where they are not found; and which thread of the
    profiler's made the calls that the system's ``thread`` is known to have made: number, thread."""
    asked = probes(ranges)
    seen = calls.filter(pl.col("name").cast(pl.String).str.contains(PROBE_CALL)).sort("start")
    start, end = seen["start"].to_numpy(), seen["end"].to_numpy()
    rows = hits(asked, start, end, guess)
    if rows is None:
        return None, pl.DataFrame(schema={"number": pl.Int64, "thread": pl.Int64})
    hit = rows >= 0
    pairs = {"number": seen["thread"].gather(rows[hit]), "thread": asked[hit, 2]}
    fitted = fit(asked[hit, 0], asked[hit, 1], start[rows[hit]], end[rows[hit]], NEAR_DRIFT)
    return fitted, pl.DataFrame(pairs).unique()
