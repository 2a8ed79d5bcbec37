"""Join a process's ranges with the trace of PyTorch's profiler, on the recorder's clock."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.recording_format import PROBE_CALL
from opscope.core.tables.clockfit import NEAR_DRIFT, ClockFit, fit
from opscope.core.tables.trace import Trace, conform, next_range_id
from opscope.readers.recording.beside import clock_of, hits, joined, probes
from opscope.readers.recording.kineto_threads import unseen, with_os_threads
from opscope.readers.recording.onclock import moved, to_unix

#: Tables that are taken from the profiler's trace. Its ranges are not: they would duplicate the recorder's.
_TAKEN: Final = ("devices", "calls", "kernels", "memops", "graph_nodes", "syncs", "counters")


def merge(ranges: Trace, kernels: Trace) -> Trace:
    """Return the recorder's part ``ranges`` with the tables of ``kernels``, all on the recorder's clock.

    The probes in the part give the offset of the clocks. If no probe is found in ``kernels``, the two Unix
    clocks give the offset. A note says which, and its error. Durations are unchanged.
    """
    guess = to_unix(kernels) - to_unix(ranges)
    fitted, probe_threads = _fit(ranges, kernels["calls"], guess)
    clock, note = clock_of(fitted, guess, "kernels")
    calls, unclear = with_os_threads(kernels["calls"], ranges, clock, probe_threads)
    threads = pl.concat([ranges["threads"], unseen(calls, ranges["threads"])])
    with_threads = kernels.replace(calls=calls) if kernels.has("calls") else kernels
    merged = joined(ranges, with_threads, _TAKEN, clock, "kineto", {"threads": threads})
    if len(kernels["counters"]):
        merged = _with_marks(merged, kernels["ranges"], clock)
    merged.origin["kernels"] = kernels.origin
    merged.note(*note)
    if unclear:
        merged.note(
            "warning",
            "GPU runtime calls whose thread is not known: several threads share the number that the "
            "profiler gives",
            unclear,
        )
    return merged


def _with_marks(merged: Trace, theirs: pl.DataFrame, clock: ClockFit) -> Trace:
    """Return the trace with the marks that name the kernels of ``counters``; their ids follow the others."""
    used = merged["counters"]["range_id"].drop_nulls().unique()
    marks = moved(theirs.filter(pl.col("id").is_in(used.implode())), clock)
    shift = next_range_id(merged["ranges"])
    marks = marks.with_columns(pl.col("id") + shift, pl.lit(0, pl.Int32).alias("process"))
    return merged.replace(
        ranges=pl.concat([merged["ranges"], conform("ranges", marks)]),
        counters=merged["counters"].with_columns(pl.col("range_id") + shift),
    )


def _fit(ranges: Trace, calls: pl.DataFrame, guess: int) -> tuple[ClockFit | None, pl.DataFrame]:
    """The fit over the probes and their calls (None if they are not found), and the profiler's number of
    each system thread that made a probe: number, thread."""
    probe_rows = probes(ranges)
    probe_calls = calls.filter(pl.col("name").cast(pl.String).str.contains(PROBE_CALL)).sort(
        "start"
    )
    start, end = probe_calls["start"].to_numpy(), probe_calls["end"].to_numpy()
    rows = hits(probe_rows, start, end, guess)
    if rows is None:
        return None, pl.DataFrame(schema={"number": pl.Int64, "thread": pl.Int64})
    hit = rows >= 0
    pairs = {"number": probe_calls["thread"].gather(rows[hit]), "thread": probe_rows[hit, 2]}
    fitted = fit(
        probe_rows[hit, 0], probe_rows[hit, 1], start[rows[hit]], end[rows[hit]], NEAR_DRIFT
    )
    return fitted, pl.DataFrame(pairs).unique()
