"""Memory by op: sums alone and with the ops inside, against a count event by event."""

from __future__ import annotations

from collections import defaultdict

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.memory.memory import OUTSIDE
from opscope.profile import Profile

_SELF = ("self_increase", "self_allocated", "self_allocations")
_WHOLE = ("increase", "allocated", "allocations")


def op(name: str, start: int, end: int, thread: int = 1, process: int = 0) -> dict:
    return {"process": process, "thread": thread, "domain": "opscope.torch", "category": "forward",
            "kind": "pushpop", "text": f"{name}()", "start": start, "end": end}  # fmt: skip


def change(
    time: int, size: int, thread: int | None = 1, device: int = -1, process: int = 0
) -> dict:
    return {"process": process, "device": device, "thread": thread, "time": time, "address": time,
            "bytes": size}  # fmt: skip


def table(profile: Profile) -> dict:
    frame = profile.memory_ops()
    return {
        (row["device"], row["op"]): tuple(row[name] for name in (*_SELF, *_WHOLE))
        for row in frame.to_dicts()
    }


def test_an_op_has_what_the_ops_inside_it_allocated_and_its_own_apart(trace_of):
    trace = trace_of(
        ranges=[
            op("linear", 0, 100),
            op("addmm", 10, 50),
            op("empty", 20, 30),
            op("add", 110, 120),
        ],
        allocations=[
            change(5, 8),
            change(25, 1000),
            change(40, -300),
            change(60, 4),
            change(115, 7),
            change(200, -9),
        ],
    )
    profile = Profile(trace)
    assert table(profile) == {
        (-1, "linear"): (12, 12, 2, 712, 1012, 3),
        (-1, "addmm"): (-300, 0, 0, 700, 1000, 1),
        (-1, "empty"): (1000, 1000, 1, 1000, 1000, 1),
        (-1, "add"): (7, 7, 1, 7, 7, 1),
        (-1, None): (-9, 0, 0, -9, 0, 0),
    }
    reasons = dict(profile.memory_ops().select("op", "reason").rows())
    assert reasons[None] == OUTSIDE
    assert reasons["add"] is None
    assert dict(profile.memory_ops().select("op", "calls").rows())["linear"] == 1


def test_an_op_inside_one_of_its_own_name_is_counted_once(trace_of):
    """``aten::sum`` of PyTorch calls ``aten::sum``; the inner one's memory is the outer one's already."""
    trace = trace_of(
        ranges=[op("sum", 0, 100), op("view", 5, 90), op("sum", 10, 50)],
        allocations=[change(20, 1000), change(60, 10)],
    )
    assert table(Profile(trace)) == {
        (-1, "sum"): (1000, 1000, 1, 1010, 1010, 2),
        (-1, "view"): (10, 10, 1, 1010, 1010, 2),
    }


def test_devices_are_apart(trace_of):
    trace = trace_of(
        ranges=[op("to", 0, 100)],
        allocations=[change(20, 1000, device=0), change(30, 10, device=-1)],
    )
    assert table(Profile(trace)) == {
        (-1, "to"): (10, 10, 1, 10, 10, 1),
        (0, "to"): (1000, 1000, 1, 1000, 1000, 1),
    }


def test_without_memory_there_are_no_rows(trace_of):
    assert Profile(trace_of(ranges=[op("mm", 10, 20)])).memory_ops().is_empty()


@st.composite
def nests(draw):
    """Ops of two threads in proper nests, some in others of their name, and changes at any time."""
    ranges = []

    def fill(low: int, high: int, thread: int, depth: int) -> None:
        edges = sorted(draw(st.lists(st.integers(low, high), max_size=6, unique=True)))
        for start, end in zip(edges[::2], edges[1::2], strict=False):
            ranges.append(op(draw(st.sampled_from("abc")), start, end, thread))
            if depth < 4 and end - start > 2:
                fill(start + 1, end - 1, thread, depth + 1)

    for thread in (1, 2):
        fill(0, 200, thread, 0)
    changes = draw(
        st.lists(
            st.tuples(
                st.integers(-5, 205),
                st.integers(-500, 500).filter(bool),
                st.sampled_from([1, 2]),
                st.sampled_from([-1, 0]),
            ),
            min_size=1,
            max_size=25,
        )
    )
    return ranges, [change(*one) for one in changes]


@given(nests())
def test_sums_are_those_of_a_count_change_by_change(trace_of, made):
    ranges, changes = made
    profile = Profile(trace_of(ranges=ranges, allocations=changes))
    want: dict = defaultdict(lambda: [0] * 6)
    for one in changes:
        around = [
            r
            for r in ranges
            if r["thread"] == one["thread"] and r["start"] <= one["time"] < r["end"]
        ]
        around.sort(key=lambda r: r["end"] - r["start"])
        size = one["bytes"]
        values = (size, max(size, 0), int(size > 0))
        names = [r["text"][:-2] for r in around] or [None]
        for number, value in enumerate(values):
            want[one["device"], names[0]][number] += value
            for name in set(names):
                want[one["device"], name][3 + number] += value
    assert table(profile) == {key: tuple(values) for key, values in want.items()}


@given(nests())
def test_what_ops_have_alone_adds_up_to_all_changes(trace_of, made):
    ranges, changes = made
    profile = Profile(trace_of(ranges=ranges, allocations=changes))
    rows = profile.memory_ops()
    for peak in profile.memory().to_dicts():
        mine = rows.filter(pl.col("device") == peak["device"])
        assert mine["self_increase"].sum() == peak["allocated"] - peak["released"]
        assert mine["self_allocated"].sum() == peak["allocated"]
        assert mine["self_allocations"].sum() == peak["allocations"]
