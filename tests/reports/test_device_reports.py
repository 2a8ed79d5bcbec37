"""The reports of the devices' use as a reader sees them: figures, and what is said below them."""

from __future__ import annotations

import json

import pytest

from opscope.core.analysis.device.device_use import NO_GAPS
from opscope.core.analysis.device.launches import NO_CONFIGURATION, NO_DEVICE
from opscope.core.question.registry import reports
from opscope.profile import Profile
from opscope.reports.console import tables

NAMES = ("device_use", "device_curve", "occupancy", "kernel_launches", "kernel_lengths",
         "short_kernels", "fusable")  # fmt: skip
A100 = {"process": 0, "device": 0, "name": "NVIDIA A100-SXM4-40GB", "cc": "8.0", "sm_count": 108}


def kernel(start: int, end: int, **more: object) -> dict:
    return {"process": 0, "device": 0, "stream": 7, "start": start, "end": end,
            "name": "void at::native::vectorized_elementwise_kernel<4>(int)", "grid": "54,1,1",
            "block": "256,1,1", "registers": 32, "shared_dynamic": 0, **more}  # fmt: skip


def text(profile: Profile, name: str) -> str:
    (table,) = tables(profile, [name], 20)
    rows = [
        " ".join(column.show(row.get(column.key)) for column in table.columns) for row in table.rows
    ]
    return "\n".join([table.title, *rows, *table.footnotes])


@pytest.fixture
def two(trace_of):
    """Two kernels directly after each other, the device's second half of the time idle."""
    call = {"process": 0, "thread": 1, "name": "launch", "start": 0, "end": 100_000}
    return trace_of(
        kernels=[kernel(0, 30_000), kernel(31_000, 51_000)], calls=[call], devices=[A100]
    )


def test_the_use_of_a_device_is_said_with_what_is_an_estimate(two):
    said = text(Profile(two), "device_use")
    assert "A100" in said
    assert "50.0 %" in said  # 50 of 100 µs
    assert "25.0 %" in said  # of that time half of the multiprocessors have a block
    assert "6.2 %" in said  # of 64 warps 8, in half of the multiprocessors
    assert "estimates from how kernels were launched" in said
    assert "no occupancy" not in said


@pytest.mark.parametrize("name", ["device_use", "occupancy", "kernel_launches"])
def test_why_there_is_no_occupancy_stands_below_the_table(trace_of, name):
    unnamed = Profile(trace_of(kernels=[kernel(0, 10)]))
    assert NO_DEVICE in text(unnamed, name)
    unsized = Profile(trace_of(kernels=[kernel(0, 10, grid=None)], devices=[A100]))
    assert NO_CONFIGURATION in text(unsized, name)


def test_where_only_a_part_is_known_the_part_is_said(trace_of):
    calls = [{"process": 0, "thread": 1, "name": "launch", "start": 0, "end": 1}]
    kernels = [kernel(0, 10), kernel(10, 20, grid=None)]
    said = text(Profile(trace_of(kernels=kernels, calls=calls, devices=[A100])), "device_use")
    assert "SM efficiency is a lower bound: the grids of 50.0 % of kernel time are known" in said
    assert "the occupancies are those of 50.0 % of kernel time" in said


def test_times_without_gaps_have_no_utilization(trace_of):
    said = text(Profile(trace_of(kernels=[kernel(0, 10)], devices=[A100])), "device_use")
    assert f"no utilization: {NO_GAPS}" in said


def test_a_chain_is_shown_with_what_the_estimate_means(two):
    said = text(Profile(two), "fusable")
    assert "vectorized_elementwise_kernel" in said
    assert "×2" in said
    assert "upper bound" in said
    # the gap of 1 µs, and all but the longest kernel
    assert "21.0 µs" in said


def test_clusters_are_said_to_make_bounds(trace_of):
    h100 = {**A100, "name": "NVIDIA H100 80GB HBM3", "cc": "9.0", "sm_count": 132}
    trace = trace_of(kernels=[kernel(0, 10, cluster="2,1,1")], devices=[h100])
    assert "start in clusters" in text(Profile(trace), "kernel_launches")


@pytest.mark.parametrize("name", NAMES)
def test_without_kernels_a_report_says_what_the_trace_lacks(trace_of, name):
    op = {"process": 0, "thread": 1, "domain": "opscope.torch", "category": "forward",
          "kind": "pushpop", "text": "mm()", "start": 0, "end": 10}  # fmt: skip
    said = text(Profile(trace_of(ranges=[op])), name)
    assert said.splitlines() == [reports()[name].heading, reports()[name].no_rows]


def test_every_frame_can_be_written_as_json(two):
    profile = Profile(two)
    for name in NAMES:
        json.dumps(reports()[name].frame(profile).to_dicts())
