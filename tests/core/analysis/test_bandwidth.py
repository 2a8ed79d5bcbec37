"""The bandwidth of copies, against a sum at every ns; and curves that keep their extremes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.device.bandwidth import NO_BYTES, SOME_BYTES, bandwidth_curve
from opscope.core.analysis.device.thinned import thinned
from tests.device_traces import Ran, profiled, traced, works


def test_the_mean_is_all_bytes_over_all_time_and_the_others_are_of_single_copies():
    profile = profiled([Ran(0, 10, kind="HtoD", bytes=100), Ran(10, 110, kind="HtoD", bytes=10)])
    row = profile.bandwidth().row(0, named=True)
    assert (row["calls"], row["bytes"], row["total"], row["reason"]) == (2, 110, 110, None)
    names = ("mean", "least", "median", "most")
    assert [row[f"{name}_bandwidth"] for name in names] == pytest.approx([1e9, 1e8, 5.05e9, 1e10])


def test_copies_without_bytes_have_no_bandwidth_and_say_so():
    row = (
        profiled([Ran(0, 10, kind="HtoD"), Ran(20, 30, kind="HtoD")]).bandwidth().row(0, named=True)
    )
    assert (row["bytes"], row["mean_bandwidth"], row["reason"]) == (None, None, NO_BYTES)


def test_copies_without_bytes_are_in_no_rate_of_the_others():
    row = (
        profiled([Ran(0, 10, kind="HtoD", bytes=100), Ran(20, 90, kind="HtoD")])
        .bandwidth()
        .row(0, named=True)
    )
    assert (row["mean_bandwidth"], row["reason"]) == (1e10, SOME_BYTES)


def test_a_copy_without_a_length_has_no_rate_of_its_own():
    profile = profiled([Ran(0, 10, kind="HtoD", bytes=100), Ran(20, 20, kind="HtoD", bytes=7)])
    assert profile.bandwidth()["most_bandwidth"].to_list() == [1e10]
    assert profile.bandwidth_curve()["time"].to_list() == [0, 10]


@given(works(kinds=True))
def test_the_curve_is_the_sum_of_the_rates_of_what_runs(work):
    curve = bandwidth_curve(traced(work)["memops"])
    for (device, kind), points in curve.group_by("device", "kind"):
        mine = [
            one
            for one in work
            if (one.device, one.kind) == (device, kind) and one.bytes is not None
        ]
        held = dict(points.select("time", "moving_bandwidth").rows())
        value = 0.0
        for now in range(-1, 75):
            value = held.get(now, value)
            rates = [
                one.bytes / (one.end - one.start) * 1e9
                for one in mine
                if one.start <= now < one.end
            ]
            assert value == pytest.approx(sum(rates), rel=1e-9, abs=1e-3)
            if not rates:
                assert value == 0


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(-50, 50)), min_size=1, max_size=200),
       st.integers(4, 60))  # fmt: skip
def test_a_thinned_curve_is_bounded_and_keeps_its_extremes(points, most):
    time = np.sort(np.array([one for one, _ in points]))
    value = np.array([other for _, other in points])
    keep = thinned(time, value, most)
    assert len(keep) <= max(most, 4)
    assert np.all(np.diff(keep) > 0)
    assert (value[keep].max(), value[keep].min()) == (value.max(), value.min())
    assert (keep[0], keep[-1]) == (0, len(time) - 1)
    if len(time) <= most:
        assert len(keep) == len(time)


def test_a_profile_without_copies_has_no_rows():
    profile = profiled([Ran(0, 10)])
    assert profile.bandwidth().is_empty()
    assert profile.bandwidth_curve().is_empty()
    assert profile.bandwidth().schema["mean_bandwidth"] == pl.Float64
