"""Attribution against a brute force, on every small trace that Hypothesis finds."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.attribution.attribute import REASONS, attribute
from opscope.core.tables.trace import Trace

TIME = st.integers(0, 40)


@st.composite
def traces(draw) -> tuple[list[dict], list[dict], list[dict]]:
    """Ranges that nest, touch, cross, have no length; calls; kernels with and without a launch."""
    place = st.tuples(st.integers(0, 1), st.integers(0, 2))
    ranges, calls, kernels = [], [], []
    for number in range(draw(st.integers(0, 18))):
        process, thread = draw(place)
        start, end = sorted((draw(TIME), draw(TIME)))
        ranges.append(
            {
                "id": 100 + number,
                "process": process,
                "thread": thread,
                "start": start,
                "end": end,
                "domain": draw(st.sampled_from(["opscope.torch", "opscope.other"])),
                "text": draw(st.sampled_from(["aten::mm()", "aten::add()", "f(f32[2])"])),
                "kind": draw(st.sampled_from(["pushpop"] * 5 + ["startend"])),
            }
        )
    for _ in range(draw(st.integers(0, 12))):
        process, thread = draw(place)
        time = draw(TIME)
        calls.append(
            {
                "process": process,
                "thread": thread,
                "start": time,
                "end": time + draw(st.integers(0, 3)),
                "name": "cudaLaunchKernel",
                "correlation": draw(st.integers(0, 8)),
            }
        )
    for _ in range(draw(st.integers(0, 12))):
        begin = draw(
            st.integers(0, 60)
        )  # before its launch where ids are used again, or clocks differ
        kernels.append(
            {
                "process": draw(st.integers(0, 2)),
                "device": 0,
                "start": begin,
                "end": begin + draw(st.integers(0, 9)),
                "name": "k",
                "correlation": draw(st.none() | st.integers(-1, 9)),
            }
        )
    return ranges, calls, kernels


def build(ranges: list[dict], calls: list[dict], kernels: list[dict]) -> Trace:
    from opscope.core.tables.trace import table_schema

    tables = {}
    for name, rows in (("ranges", ranges), ("calls", calls), ("kernels", kernels)):
        schema = table_schema(name)
        keep = {column: schema[column] for column in schema if rows and column in rows[0]}
        tables[name] = pl.DataFrame(rows, schema=keep or schema)
    return Trace.of(tables)


def brute_force(ranges, calls, kernel) -> tuple[int | None, str | None]:
    """The rules of the design, one kernel at a time: (op id, reason)."""
    if kernel["correlation"] is None or kernel["correlation"] < 0:
        return None, "no launch record"
    key = (kernel["process"], kernel["correlation"])
    launches = [c for c in calls if (c["process"], c["correlation"]) == key]
    if not launches:
        return None, "no launch record"
    launches = [c for c in launches if c["start"] <= kernel["start"]] or launches
    call = max(enumerate(launches), key=lambda pair: (pair[1]["start"], pair[0]))[1]
    held = [r for r in ranges if r["end"] > r["start"]]
    if not held:
        return None, "the trace has no op ranges"
    mine = [r for r in held if r["process"] == call["process"]]
    on_thread = [r for r in mine if r["kind"] == "pushpop" and r["thread"] == call["thread"]]
    for group in (on_thread, [r for r in mine if r["kind"] == "startend"]):
        holding = [r for r in group if r["start"] <= call["start"] < r["end"]]
        if holding:
            best = max(holding, key=lambda r: (r["start"], -r["end"], r["id"]))
            return best["id"], None
    if on_thread:
        return None, "launched outside any op range"
    return None, "the launching thread has no op ranges"


@given(traces())
def test_equals_brute_force(made):
    ranges, calls, kernels = made
    result = attribute(build(ranges, calls, kernels))
    ids = [r["id"] for r in ranges]
    for number, kernel in enumerate(kernels):
        op = int(result.kernels.op[number])
        got = (ids[op] if op >= 0 else None, REASONS[result.kernels.reason[number]])
        assert got == brute_force(ranges, calls, kernel)


@given(traces())
def test_attributed_and_unattributed_sum_to_the_total(made):
    from opscope.profile import Profile

    profile = Profile(build(*made))
    summary, kernels = profile.summary().row(0, named=True), profile.kernels()
    total = sum(k["end"] - k["start"] for k in made[2])
    assert summary["kernel_time"] == total
    assert summary["attributed_time"] + summary["unattributed_time"] == total
    assert profile.unattributed()["time"].sum() == summary["unattributed_time"]
    assert len(kernels) == len(made[2])
    assert (kernels["op_id"].is_null() == kernels["reason"].is_not_null()).all()
    ops = profile.ops()
    assert profile.op_totals()["device_time"].sum() == summary["attributed_time"]
    roots = ops.filter(pl.col("parent_id").is_null())
    assert roots["device_time"].sum() == summary["attributed_time"]


@given(traces())
def test_a_second_process_changes_nothing_of_the_first(made):
    ranges, calls, kernels = made
    alone = attribute(
        build(*([row for row in rows if row["process"] == 0] for rows in (ranges, calls, kernels)))
    )
    both = attribute(build(ranges, calls, kernels))
    first = np.array([k["process"] == 0 for k in kernels], bool)
    mine = [r["id"] for r in ranges if r["process"] == 0]
    ids = [r["id"] for r in ranges]
    assert [mine[op] if op >= 0 else None for op in alone.kernels.op] == [
        ids[op] if op >= 0 else None for op in both.kernels.op[first]
    ]


def test_a_nest_of_any_depth_is_climbed_as_brute_force_does():
    """A chain deeper than is climbed row by row, beside a short one, in a forest of many."""
    from opscope.core.attribution.attribute import Attribution

    rng = np.random.default_rng(3)
    for size, deep in ((50, 50), (500, 400), (20_000, 300)):
        parent = np.where(np.arange(size) < deep, np.arange(size) - 1, rng.integers(-1, deep, size))
        parent = parent.astype(np.int32)
        rows = rng.integers(-1, size, 40)
        wanted = rng.random(size) < 0.01
        nest = Attribution(None, None, None, parent, None, None)
        found = nest.climb(rows, wanted)
        flags = np.zeros(size, bool)
        flags[rows[rows >= 0]] = True
        marked = nest.above(flags)
        ancestors = set()
        for row, got in zip(rows.tolist(), found.tolist(), strict=True):
            here = row
            while here >= 0 and not wanted[here]:
                here = int(parent[here])
            assert got == here
            here = int(parent[row]) if row >= 0 else -1
            while here >= 0:
                ancestors.add(here)
                here = int(parent[here])
        assert set(np.flatnonzero(marked).tolist()) == ancestors
