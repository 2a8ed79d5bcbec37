"""Join a process's ranges with the trace of JAX's or TensorFlow's profiler, on the recorder's clock."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.recording_format import PROBE
from opscope.core.tables.clockfit import NEAR_DRIFT, ClockFit, fit
from opscope.core.tables.intervals import nest
from opscope.core.tables.trace import Trace
from opscope.readers.recording.beside import clock_of, hits, joined, probes
from opscope.readers.recording.onclock import moved, to_unix

_TAKEN: Final = ("devices", "calls", "kernels", "memops", "allocations")


def merge(ranges: Trace, profile: Trace) -> Trace:
    """Return the recorder's part ``ranges`` with the tables of ``profile``, all on the recorder's clock.

    The probes in the part give the offset of the clocks, and which thread of the profiler is which system
    thread. If no probe is found, the two Unix clocks give the offset. A note says which, and its error.
    Ranges that both recorded (steps, annotations, jitted calls) are kept once.
    """
    profile = _of_one(profile)
    own, theirs = ranges["ranges"], profile["ranges"]
    guess = to_unix(profile) - to_unix(ranges)
    fitted, alias = _fit(ranges, theirs, guess) or (None, {})
    clock, note = clock_of(fitted, guess, "operations")
    profile = _rename(profile, alias)
    added = moved(profile["ranges"].filter(pl.col("text").cast(pl.String) != PROBE), clock)
    added = added.filter(~_recorded_too(own, added, clock.error_ns))
    last = own["id"].max()
    first = 0 if last is None else int(last) + 1  # type: ignore[arg-type]
    added = added.with_columns(
        (pl.int_range(pl.len(), dtype=pl.Int64) + first).alias("id"),
        pl.lit(0, pl.Int32).alias("process"),
    )
    threads_there = ranges["threads"]["thread"].implode()
    threads = profile["threads"].filter(~pl.col("thread").is_in(threads_there))
    changed = {
        "ranges": pl.concat([own, added]),
        "specs": pl.concat([ranges["specs"], profile["specs"]]),
        "threads": pl.concat([ranges["threads"], threads]),
    }
    merged = joined(ranges, profile, _TAKEN, clock, "xplane", changed)
    merged.origin["operations"] = profile.origin
    merged.note(*note)
    return merged


def _of_one(profile: Trace) -> Trace:
    """Return ``profile`` without the subprocesses that the profiler gathered: each has its own recording."""
    if len(profile["processes"]) < 2:
        return profile
    first = pl.col("process") == profile["processes"]["process"].min()
    frames = {name: profile[name] for name in profile.present if "process" in profile[name].columns}
    return profile.replace(**{name: frame.filter(first) for name, frame in frames.items()})


def _rename(profile: Trace, alias: dict[int, int]) -> Trace:
    """Return ``profile`` with the system's thread ids where they are known."""
    tables = {}
    for name in ("ranges", "calls", "allocations", "threads"):
        if profile.has(name):
            columns = [c for c in ("thread", "end_thread") if c in profile[name].columns]
            tables[name] = profile[name].with_columns(
                pl.col(column).replace(alias) for column in columns
            )
    return profile.replace(**tables)


def _recorded_too(own: pl.DataFrame, theirs: pl.DataFrame, error: int) -> pl.Series:
    """Which of the profiler's ranges the adapter also recorded.

    These are steps, if the adapter recorded any; the program's annotations on their own thread; TensorFlow's
    eager ops; and jitted calls inside one of the adapter's, which are the same call or are traced into it.
    """
    domain, text = (theirs[name].cast(pl.String) for name in ("domain", "text"))
    steps = (own["category"] == "step").fill_null(False).any()
    is_recorded = ((theirs["category"] == "step").fill_null(False) & steps).to_numpy().copy()
    users = own.filter(pl.col("domain").cast(pl.String) == "opscope.user")["text"].cast(pl.String)
    annotated = domain.is_in(["runtime", "opscope.user"]) & theirs["attrs"].is_null()
    is_recorded |= (annotated & text.is_in(users.unique().implode())).to_numpy()
    eager = domain == "opscope.tensorflow"
    is_recorded |= (
        eager & (own["domain"] == "opscope.tensorflow").fill_null(False).any()
    ).to_numpy()
    is_call = (pl.col("category") == "graph").fill_null(False)
    for (thread,), part in theirs.with_row_index("row").filter(is_call).group_by("thread"):
        mine = own.filter(is_call & (pl.col("thread") == thread))
        if not len(mine):
            continue
        tree = nest(mine["start"].to_numpy() - error, mine["end"].to_numpy() + error)
        is_recorded[part["row"].to_numpy()] |= tree.innermost(part["start"].to_numpy()) >= 0
    return pl.Series(is_recorded)


def _fit(ranges: Trace, theirs: pl.DataFrame, guess: int) -> tuple[ClockFit, dict[int, int]] | None:
    """The fit over the probes that were found, and the matching of threads; None if none were found."""
    probe_rows = probes(ranges)
    probe_ranges = theirs.filter(pl.col("text").cast(pl.String) == PROBE).sort("start")
    start, end = probe_ranges["start"].to_numpy(), probe_ranges["end"].to_numpy()
    rows = hits(probe_rows, start, end, guess)
    if rows is None:
        return None
    hit = rows >= 0
    # the profiler has its own thread numbers; the recorder's are the system's
    thread_numbers = probe_ranges["thread"].gather(rows[hit]).to_list()
    alias = dict(zip(thread_numbers, probe_rows[hit, 2].tolist(), strict=True))
    return fit(
        probe_rows[hit, 0], probe_rows[hit, 1], start[rows[hit]], end[rows[hit]], NEAR_DRIFT
    ), alias
