"""The roofline and FLOPs utilization as a reader sees them: rows, and what is said below them."""

from __future__ import annotations

import pytest

from opscope.core.perf.devices.unnamed import name_devices
from opscope.core.question.registry import reports
from opscope.profile import Profile
from opscope.reports.console import tables

PRODUCT = "aten::mm(f32[1024,1024], f32[1024,1024])"
#: 2·1024³ FLOP on an A100's TF32 peak of 156 TFLOP/s (ns).
IDEAL = 2 * 1024**3 / 156e12 * 1e9
NAMED = {"process": 0, "device": 0, "name": "NVIDIA A100-SXM4-40GB", "cc": "8.0", "sm_count": 108}
GEMM = "cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4"


def program(trace_of, *kernels, device=NAMED, steps=1):
    """``steps`` steps, each a product (one name and duration a kernel) in ``layer``."""
    ranges, calls, ran = [], [], []
    base = {"process": 0, "thread": 1}
    for step in range(steps):
        at = step * 1_000_000
        ranges += [
            {**base, "domain": "opscope.user", "category": "step", "text": f"step {step}",
             "start": at, "end": at + 900_000},
            {**base, "domain": "opscope.torch", "category": "forward", "text": PRODUCT,
             "start": at + 10, "end": at + 20_000},
        ]  # fmt: skip
        for number, (name, duration) in enumerate(kernels):
            correlation = 10 * step + number
            start = at + 20 + 100 * number
            calls.append({**base, "name": "cudaLaunchKernel", "start": start, "end": start + 10,
                          "correlation": correlation})  # fmt: skip
            begin = at + 50_000 + 100_000 * number
            ran.append({"process": 0, "device": 0, "stream": 7, "name": name, "start": begin,
                        "end": begin + duration, "correlation": correlation})  # fmt: skip
    tables = {"devices": [device]} if device is not None else {}
    return Profile(trace_of(ranges=ranges, calls=calls, kernels=ran, **tables))


def table_of(profile, report="roofline"):
    """The report as the terminal shows it, with all of its rows."""
    (table,) = tables(profile, [report], None)
    return table


def notes(profile, report="roofline"):
    return " | ".join(table_of(profile, report).footnotes)


def test_the_device_s_peaks_and_where_they_are_from(trace_of):
    profile = program(trace_of, (GEMM, 40_000))
    table = table_of(profile)
    assert table.title == "Roofline by op, against A100 40GB"
    said = notes(profile)
    assert "tf32 156 TFLOP/s" in said
    assert "memory 1.55 TB/s" in said or "memory 1.56 TB/s" in said
    assert "datasheet" in said
    assert "docs/reference/devices.md" in said
    assert "warning" not in said
    row = profile.efficiency("op").row(0, named=True)
    assert row["efficiency"] == pytest.approx(IDEAL / 40_000, rel=1e-3)


def test_a_device_that_does_not_fit_its_name_is_warned_of(trace_of):
    said = notes(program(trace_of, (GEMM, 40_000), device={**NAMED, "sm_count": 56}))
    assert "warning" in said
    assert "56" in said


def test_without_a_device_there_is_no_roof_and_the_title_says_why(trace_of):
    profile = program(trace_of, (GEMM, 40_000), device=None)
    assert "no roof: the trace names no device" in table_of(profile).title
    assert "no peak" in table_of(profile, "utilization").title
    assert profile.utilization()["mfu"].to_list() == [None]
    assert name_devices(profile.trace, "A100 40GB") == 1


def test_missing_kernels_are_told(trace_of):
    profile = program(trace_of, ("splitKreduce_kernel", 40_000))
    found = profile.efficiency().row(0, named=True)
    assert found["incomplete"]
    assert found["efficiency"] is None
    assert "1 call has no roof: kernels are missing" in notes(profile)


def test_what_is_above_is_explained(trace_of):
    profile = program(trace_of, ("ampere_scudnn_winograd_128x128_ldg1_ldg4", 1_000))
    assert "algorithm needs fewer multiplications" in notes(profile)
    assert profile.efficiency("op")["over_reason"].to_list() == ["fast algorithm"]


@pytest.mark.parametrize("report", [name for name in reports() if name.startswith("roofline")])
def test_every_grouping(trace_of, report):
    table = table_of(program(trace_of, (GEMM, 40_000), steps=3), report)
    assert len(table.rows) == (3 if report == "roofline_step" else 1)


def test_steps_are_in_order(trace_of):
    profile = program(trace_of, (GEMM, 40_000), steps=12)
    table = table_of(profile, "roofline_step")
    assert [row["step"] for row in table.rows] == list(range(12))


def test_a_kernel_has_the_op_s_efficiency_and_its_share_of_the_roof(trace_of):
    profile = program(trace_of, (GEMM, 30_000), ("splitKreduce_kernel", 10_000))
    by_kernel = profile.efficiency("kernel")
    assert by_kernel["name"].to_list() == [GEMM, "splitKreduce_kernel"]
    assert by_kernel["op"].to_list() == ["aten::mm"] * 2
    assert by_kernel["efficiency"].to_list() == pytest.approx([IDEAL / 40_000] * 2, rel=1e-3)
    assert by_kernel["ideal_time"].sum() == pytest.approx(IDEAL, rel=1e-2)
    assert by_kernel["matrix_flops"].sum() == 2 * 1024**3


def test_utilization_says_what_it_is_of(trace_of):
    profile = program(trace_of, (GEMM, 40_000), ("triton_poi_0", 10_000))
    table = table_of(profile, "utilization")
    said = " | ".join(table.footnotes)
    assert "MFU: model FLOPs" in said
    assert "f32 is compared with TF32's peak" in said
    row = profile.utilization().row(0, named=True)
    assert row["peak"] == pytest.approx(156e12, rel=0.01)
    assert row["mfu"] == pytest.approx(2 * 1024**3 / (156e12 * 900_000 / 1e9), rel=0.01)
