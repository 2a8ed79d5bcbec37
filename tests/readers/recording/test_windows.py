"""Which device work of a part counts: what was launched while its ranges were recorded."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.readers.recording.windows import BEFORE, with_windows


@pytest.mark.parametrize(
    ("error", "kept"), [(0, [3, 4]), (150, [2, 3, 4]), (50_000_000, [1, 2, 3, 4])]
)
def test_what_was_launched_before_the_ranges_were_recorded_is_left_out(trace_of, error, kept):
    """In a program that runs already the profiler begins first; what lies within the clock's error counts,
    and all of it where the clocks are not tied."""
    at = {1: 500, 2: 900, 3: 1_000, 4: 1_100}
    calls = [
        {"process": 0, "thread": 1, "start": start, "end": start + 10, "correlation": number}
        for number, start in at.items()
    ]
    ran = [
        {
            "process": 0,
            "device": 0,
            "stream": 7,
            "start": 2_000 + n,
            "end": 2_001 + n,
            "correlation": n,
        }
        for n in at
    ]
    trace = trace_of(
        processes=[{"process": 0, "host": "h", "pid": 1, "start_time": 1}],
        calls=calls,
        kernels=[{**one, "name": "k"} for one in ran],
        memops=[{**one, "kind": "HtoD"} for one in ran],
        clocks=[{"clock_domain": 0, "kind": "perf_counter_ns", "error_ns": error}],
    )
    trace.origin.update(profiling=(400, "kernels"), recorded=(1_000, 9_000), window=None)
    trace.origin.update(
        kernels=True,
        window={"start": 400, "end": 9_000, "first_step": None, "last_step": None, "ended": None,
                "chosen": False},
    )  # fmt: skip
    (part,) = with_windows([trace])
    for name in ("kernels", "memops"):
        assert part[name]["correlation"].to_list() == kept
    assert len(part["calls"]) == len(at)
    told = dict(part["notes"].select("what", "how_many").rows())
    assert told.get(BEFORE, 0) == 2 * (len(at) - len(kept))
    assert part["windows"].select(pl.len()).item() == 0
