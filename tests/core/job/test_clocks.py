"""Clocks of several hosts: a known offset and drift are found within the error that is told."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.job import clocks
from opscope.core.tables.trace import Trace, table_schema

SECOND = 1_000_000_000


class Job:
    """All-reduces of two hosts, in true time, and each host's clock: true · (1 + drift) + offset."""

    def __init__(self, seed, many, span, noise):
        random = np.random.default_rng(seed)
        gap = span // many
        jitter = random.integers(0, gap // 4 + 1, many)
        middle = np.arange(many) * gap + jitter + 10 * SECOND
        self.entered = [middle - random.integers(1_000, 3_000_000, many) for _ in range(2)]
        last = np.maximum(*self.entered)
        # each rank sees the end when the scheduler lets it, some very late
        late = [random.exponential(noise, many) for _ in range(2)]
        self.left = [(last + 20_000 + one).astype(np.int64) for one in late]

    def seen(self, host, offset=0, drift=0.0):
        def clock(true):
            return true + offset + np.rint(drift * true).astype(np.int64)

        return clock(self.entered[host]), clock(self.left[host])


def right(job, found, offset=0, drift=0.0):
    """Every end is put where it truly was, to within the error (and the rounding of both clocks)."""
    moved = clocks._moved_by(job.seen(1, offset, drift)[1], found.origin, found.offset, found.drift)
    return np.abs(moved - job.left[1]).max() <= found.error + 2


@given(
    st.integers(0, 1 << 30),
    st.integers(1, 200),
    st.integers(10_000_000, 60 * SECOND),
    st.floats(1_000, 500_000),
    st.integers(-(1 << 60), 1 << 60),
)
def test_an_offset_is_found_within_its_error(seed, many, span, noise, offset):
    job = Job(seed, many, span, noise)
    found = clocks.estimate(*job.seen(0), *job.seen(1, offset))
    assert found.error is not None, "no collective was left before it was entered"
    assert right(job, found, offset)


@given(
    st.integers(0, 1 << 30),
    st.integers(100, 400),
    st.floats(-200e-6, 200e-6),
    st.integers(-(10**15), 10**15),
)
def test_a_drift_is_found_where_the_capture_is_long(seed, many, drift, offset):
    job = Job(seed, many, 300 * SECOND, 50_000)
    ours, theirs = job.seen(0), job.seen(1, offset, drift)
    found = clocks.estimate(*ours, *theirs)
    assert abs(found.drift + drift) < 2e-6
    assert right(job, found, offset, drift)
    assert found.spread < 500_000


def test_ends_that_contradict_each_other_have_no_error():
    start, end = np.array([0, 1000]), np.array([100, 1100])
    assert clocks.estimate(start, end, start + 5, end + np.array([5, -500])).error is None


def trace_of_two(machines, offset, drift=0.0, same=False, seed=1, unix=(0, 0), group="0"):
    """A trace as two processes record it, one all-reduce after the other, run by gloo."""
    job = Job(seed, 40, 2 * SECOND, 20_000)
    rows = []
    for host in range(2):
        start, end = job.seen(host, offset if host else 0, drift if host else 0.0)
        for begin, stop in zip(start.tolist(), end.tolist(), strict=True):
            call = {
                "process": host, "thread": 1, "start": begin - 5, "end": begin - 1,
                "text": f'c10d::allreduce_([f32[8]], _) -> ([=0], _) {{process_group="{group}"}}',
            }  # fmt: skip
            ran = {
                "process": host, "thread": 2, "start": begin, "end": stop,
                "text": "gloo:all_reduce(f32[8])",
            }  # fmt: skip
            rows += [call, ran]
    ranges = pl.DataFrame(rows).with_columns(
        pl.int_range(pl.len()).alias("id"),
        domain=pl.lit("opscope.torch"),
        category=pl.lit("communication"),
        kind=pl.lit("pushpop"),
    )
    return Trace.of(
        {
            "processes": pl.DataFrame(
                {"process": [0, 1], "host": ["a", "b"], "rank": [0, 1], "clock_domain": [0, 1]}
            ),
            "clocks": pl.DataFrame(
                {
                    "clock_domain": [0, 1],
                    "kind": ["perf_counter_ns"] * 2,
                    "to_unix_ns": unix,
                    "machine": machines,
                }
            ),
            "ranges": ranges.select(
                pl.col(name).cast(kind)
                for name, kind in table_schema("ranges").items()
                if name in ranges.columns
            ),
        }
    )


def ends(trace, process):
    rows = trace["ranges"].filter((pl.col("process") == process) & (pl.col("thread") == 2))
    return rows["end"].to_numpy()


@given(
    st.integers(0, 1000),
    st.builds(
        lambda size, sign: size * sign, st.integers(10**10, 1 << 50), st.sampled_from([1, -1])
    ),
    st.floats(-1e-4, 1e-4),
)
def test_hosts_are_put_on_one_clock(seed, offset, drift):
    trace = trace_of_two(["one", "two"], offset, drift, seed=seed, unix=(7, None))
    before = trace["ranges"]
    made = clocks.aligned(trace)
    told = made["clocks"].row(1, named=True)
    assert told["method"] == clocks.BY_COLLECTIVES
    assert told["collectives"] == 40
    assert told["to_unix_ns"] == 7, "its times are on the first clock now"
    job = Job(seed, 40, 2 * SECOND, 20_000)
    assert np.abs(ends(made, 1) - job.left[1]).max() <= told["error_ns"] + 2
    assert (made["ranges"]["end"] >= made["ranges"]["start"]).all()
    first = pl.col("process") == 0
    assert made["ranges"].filter(first).equals(before.filter(first)), "the reference is not moved"


def test_one_machine_is_one_clock_whatever_the_ends_say():
    trace = trace_of_two(["one", "one"], 5 * SECOND)
    assert clocks.aligned(trace) is trace


def test_a_boot_that_is_not_known_leaves_the_host():
    trace = trace_of_two([None, None], 5 * SECOND)
    assert clocks.machines(trace)["machine"].to_list() == ["a", "b"]


def test_clocks_that_agree_within_the_error_are_not_moved():
    trace = trace_of_two(["one", "two"], 0)
    made = clocks.aligned(trace)
    assert made["ranges"].equals(trace["ranges"])
    told = made["clocks"].row(1, named=True)
    assert told["method"] == clocks.BY_COLLECTIVES
    assert abs(told["offset_ns"]) <= told["error_ns"]


def test_what_is_aligned_is_not_aligned_again():
    made = clocks.aligned(trace_of_two(["one", "two"], 5 * SECOND))
    assert clocks.aligned(made) is made


@pytest.mark.parametrize("unix", [(100, 50), (100, None)])
def test_without_collectives_the_unix_clocks_tell_or_nothing_does(unix):
    trace = trace_of_two(["one", "two"], 5 * SECOND, unix=unix)
    only = trace["ranges"].filter(pl.col("thread") == 1)
    trace = trace.replace(ranges=only)
    made = clocks.aligned(trace)
    told = made["clocks"].row(1, named=True)
    assert told["error_ns"] is None
    assert made["notes"]["severity"].to_list() == ["warning"]
    moved = (made["ranges"]["start"] - only["start"]).filter(only["process"] == 1).unique()
    if unix[1] is None:
        assert told["method"] == clocks.UNKNOWN
        assert moved.to_list() == [0]
    else:
        assert told["method"] == clocks.BY_UNIX
        assert moved.to_list() == [-50]
