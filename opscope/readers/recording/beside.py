"""Put a profiler's tables on the recorder's clock, by calls (probes) that both recorded, and join them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.tables.clockfit import ClockFit, match
from opscope.core.tables.intervals import Ints
from opscope.core.tables.trace import Trace, conform
from opscope.readers.recording.onclock import moved, to_unix

#: With a larger clock error, work at the edge of a range may be counted in a neighbouring range. On an H100
#: it was 1.2 to 3.4 us, and each kernel of 12 programs had the op that torch.profiler has around its launch.
ACCEPTED_NS: Final = 5_000
#: How far the two Unix clocks may disagree in the search for a probe.
REACH_NS: Final = 50_000_000


def probes(ranges: Trace) -> Ints:
    """Return the probes of the recorder's part: rows of (before, after, thread), by time."""
    probes_read = np.array(ranges.origin.get("probes") or [], dtype=np.int64).reshape(-1, 3)
    return probes_read[np.argsort(probes_read[:, 0], kind="stable")]


def hits(probe_rows: Ints, start: Ints, end: Ints, guess: int) -> Ints | None:
    """Return, for each probe, the row of the call [start, end] that is the probe; -1 for none.

    ``guess`` is roughly what to add to the calls' times. Returns None if so few probes are found that the
    matches may be chance.
    """
    rows = match(probe_rows[:, 0], probe_rows[:, 1], start, end, guess, REACH_NS)
    return rows if rows is not None and (rows >= 0).sum() * 2 > len(rows) else None


def clock_of(fitted: ClockFit | None, guess: int, subject: str) -> tuple[ClockFit, tuple[str, str]]:
    """Return the clock for placing ``subject`` (the Unix clocks' if no probe was found), and the text of a
    note."""
    if fitted is None:
        return ClockFit(0, guess, 0.0, REACH_NS, 0, 0), (
            "warning",
            f"no probe found with certainty in the profiler's trace: {subject} are placed by the Unix clock",
        )
    good = fitted.error_ns <= ACCEPTED_NS and fitted.slack_ns >= 0
    edges = "" if good else "; work at the edges of ranges may be counted in a neighbouring range"
    return fitted, (
        "info" if good else "warning",
        f"{subject} are placed on the recorder's clock to within {fitted.error_ns} ns by "
        f"{fitted.readings} probes{edges}",
    )


def joined(
    ranges: Trace,
    profile: Trace,
    taken: Iterable[str],
    clock: ClockFit,
    kind: str,
    changed: dict[str, pl.DataFrame],
) -> Trace:
    """Return the recorder's part with the profiler's tables ``taken``, moved to the recorder's clock.

    ``changed`` are finished tables, already on that clock. The profiler's clock is a separate domain in
    ``clocks``; its ``to_unix_ns`` applies to the moved times.
    """
    tables: dict[str, Any] = {name: ranges[name] for name in ranges.present}
    for name in taken:
        if profile.has(name):
            tables[name] = moved(profile[name], clock).with_columns(
                pl.lit(0, pl.Int32).alias("process")
            )
    tables |= changed
    tables["notes"] = pl.concat([ranges["notes"], profile["notes"]])
    row = pl.DataFrame(
        {
            "clock_domain": [1],
            "kind": [kind],
            "to_unix_ns": [to_unix(ranges)],
            "drift_ppm": [clock.drift * 1e6],
            "error_ns": [clock.error_ns],
        }
    )
    tables["clocks"] = pl.concat([ranges["clocks"], conform("clocks", row)])
    origin = {key: value for key, value in ranges.origin.items() if key != "probes"}
    return Trace.of(tables, origin)
