"""Memory: peaks, and what was in use at them, against a count by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.memory.memory import BEFORE, NO_ADDRESS, NO_DEVICE, OUTSIDE, SHARED
from opscope.core.tables.trace import Trace
from opscope.profile import Profile


def op(name: str, start: int, end: int, thread: int = 1) -> dict:
    return {"process": 0, "thread": thread, "domain": "opscope.torch", "category": "forward",
            "kind": "pushpop", "text": f"{name}()", "start": start, "end": end}  # fmt: skip


def change(time: int, address: int, size: int, total: int | None = None, **more: object) -> dict:
    return {"process": 0, "device": -1, "thread": 1, "time": time, "address": address,
            "bytes": size, "total": total, **more}  # fmt: skip


def test_the_peak_belongs_to_the_ops_whose_blocks_were_alive_then(trace_of):
    trace = trace_of(
        ranges=[op("outer", 0, 100), op("mm", 10, 20), op("add", 30, 40)],
        allocations=[
            change(12, 1, 100),
            change(35, 2, 50),
            change(36, 2, -50),  # a block that is made and released is not held at the peak
            change(37, 2, 60),
            change(50, 1, -100),
            change(60, 1, 30),
            change(200, 3, 5),
        ],
    )
    profile = Profile(trace)
    peaks = profile.memory().row(0, named=True)
    assert peaks == {
        "process": 0, "device": -1, "peak_memory": 160, "peak_time": 37, "reserved": None, "in_use": 95,
        "allocated": 245, "released": 150, "allocations": 5, "peak_reserved": None, "peak_unused": None,
        "most_unused": None, "unpaired": 3,
    }  # fmt: skip
    rows = profile.memory_by_op().select("op", "at_peak", "allocations", "bytes", "reason").rows()
    assert rows == [
        ("mm", 100, 1, 100, None),
        ("add", 60, 2, 110, None),
        ("outer", 0, 1, 30, None),
        (None, 0, 1, 5, OUTSIDE),
    ]


def test_what_a_gpu_held_before_is_named_as_such(trace_of):
    trace = trace_of(
        ranges=[op("mm", 10, 20)],
        allocations=[
            change(12, 1, 100, 1100, device=0, reserved=4096),
            change(13, 9, -300, 800, device=0, reserved=4096),
            change(14, 2, 700, 1500, device=0, reserved=8192),
        ],
    )
    profile = Profile(trace)
    assert profile.memory().select("peak_memory", "reserved", "in_use").row(0) == (1500, 8192, 1500)
    rows = profile.memory_by_op().select("op", "at_peak", "reason").rows()
    assert rows == [("mm", 800, None), (None, 700, BEFORE)]


def test_events_without_a_thread_go_to_the_only_op_that_is_open(trace_of):
    trace = trace_of(
        ranges=[op("mm", 10, 20), op("add", 15, 30, thread=2), op("idle", 50, 60)],
        allocations=[change(time, time, 1, thread=None) for time in (12, 16, 25, 40)],
    )
    rows = Profile(trace).memory_by_op().select("op", "bytes", "reason").rows()
    assert sorted(rows, key=str) == [("add", 1, None), ("mm", 1, None), (None, 2, OUTSIDE)]


def test_devices_without_numbers_may_be_several(trace_of):
    changes = [change(12, 1, 100, 100, device=None), change(13, 2, 30, 5000, device=None)]
    profile = Profile(trace_of(ranges=[op("mm", 10, 20)], allocations=changes))
    assert profile.memory()["peak_memory"].to_list() == [5000]
    rows = profile.memory_by_op().select("op", "at_peak", "bytes", "reason").rows()
    assert rows == [("mm", None, 130, NO_DEVICE)]


def test_a_profile_without_memory_has_no_rows(trace_of):
    profile = Profile(trace_of(ranges=[op("mm", 10, 20)]))
    assert profile.memory().is_empty()
    assert profile.memory_by_op().is_empty()


def test_without_addresses_what_was_held_is_not_known(trace_of):
    trace = trace_of(ranges=[op("mm", 10, 20)], allocations=[change(12, 1, 8), change(13, 1, -8)])
    allocations = trace["allocations"].with_columns(address=None)
    rows = Profile(trace.replace(allocations=allocations)).memory_by_op()
    assert rows.select("op", "at_peak", "bytes", "reason").rows() == [("mm", None, 8, NO_ADDRESS)]


def test_outside_any_op_both_reasons_are_said(trace_of):
    trace = trace_of(ranges=[op("mm", 10, 20)], allocations=[change(50, 1, 8)])
    allocations = trace["allocations"].with_columns(address=None)
    rows = Profile(trace.replace(allocations=allocations)).memory_by_op()
    assert rows.select("op", "at_peak", "reason").rows() == [
        (None, None, f"{OUTSIDE}; {NO_ADDRESS}")
    ]


@st.composite
def histories(draw):
    """Blocks of two devices, each allocated and maybe released later, at distinct times."""
    blocks = draw(
        st.lists(
            st.tuples(st.integers(-1, 0), st.integers(1, 1000), st.booleans()),
            min_size=1,
            max_size=30,
        )
    )
    ends = [(number, kind) for number, one in enumerate(blocks) for kind in (0, *([1] * one[2]))]
    order = draw(st.permutations(ends))
    begun: set[int] = set()
    events = []
    for number, _ in order:  # the first of a block's two is its allocation
        size = blocks[number][1]
        events.append((number, -size if number in begun else size))
        begun.add(number)
    return blocks, events


@given(histories())
def test_sums_hold_and_the_peak_is_the_largest_sum(history):
    blocks, events = history
    ranges = [op(f"op{time // 5}", 10 * time, 10 * time + 50) for time in range(0, len(events), 5)]
    changes = [
        change(10 * time + 1, number, size, device=blocks[number][0])
        for time, (number, size) in enumerate(events)
    ]
    schema = {"ranges": ranges, "allocations": changes}
    import polars as pl

    from opscope.core.tables.trace import table_schema

    frames = {
        name: pl.DataFrame(rows, schema_overrides={k: table_schema(name)[k] for k in rows[0]})
        for name, rows in schema.items()
    }
    frames["ranges"] = frames["ranges"].with_row_index("id").cast({"id": pl.Int64})
    profile = Profile(Trace.of(frames))
    by_op = profile.memory_by_op()
    for row in profile.memory().to_dicts():
        mine = [(number, size) for number, size in events if blocks[number][0] == row["device"]]
        sums = [sum(size for _, size in mine[: n + 1]) for n in range(len(mine))]
        assert row["peak_memory"] == max(sums)
        assert row["in_use"] == row["allocated"] - row["released"] == sums[-1]
        here = by_op.filter(pl.col("device") == row["device"])
        assert here["at_peak"].sum() == row["peak_memory"]
        assert here["bytes"].sum() == row["allocated"]
        assert (here["at_peak"] >= 0).all()


def test_a_cpu_has_no_unused_memory_and_a_gpu_none_below_0(trace_of):
    rows = [change(1, 1, 100, 100, reserved=40), change(2, 2, 50, 150, device=0, reserved=200),
            change(3, 3, 10, 160, device=1, reserved=20)]  # fmt: skip
    peaks = Profile(trace_of(ranges=[op("mm", 0, 10)], allocations=rows)).memory()
    assert peaks.select("device", "peak_unused", "most_unused").rows() == [
        (-1, None, None), (0, 50, 50), (1, None, None),
    ]  # fmt: skip


def test_shared_memory_is_no_part_of_the_allocators_total(trace_of):
    """PyTorch reports a tensor in shared memory, as from a loader's worker, with a total of 0."""
    trace = trace_of(
        ranges=[op("mm", 10, 20), op("receive", 30, 40)],
        allocations=[
            change(12, 1, 100, 100),
            change(32, 8, 24_576, 0, reserved=24_576),
            change(50, 2, 60, 160),
            change(60, 8, -24_576, 0),
            change(70, 1, -100, 60),
            change(71, 2, -60, 0),  # a total of 0 that is the allocator's
        ],
    )
    profile = Profile(trace)
    assert profile.memory().select("peak_memory", "in_use").row(0) == (160, 0)
    rows = profile.memory_by_op().select("op", "at_peak", "reason").rows()
    assert rows == [
        ("mm", 100, None),
        (None, 60, OUTSIDE),
        ("receive", None, SHARED),
    ]
    assert profile.memory_kinds()["at_peak"].sum() == 160
    assert profile.memory_curve()["in_use"].to_list() == [100, 100, 160, 160, 60, 0]
