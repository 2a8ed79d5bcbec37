"""Blocks of memory: each allocation with its release, the ops of both; what lacks one of them says why."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.memory.memory_blocks import (
    ALLOCATED_AGAIN,
    BEFORE_TRACE,
    NO_ADDRESS,
    NO_ALLOCATION,
    NO_DEVICE,
    NOT_RELEASED,
)
from opscope.profile import Profile


def op(name: str, start: int, end: int, thread: int = 1, process: int = 0) -> dict:
    return {"process": process, "thread": thread, "domain": "opscope.torch", "category": "forward",
            "kind": "pushpop", "text": f"{name}()", "start": start, "end": end}  # fmt: skip


def named(category: str, text: str, start: int, end: int) -> dict:
    return {**op("", start, end), "category": category, "text": text}


def change(time: int, address: int | None, size: int, **more: object) -> dict:
    return {"process": 0, "device": -1, "thread": 1, "time": time, "address": address, "bytes": size,
            **more}  # fmt: skip


def test_a_block_has_the_op_the_layer_and_the_step_of_both_ends(trace_of):
    trace = trace_of(
        ranges=[
            named("step", "step 3", 0, 100),
            named("step", "step 4", 100, 200),
            named("layer", "Net.fc", 5, 50),
            op("mm", 10, 20),
            op("add", 130, 150),
        ],
        allocations=[change(12, 77, 100), change(140, 77, -100)],
    )
    row = Profile(trace).memory_events().row(0, named=True)
    assert (row["address"], row["bytes"], row["device"]) == (77, 100, -1)
    assert (row["allocated_at"], row["released_at"], row["duration"]) == (12, 140, 128)
    assert (row["op"], row["direction"], row["layer"], row["step"]) == (
        "mm",
        "forward",
        "Net.fc",
        3,
    )
    assert (row["release_op"], row["release_step"]) == ("add", 4)
    assert (row["op_id"], row["release_op_id"], row["reason"]) == (3, 4, None)


def test_what_lacks_one_of_the_two_says_why(trace_of):
    trace = trace_of(
        allocations=[
            change(10, 1, -5),
            change(20, 2, 50),
            change(30, 3, 60),
            change(40, 3, 70),
            change(50, 3, -70),
            change(60, 3, -70),
            change(70, 4, 0),
        ]
    )
    profile = Profile(trace)
    rows = profile.memory_events().select(
        "bytes", "allocated_at", "released_at", "duration", "reason"
    )
    assert rows.rows() == [
        (5, None, 10, None, BEFORE_TRACE),
        (50, 20, None, None, NOT_RELEASED),
        (60, 30, None, None, ALLOCATED_AGAIN),
        (70, 40, 50, 10, None),
        (70, None, 60, None, NO_ALLOCATION),
    ]
    assert profile.memory()["unpaired"].item() == 4


def test_an_address_on_two_devices_or_in_two_processes_is_two_blocks(trace_of):
    trace = trace_of(
        allocations=[
            change(10, 1, 5),
            change(11, 1, 5, device=0),
            change(12, 1, 5, process=1),
            change(20, 1, -5, device=0),
            change(21, 1, -5),
        ]
    )
    rows = Profile(trace).memory_events().select("process", "device", "released_at").rows()
    assert rows == [(0, -1, 21), (0, 0, 20), (1, -1, None)]


def test_without_addresses_or_a_device_nothing_is_paired(trace_of):
    trace = trace_of(
        allocations=[
            change(10, None, 5),
            change(20, None, -5),
            change(10, 1, 5, device=None),
            change(20, 1, -5, device=None),
        ]
    )
    profile = Profile(trace)
    rows = profile.memory_events().select("device", "allocated_at", "released_at", "reason").rows()
    assert sorted(rows, key=str) == [
        (-1, 10, None, NO_ADDRESS),
        (-1, None, 20, NO_ADDRESS),
        (None, 10, None, NO_DEVICE),
        (None, None, 20, NO_DEVICE),
    ]
    assert profile.memory()["unpaired"].to_list() == [None, None]
    assert set(profile.memory_events()["kind"]) == {"unknown"}


def test_without_memory_there_are_no_blocks_and_no_kinds(trace_of):
    profile = Profile(trace_of(ranges=[op("mm", 10, 20)]))
    assert profile.memory_events().is_empty()
    assert profile.memory_kinds().is_empty()
    assert profile.memory_kinds().columns[:4] == ["process", "device", "kind", "layer"]


histories = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.sampled_from([None, 1, 2, 3]),
        st.integers(-9, 9),
        st.sampled_from([None, -1, 0]),
    ),
    min_size=1,
    max_size=40,
)


@given(histories)
def test_pairs_and_what_is_unpaired_are_all_events_and_kinds_are_the_peak(trace_of, changes):
    rows = [change(t, a, s, device=d) for t, a, s, d in changes]
    profile = Profile(trace_of(ranges=[op("mm", 10, 20)], allocations=rows))
    blocks = profile.memory_events()
    paired = blocks.filter(pl.col("reason").is_null())
    assert 2 * len(paired) + len(blocks) - len(paired) == sum(s != 0 for _, _, s, _ in changes)
    assert (paired["duration"] >= 0).all()
    alone = blocks.filter(pl.col("reason").is_not_null())
    assert (alone["allocated_at"].is_null() != alone["released_at"].is_null()).all()
    for peak in profile.memory().to_dicts():
        here = pl.col("device").eq_missing(pl.lit(peak["device"], pl.Int32))
        mine = blocks.filter(here)
        starts = mine.filter(pl.col("allocated_at").is_not_null())
        assert starts["bytes"].sum() == peak["allocated"]
        assert len(starts) == peak["allocations"]
        kinds = profile.memory_kinds().filter(here)
        assert kinds["at_peak"].sum() == peak["peak_memory"]
        assert kinds["reason"].null_count() == 0
        if peak["unpaired"] is not None:
            assert peak["unpaired"] == mine["reason"].is_not_null().sum()


@given(histories)
def test_pairs_are_those_of_a_walk_through_the_events(trace_of, changes):
    changes = [one for one in changes if None not in one]
    rows = [change(t, a, s, device=d) for t, a, s, d in changes]
    profile = Profile(trace_of(allocations=rows)) if rows else None
    if profile is None:
        return
    want, open_blocks = [], {}
    for time, address, size, device in sorted(changes, key=lambda one: one[0]):
        if size > 0:
            if (device, address) in open_blocks:
                want.append((*open_blocks.pop((device, address)), None))
            open_blocks[device, address] = (device, address, size, time)
        elif size < 0:
            known = open_blocks.pop((device, address), None)
            want.append((*known, time) if known else (device, address, -size, None, time))
    want += [(*one, None) for one in open_blocks.values()]
    found = profile.memory_events().select(
        "device", "address", "bytes", "allocated_at", "released_at"
    )
    assert sorted(found.rows(), key=str) == sorted(want, key=str)
