"""Kernels by name and by launch configuration: sums that add up, means weighted by time."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.analysis.device.launches import NO_CONFIGURATION
from opscope.profile import Profile

GPU = {"process": 0, "device": 0, "name": "unheard of", "cc": "8.0", "sm_count": 10}


def kernel(start: int, end: int, name: str = "k", grid: str | None = "20,1,1", **more) -> dict:
    return {"process": 0, "device": 0, "stream": 7, "start": start, "end": end, "name": name,
            "grid": grid, "block": "1024,1,1", "registers": 32, "shared_dynamic": 0,
            "correlation": start, **more}  # fmt: skip


def op(name: str, start: int, end: int) -> dict:
    return {"process": 0, "thread": 1, "domain": "opscope.torch", "category": "forward",
            "kind": "pushpop", "text": f"{name}()", "start": start, "end": end}  # fmt: skip


def call(start: int, correlation: int) -> dict:
    return {"process": 0, "thread": 1, "start": start, "end": start + 1, "name": "launch",
            "correlation": correlation}  # fmt: skip


@pytest.fixture
def profile(trace_of):
    return Profile(
        trace_of(
            ranges=[op("mm", 0, 10), op("add", 10, 20)],
            calls=[call(1, 100), call(11, 300), call(12, 600)],
            kernels=[
                kernel(100, 200),
                kernel(300, 600),
                kernel(600, 700, grid="5,1,1"),
                kernel(700, 750, "other", None),
            ],
            devices=[GPU],
        )
    )


def test_a_row_for_each_name_and_configuration(profile):
    rows = profile.kernel_launches()
    assert rows.select("name", "grid", "calls", "total", "mean", "min", "max").rows() == [
        ("k", "20,1,1", 2, 400, 200.0, 100, 300),
        ("k", "5,1,1", 1, 100, 100.0, 100, 100),
        ("other", None, 1, 50, 50.0, 50, 50),
    ]
    assert rows["share"].sum() == pytest.approx(1)
    assert rows.select("op", "ops").rows() == [("add", 2), ("add", 1), (None, 0)]
    assert rows["resident_blocks"].to_list() == [2, 2, 2]  # what fits needs no grid
    assert rows["achieved_occupancy"].to_list() == [1.0, 0.25, None]
    assert rows["occupancy_reason"].to_list() == [None, None, NO_CONFIGURATION]


def test_a_row_for_each_name_has_means_weighted_by_time(profile):
    rows = profile.kernel_occupancy()
    assert rows.select("name", "calls", "total", "configurations", "op", "ops").rows() == [
        ("k", 3, 500, 2, "add", 2),
        ("other", 1, 50, 1, None, 0),
    ]
    first = rows.row(0, named=True)
    assert first["blocks_per_sm"] == pytest.approx((400 * 2 + 100 * 0.5) / 500)
    assert first["achieved_occupancy"] == pytest.approx((400 * 1 + 100 * 0.25) / 500)
    assert first["occupancy_known"] == 1
    other = rows.row(1, named=True)
    assert (other["achieved_occupancy"], other["waves"], other["tail_share"]) == (None, None, None)
    assert (other["occupancy_known"], other["occupancy_reason"]) == (0, NO_CONFIGURATION)


def test_two_processes_on_one_model_share_a_row(trace_of):
    trace = trace_of(
        kernels=[kernel(0, 10), kernel(0, 20, process=1), kernel(0, 40, device=1)],
        devices=[GPU, {**GPU, "process": 1}, {**GPU, "device": 1, "sm_count": 20}],
    )
    rows = Profile(trace).kernel_launches().select("calls", "total", "sm_count").rows()
    assert rows == [(1, 40, 20), (2, 30, 10)]


def test_kernels_of_length_zero_have_no_shares(trace_of):
    profile = Profile(trace_of(kernels=[kernel(5, 5)], devices=[GPU]))
    assert profile.kernel_launches()["share"].to_list() == [None]
    row = profile.kernel_occupancy().row(0, named=True)
    assert (row["total"], row["share"], row["achieved_occupancy"]) == (0, None, None)


def test_without_kernels_there_are_no_rows(trace_of):
    empty = Profile(trace_of(ranges=[op("mm", 0, 10)]))
    full = Profile(trace_of(kernels=[kernel(0, 5)]))
    for name in ("kernel_launches", "kernel_occupancy", "kernel_lengths", "short_kernels"):
        none = getattr(empty, name)()
        assert none.is_empty()
        assert none.columns == getattr(full, name)().columns


def test_shared_memory_of_a_kernel_is_the_sum_that_its_source_has(trace_of):
    trace = trace_of(kernels=[kernel(0, 5, shared_dynamic=4096)])
    assert Profile(trace).kernels()["shared_memory"].to_list() == [4096]
    trace = trace_of(kernels=[kernel(0, 5, shared_dynamic=None)])
    assert Profile(trace).kernels()["shared_memory"].to_list() == [None]
    trace = trace_of(kernels=[kernel(0, 5, shared_dynamic=4096, shared_static=4)])
    assert isinstance(frame := Profile(trace).kernels(), pl.DataFrame)
    assert frame["shared_memory"].to_list() == [4100]
