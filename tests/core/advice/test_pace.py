"""What kept a device idle: every piece has one cause, and together they are what the host caused in the steps."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.advice.pace import CAUSES, DISPATCH, NO_GPU, NO_STEPS, Pace, blocking, pace
from tests import traces
from tests.core.advice.timeline import US, launching, steady, step, training, wait
from tests.core.attribution.test_inferred_steps import STEP, eager

MS = 1000 * US


def pieces(made, cause):
    found = pace(made)
    assert isinstance(found, Pace)
    return found.pieces.filter(pl.col("cause") == cause).select("start", "end").rows()


def test_each_gap_has_its_cause():
    ranges = [step(0, 0, 20 * MS), wait(1 * MS, 3 * MS)]
    launches = [
        (0, 10 * US, 20 * US, 500 * US),
        (3 * MS, 3 * MS + 5 * US, 3 * MS + 10 * US, 4 * MS),  # after the wait for input
        (7 * MS, 7 * MS + 5 * US, 7 * MS + 10 * US, 9 * MS),  # 3 ms of other work
        (10 * MS, 10 * MS + 5 * US, 10 * MS + 10 * US, 11 * MS),  # 1 ms after a call that waited
    ]
    made = training(ranges, launches, calls=[("cudaStreamSynchronize", 8500 * US, 9 * MS + 1, 1)])
    assert pieces(made, "input") == [(1 * MS, 3 * MS)]
    # the gap after the wait lasts 1,010 us, the call took 500 us of it
    assert pieces(made, "sync") == [(9 * MS, 9 * MS + 500 * US + 1)]
    assert pieces(made, "launching") == []
    assert sorted(pieces(made, "host")) == [
        (500 * US, 1 * MS), (3 * MS, 3 * MS + 10 * US), (4 * MS, 7 * MS + 10 * US),
        (9 * MS + 500 * US + 1, 10 * MS + 10 * US),
    ]  # fmt: skip


def test_late_launches_that_follow_each_other_are_a_stretch_and_few_are_none():
    many = training(steady(1, 10 * MS), launching(0, 4 * MS, 40 * US, 10 * US))
    assert pace(many).time("launching") == 99 * 30 * US
    assert pace(many).stretches.select("start", "end", "launches", "idle").rows() == [
        (40 * US, 3963 * US, 99, 99 * 30 * US)
    ]
    few = training(steady(1, 10 * MS), launching(0, 4 * MS, 40 * US, 10 * US, many=20))
    assert pace(few).time("launching") == 0
    assert pace(few).time("host") == 19 * 30 * US
    slow = training(steady(1, 60 * MS), launching(0, 60 * MS, DISPATCH + 20 * US, 10 * US))
    assert pace(slow).time("launching") == 0


def test_waits_of_a_thread_that_launches_nothing_hold_up_nobody():
    calls = [("cudaEventSynchronize", 0, 900 * US, 9), ("cudaDeviceSynchronize", 0, 900 * US, 1)]
    made = training(steady(1, 10 * MS), launching(0, 1, 1, 500 * US), calls=calls)
    rows = made.trace["calls"][blocking(made.attribution)]
    assert rows.select(pl.col("name").cast(pl.String), "thread").rows() == [
        ("cudaDeviceSynchronize", 1)
    ]


def test_only_copies_to_the_host_that_had_ended_when_the_call_returned_are_waits():
    copies = [
        (0, 100, 10, 90, "DtoH"), (200, 250, 210, 290, "DtoH"), (300, 400, 310, 390, "HtoD"),
    ]  # fmt: skip
    made = training(steady(1, 10 * MS), launching(500, 501, 1, 500), copies)
    assert made.trace["calls"][blocking(made.attribution)]["start"].to_list() == [0]


def test_what_a_profile_lacks_is_said():
    assert pace(training([step(0, 0, 10)])) == NO_GPU
    assert pace(training([wait(0, 5)], launching(0, 10, 1, 10, many=2))) == NO_STEPS


@given(data=st.data())
def test_the_pieces_add_up_to_what_the_host_caused_in_the_steps(data):
    time = st.integers(1, 60)
    now = device = 0
    launches, waits, syncs = [], [], []
    for _ in range(data.draw(st.integers(2, 60))):
        now += data.draw(time)
        kind = data.draw(st.sampled_from(["launch", "launch", "launch", "wait", "sync"]))
        if kind == "launch":
            called, now = now, now + data.draw(time)
            start = max(device, called + data.draw(time))
            device = start + data.draw(time)
            launches.append((called, now, start, device))
        else:
            begin, now = now, now + data.draw(time)
            (waits if kind == "wait" else syncs).append((begin, now))
    if not launches:
        return
    end = max(now, device) + 1
    cut = data.draw(st.integers(1, end))
    ranges = [step(0, 0, cut), step(1, cut, end), *(wait(*one) for one in waits)]
    made = training(ranges, launches, calls=[("cudaDeviceSynchronize", *one, 1) for one in syncs])
    found = pace(made)
    idle = np.zeros(end, bool)
    reach = launches[0][3]
    for called, _, start, stop in launches[1:]:
        if called > reach and start > reach:
            idle[reach:start] = True
        reach = max(reach, stop)
    told = np.zeros(end, int)
    for start, stop, cause in found.pieces.select("start", "end", "cause").rows():
        assert cause in CAUSES
        told[start:stop] += 1
    assert (told == idle).all()
    by_cause = [found.time(cause) for cause in CAUSES]
    assert sum(by_cause) == int(idle.sum()) <= found.idle


@pytest.mark.parametrize("name", [
    "resnet50_nw0_step_span1.pt.trace.json.gz", "nccl_meta.json.gz", "ddp_rank3of8_a100_stacks.json.gz",
])  # fmt: skip
def test_on_real_traces_the_pieces_are_a_part_of_the_host_wait(shared, name):
    loaded = traces.load(shared / "kineto" / name)
    found = pace(loaded)
    told = int((found.pieces["end"] - found.pieces["start"]).sum())
    waited = int(loaded.idle_steps()["host_wait"].sum())
    # host_wait also has what lies before a device's first work and after its last
    assert 0 < told <= waited


def test_of_steps_that_are_inferred_the_pace_is_known_too():
    """Ranges of such steps are in no table that was read, only beside it."""
    ranges = [
        {**row, "start": row["start"] * US, "end": row["end"] * US} for row in eager([STEP] * 6)
    ]
    launches = [
        (row["start"] + 1, row["start"] + 2, row["start"] + 3 * US, row["end"]) for row in ranges
    ]
    made = training(ranges, launches)
    assert isinstance(pace(made), Pace)
    assert len(pace(made).steps) >= 3
