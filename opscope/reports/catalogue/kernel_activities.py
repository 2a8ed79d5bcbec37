"""The report of kernels by name and op: MindSpore's kernel activities."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="kernel_activities",
    order=390,
    title="Kernels by the op that launched them",
    holds=FRAMES["kernel_activities()"],
    frame=lambda profile: profile.kernel_activities(),
    empty="no kernels in this profile: no GPU was used, or kernels were not captured",
    shown=("share", "total", "mean", "max", "min", "calls", "name", "op"),
    gpu_only=True,
    lean=True,
)
