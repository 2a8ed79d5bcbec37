"""The report of how long kernels are: how many, and how much of their time, by ranges of lengths."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.device_columns import FORMS
from opscope.reports.report import Report

REPORT = Report(
    name="kernel_lengths",
    order=425,
    title="Lengths of kernels",
    holds=FRAMES["kernel_lengths()"],
    frame=lambda profile: profile.kernel_lengths(),
    empty="no kernels in this profile: no GPU was used, or kernels were not captured",
    forms=FORMS,
    gpu_only=True,
    lean=True,
)
