"""What counters say of each kernel's work."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.counters import EMPTY, FORMS
from opscope.reports.report import Report

REPORT = Report(
    name="counter_work",
    order=585,
    title="Measured work of kernels",
    holds=FRAMES["counter_work()"],
    frame=lambda profile: profile.counter_work(),
    empty=EMPTY,
    forms=FORMS,
    shown=(
        *("name", "op", "f64_flops", "f32_flops", "f16_flops", "tensor_flops", "dram_bytes"),
        *("counted_time", "no_tensor", "no_dram"),
    ),
    gpu_only=True,
)
