"""Idle time: what a device waited for, against a count of every ns."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.device.device_work import NOT_TIMED
from opscope.core.analysis.device.idle import KINDS, NO_LAUNCHES, SOME_LAUNCHES
from tests.device_traces import OP, Ran, profiled, works

FIGURES = ("window", "busy_time", "idle_time", *KINDS)


def figures(frame: pl.DataFrame) -> dict:
    assert len(frame) == 1
    return frame.select(FIGURES).row(0, named=True)


def step(number: int, start: int, end: int) -> dict:
    return {**OP, "domain": "opscope.user", "category": "step", "text": f"step {number}", "start": start,
            "end": end}  # fmt: skip


def test_a_gap_is_host_wait_if_the_launch_came_after_the_work_before_had_ended():
    profile = profiled([Ran(0, 10, -5), Ran(50_000, 50_010, 11)])
    assert figures(profile.idle()) == {
        "window": 50_010, "busy_time": 20, "idle_time": 49_990, "host_wait": 49_990,
        "kernel_wait": 0, "other_wait": 0, "unknown_wait": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("gap", "kind"), [(29_999, "kernel_wait"), (30_000, "other_wait")])
def test_a_gap_of_a_queued_kernel_is_kernel_wait_below_30_us(gap, kind):
    profile = profiled([Ran(0, 10, -5), Ran(10 + gap, 20 + gap, 10)])
    assert figures(profile.idle())[kind] == figures(profile.idle())["idle_time"] == gap


def test_the_threshold_of_kernel_wait_can_be_chosen():
    profile = profiled([Ran(0, 10, -5), Ran(110, 120, 10)])
    assert figures(profile.idle(kernel_wait=100))["other_wait"] == 100
    assert figures(profile.idle(kernel_wait=101))["kernel_wait"] == 100
    assert figures(profile.idle("stream", kernel_wait=100))["other_wait"] == 100


def test_a_gap_without_a_launch_record_is_unknown_and_the_row_says_so():
    profile = profiled([Ran(0, 10, -5), Ran(50, 60)])
    assert figures(profile.idle())["unknown_wait"] == 40
    assert profile.idle()["reason"].to_list() == [SOME_LAUNCHES]


def test_without_launches_in_the_trace_the_kinds_are_null():
    profile = profiled([Ran(0, 10), Ran(50, 60)])
    row = figures(profile.idle())
    assert (row["idle_time"], row["unknown_wait"]) == (40, 40)
    assert [row[name] for name in KINDS[:3]] == [None] * 3
    assert profile.idle()["reason"].to_list() == [NO_LAUNCHES]


def test_a_file_of_totals_has_no_idle_time_and_no_overlap():
    profile = profiled([Ran(0, 10), Ran(10, 60)], origin={"times": "made up"})
    assert set(figures(profile.idle()).values()) == {None}
    assert profile.idle()["reason"].to_list() == [NOT_TIMED]
    assert set(profile.overlap()["time"]) == {None}
    assert set(profile.overlap()["reason"]) == {NOT_TIMED}


def test_a_device_is_busy_while_any_of_its_streams_is():
    profile = profiled([Ran(0, 10, -5), Ran(5, 30, -4, stream=9), Ran(40, 50, -3)])
    assert figures(profile.idle())["idle_time"] == 10
    streams = {row["stream"]: row["idle_time"] for row in profile.idle("stream").to_dicts()}
    assert streams == {7: 30, 9: 0}


def test_the_kernels_of_one_graph_launch_wait_for_no_host():
    graph = [Ran(10 * n, 10 * n + 5, -50, correlation=9) for n in range(5)]
    assert figures(profiled(graph).idle())["kernel_wait"] == 20


def test_what_lies_between_two_captured_windows_is_not_idle_time():
    windows = [
        {"process": 0, "start": start, "end": start + 100, "source": "cupti"} for start in (0, 900)
    ]
    profile = profiled([Ran(10, 20, 1), Ran(30, 40, 2), Ran(910, 920, 901)], windows=windows)
    row = figures(profile.idle())
    assert (row["window"], row["busy_time"], row["idle_time"]) == (40, 30, 10)


def test_a_profile_of_the_cpu_has_no_idle_devices():
    profile = profiled([], ranges=[{**OP, "text": "mm()", "start": 0, "end": 10}, step(1, 0, 20)])
    for frame in (profile.idle(), profile.idle("stream"), profile.idle_steps(), profile.idle_ops()):
        assert frame.is_empty()


def test_a_step_has_the_part_of_a_gap_that_lies_in_it():
    work = [Ran(10, 20, 5), Ran(120, 130, 110)]
    profile = profiled(work, ranges=[step(1, 0, 100), step(2, 100, 200)])
    rows = profile.idle_steps().select("step", "time", "busy_time", "host_wait").rows()
    assert rows == [(1, 100, 10, 90), (2, 100, 10, 90)]


def kind_by_ns(work: list[Ran], low: int, high: int) -> dict[str, int]:
    """Return the ns of [low, high) by what they are: each looks at what ran before and comes next."""
    found = dict.fromkeys(("busy", *KINDS), 0)
    ordered = sorted(work, key=lambda one: one.start)  # stable, as the trace's order
    for now in range(low, high):
        if any(one.start <= now < one.end for one in work):
            found["busy"] += 1
            continue
        following = [one for one in ordered if one.start > now]
        before = [one.end for one in ordered if one.start <= now]
        since = max([*before, low])
        if not following:
            found["host_wait"] += 1
        elif following[0].called is None:
            found["unknown_wait"] += 1
        elif following[0].called > since:
            found["host_wait"] += 1
        else:
            found["kernel_wait" if following[0].start - since < 30_000 else "other_wait"] += 1
    return found


def distinct(work: list[Ran]) -> list[Ran]:
    """Leave out what begins at one time on one device: which of them ends the gap is the reader's order."""
    return list({(one.device, one.start): one for one in work}.values())


@given(works())
def test_busy_and_idle_add_up_to_the_window_and_the_kinds_to_idle(work):
    work = distinct(work)
    profile = profiled(work, calls=[CALL])
    for by in ("device", "stream"):
        frame = profile.idle(by)
        assert (frame["busy_time"] + frame["idle_time"]).to_list() == frame["window"].to_list()
        assert (
            frame.select(pl.sum_horizontal(KINDS)).to_series().to_list()
            == frame["idle_time"].to_list()
        )
        for row in frame.to_dicts():
            mine = [one for one in work if one.device == row["device"]]
            if by == "stream":
                mine = [one for one in mine if one.stream == row["stream"]]
            low, high = min(one.start for one in mine), max(one.end for one in mine)
            counted = kind_by_ns(mine, low, high)
            assert row["window"] == high - low
            assert (row["busy_time"], *(row[kind] for kind in KINDS)) == tuple(counted.values())
    assert profile.idle_ops()["wait_time"].sum() == profile.idle()["host_wait"].sum()


#: A call that launched nothing, so that the trace records launches.
CALL = {
    "process": 0,
    "thread": 1,
    "start": -100,
    "end": -99,
    "name": "cudaMalloc",
    "correlation": 9_999,
}


@given(works(), st.lists(st.integers(-20, 90), min_size=2, max_size=5, unique=True))
def test_the_kinds_of_each_step_add_up_to_its_time(work, edges):
    work, edges = distinct(work), sorted(edges)
    spans = list(pairwise(edges))
    steps = [step(number, low, high) for number, (low, high) in enumerate(spans)]
    frame = profiled(work, calls=[CALL], ranges=steps).idle_steps()
    assert len(frame) == len(spans) * len({one.device for one in work})
    for row in frame.to_dicts():
        assert row["time"] == row["busy_time"] + row["idle_time"]
        assert row["idle_time"] == sum(row[kind] for kind in KINDS)
        mine = [one for one in work if one.device == row["device"]]
        low, high = spans[row["step"]]
        assert row["busy_time"] == kind_by_ns(mine, low, high)["busy"]
        inside = [one for one in mine if low < one.start < high]
        unknown = kind_by_ns(mine, low, high)["unknown_wait"]
        assert row["unknown_wait"] == unknown, inside
