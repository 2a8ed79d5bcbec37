"""The measured roofline beside the model's."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.counters import EMPTY, FORMS, beside_the_model
from opscope.reports.report import Report

REPORT = Report(
    name="counter_roofline",
    order=590,
    title="Roofline measured and modelled",
    holds=FRAMES["counter_roofline()"],
    frame=lambda profile: profile.counter_roofline(),
    empty=EMPTY,
    forms=FORMS,
    shown=(
        *("op", "inputs", "name", "calls", "duration", "model_flops", "counted_flops"),
        *("flops_difference", "model_bytes", "counted_bytes", "bytes_difference"),
        *("model_intensity", "counted_intensity", "model_bound", "counted_bound"),
        *("model_efficiency", "counted_efficiency", "counted_reason", "model_reason"),
    ),
    table=beside_the_model,
    aliases=("measured_roofline",),
    gpu_only=True,
)
