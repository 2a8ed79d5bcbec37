"""The report of idle time by device: what the device waited for."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="idle",
    order=480,
    title="Idle time by device",
    holds=FRAMES["idle()"],
    frame=lambda profile: profile.idle(),
    empty="no kernels in this profile: no GPU was used, or kernels were not captured",
    shown=[
        "process",
        "device",
        "window",
        "busy_time",
        "idle_share",
        "idle_time",
        "host_wait",
        "kernel_wait",
        "other_wait",
        "unknown_wait",
        "idle_gaps",
        "longest_gap",
        "reason",
    ],
    aliases=("idle_time",),
    gpu_only=True,
)
