"""Launches: calls, delays, short kernels, and the length of queues, against counts by hand."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.device.device_work import work_on_devices
from opscope.core.analysis.device.queues import NO_LAUNCHES, SOME_LAUNCHES, queues
from tests.device_traces import OP, Ran, profiled, works


def measures(profile, kind: str) -> dict:
    frame = profile.launches().filter(pl.col("kind") == kind)
    return {row["measure"]: row for row in frame.to_dicts()}


def test_the_measures_of_a_launch():
    profile = profiled([Ran(100, 130, 0, 10), Ran(12, 15, 10, 14)])
    found = measures(profile, "kernel")
    assert {name: row["total"] for name, row in found.items()} == {
        "launch call": 14, "delay": 102, "queued": 90, "execution": 33,
    }  # fmt: skip
    assert (found["delay"]["min"], found["delay"]["median"], found["delay"]["max"]) == (2, 51, 100)


def test_a_call_that_launches_a_graph_is_one_launch():
    graph = [Ran(50 + 10 * n, 55 + 10 * n, 0, 8, correlation=9) for n in range(4)]
    profile = profiled([*graph, Ran(200, 201, 100, 105)])
    found = measures(profile, "CUDA graph")
    assert {row["launches"] for row in found.values()} == {1}
    assert (found["delay"]["total"], found["execution"]["total"]) == (50, 20)
    assert measures(profile, "kernel")["execution"]["total"] == 1
    assert profile.queue()["longest_queue"].to_list() == [1]


def test_copies_and_sets_are_apart():
    work = [Ran(10, 20, 0, kind="HtoD"), Ran(30, 40, 21, kind="memset"), Ran(50, 60, 41)]
    assert set(profiled(work).launches()["kind"]) == {"copy", "set", "kernel"}


def test_a_kernel_is_short_if_its_launch_took_longer():
    ranges = [{**OP, "text": "add()", "start": 0, "end": 100}]
    profile = profiled([Ran(10, 13, 0, 5), Ran(20, 26, 11, 16), Ran(40, 42)], ranges=ranges)
    assert profile.short_launches().to_dicts() == [
        {"name": "k", "op": "add", "launches": 2, "short_launches": 1, "shorter_share": 0.5, "total": 9,
         "shorter_time": 3, "launching_time": 5}
    ]  # fmt: skip


def test_a_stream_without_launch_records_has_no_queue_and_says_so():
    row = profiled([Ran(0, 10), Ran(20, 30)]).queue().row(0, named=True)
    assert row["reason"] == NO_LAUNCHES
    assert (row["launches"], row["longest_queue"], row["full_time"]) == (None, None, None)


def test_a_queue_of_which_some_launches_are_missing_is_a_lower_bound():
    row = profiled([Ran(0, 10, -5), Ran(20, 30)]).queue().row(0, named=True)
    assert (row["reason"], row["longest_queue"]) == (SOME_LAUNCHES, 1)


def test_a_launch_call_stalls_while_the_queue_is_full():
    # 4 launches fit; the fifth call begins at 40 and lasts until 100, when the first kernel starts
    work = [Ran(100 + 10 * n, 110 + 10 * n, 10 * n, 10 * n + 1) for n in range(4)]
    work.append(Ran(140, 150, 40, 101))
    frame = queues(profiled(work).of(work_on_devices), full=4)
    row = frame.row(0, named=True)
    assert (row["longest_queue"], row["stalled_launches"], row["stalled_time"]) == (5, 1, 60)
    # four or more are in the queue from the fourth launch (30) to the second start (110)
    assert row["full_time"] == 80


@given(works(kinds=True))
def test_the_queue_is_what_was_launched_and_has_not_started(work):
    profile = profiled(work)
    curve = profile.queue_curve()
    for row in profile.queue().to_dicts():
        mine = [one for one in work if (one.device, one.stream) == (row["device"], row["stream"])]
        waiting = [one for one in mine if one.called is not None and one.called < one.start]
        points = curve.filter(
            (pl.col("device") == row["device"]) & (pl.col("stream") == row["stream"])
        )
        held = dict(points.select("time", "queued").rows())
        length = 0
        lengths = []
        for now in range(-12, 75):
            length = held.get(now, length)
            assert length == sum(one.called <= now < one.start for one in waiting)
            lengths.append(length)
        if row["launches"]:
            assert row["longest_queue"] == max(lengths)
        if waiting:
            low, high = min(o.called for o in waiting), max(o.start for o in waiting)
            inside = lengths[low + 12 : high + 12]
            assert abs(row["empty_share"] - inside.count(0) / len(inside)) < 1e-9
            ordered = sorted(inside)
            assert row["median_queue"] == ordered[-(-len(inside) // 2) - 1]


@given(works(kinds=True), st.integers(1, 3))
def test_stalled_time_is_the_calls_time_with_more_than_the_queue_holds(work, full):
    frame = queues(profiled(work).of(work_on_devices), full=full)
    for row in frame.filter(pl.col("launches").is_not_null()).to_dicts():
        mine = [one for one in work if (one.device, one.stream) == (row["device"], row["stream"])]
        waiting = [one for one in mine if one.called is not None and one.called < one.start]
        if not waiting:
            continue
        stalled = 0
        for call in mine:
            if call.called is None:
                continue
            for now in range(call.called, call.returned):
                stalled += sum(one.called <= now < one.start for one in waiting) > full
        assert row["stalled_time"] == stalled
