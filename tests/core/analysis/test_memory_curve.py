"""The curve of memory: few points, and every peak among them."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.memory.memory_curve import memory_curve
from opscope.profile import Profile


def change(time: int, size: int, total: int | None = None, **more: object) -> dict:
    return {"process": 0, "device": 0, "time": time, "address": None, "bytes": size,
            "total": total, **more}  # fmt: skip


def test_a_short_curve_has_every_change(trace_of):
    trace = trace_of(
        allocations=[
            change(10, 100, 1100, reserved=2048),
            change(20, -50, 1050, reserved=2048),
            change(30, 10, 1060, reserved=1536),
        ]
    )
    rows = Profile(trace).memory_curve().select("time", "in_use", "reserved", "unused").rows()
    assert rows == [(10, 1100, 2048, 948), (20, 1050, 2048, 998), (30, 1060, 1536, 476)]


def test_a_cpu_that_reserves_nothing_has_no_unused_memory(trace_of):
    """PyTorch's profiler says that the CPU's allocator has reserved 0 bytes: it reserves nothing at all."""
    trace = trace_of(allocations=[change(10, 100, 100, reserved=0, device=-1)])
    profile = Profile(trace)
    assert profile.memory_curve().select("reserved", "unused").row(0) == (None, None)
    assert profile.memory().select("reserved", "peak_unused", "most_unused").row(0) == (None,) * 3


def test_what_was_reserved_and_unused_is_told_at_the_peak_and_at_its_most(trace_of):
    trace = trace_of(
        allocations=[
            change(10, 100, 1100, reserved=2048),
            change(20, 500, 1600, reserved=1700),
            change(30, -1500, 100, reserved=1800),
        ]
    )
    peak = Profile(trace).memory().row(0, named=True)
    assert (peak["peak_memory"], peak["peak_reserved"], peak["peak_unused"]) == (1600, 1700, 100)
    assert (peak["reserved"], peak["most_unused"]) == (2048, 1700)


def test_fewer_points_than_a_span_keeps_are_refused(trace_of):
    with pytest.raises(ValueError, match="at least 6, not 5"):
        Profile(trace_of(ranges=[])).memory_curve(points=5)


def test_without_memory_there_is_no_curve(trace_of):
    profile = Profile(trace_of(ranges=[]))
    assert profile.memory_curve().is_empty()
    assert profile.memory_curve().columns == [
        "process",
        "device",
        "time",
        "in_use",
        "reserved",
        "unused",
    ]


times = st.lists(st.integers(0, 1 << 62), min_size=1, max_size=80).map(sorted)


@given(times, st.integers(6, 40), st.data())
def test_of_any_history_few_points_keep_the_ends_and_all_extremes(trace_of, when, points, data):
    sizes = data.draw(st.lists(st.integers(-1000, 1000), min_size=len(when), max_size=len(when)))
    reserved = data.draw(
        st.lists(st.none() | st.integers(1, 5000), min_size=len(when), max_size=len(when))
    )
    devices = data.draw(st.lists(st.integers(0, 1), min_size=len(when), max_size=len(when)))
    rows = [
        change(t, size, reserved=r, device=d)
        for t, size, r, d in zip(when, sizes, reserved, devices, strict=True)
    ]
    trace = trace_of(allocations=rows)
    whole, curve = memory_curve(trace, 10_000), memory_curve(trace, points)
    assert len(whole) == len(rows)
    peaks = Profile(trace).memory()
    for device in set(devices):
        here, every = (frame.filter(pl.col("device") == device) for frame in (curve, whole))
        assert len(here) <= points
        assert set(here.rows()) <= set(every.rows())
        assert here["time"].is_sorted()
        assert here["time"][0] == every["time"][0]
        assert here["time"][-1] == every["time"][-1]
        peak = peaks.filter(pl.col("device") == device).row(0, named=True)
        assert here["in_use"].max() == peak["peak_memory"]
        assert here["unused"].max() == peak["most_unused"] == every["unused"].max()
        assert here["reserved"].max() == every["reserved"].max()
        assert here["in_use"].min() == every["in_use"].min()
        assert here["in_use"][-1] == peak["in_use"]


def test_a_spike_in_each_part_of_a_long_history_is_kept(trace_of):
    """A curve of every hundredth change would lose nearly all of them."""
    rows = []
    for number in range(1000):
        size = 10 + (number if number % 100 == 37 else 0)
        rows += [change(2 * number, size), change(2 * number + 1, -size)]
    curve = memory_curve(trace_of(allocations=rows), 60)
    assert len(curve) <= 60
    spikes = {10 + number for number in range(37, 1000, 100)}
    assert spikes <= set(curve["in_use"].to_list())
