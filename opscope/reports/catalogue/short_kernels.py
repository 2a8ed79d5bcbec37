"""The report of kernels that are shorter than 10 µs, by name."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.device_columns import FORMS
from opscope.reports.report import Report

REPORT = Report(
    name="short_kernels",
    order=430,
    title="Short kernels (less than 10 µs)",
    holds=FRAMES["short_kernels()"],
    frame=lambda profile: profile.short_kernels(),
    empty="no kernel took less than 10 µs, or none was captured",
    shown=["name", "op", "short", "calls", "short_share", "short_time", "share", "mean"],
    forms=FORMS,
    gpu_only=True,
    lean=True,
)
