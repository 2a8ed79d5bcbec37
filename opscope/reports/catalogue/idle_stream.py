"""The report of idle time by stream: what each stream waited for."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="idle_stream",
    order=482,
    title="Idle time by stream",
    holds=FRAMES['idle("stream")'],
    frame=lambda profile: profile.idle("stream"),
    empty="no kernels in this profile: no GPU was used, or kernels were not captured",
    shown=[
        "process",
        "device",
        "stream",
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
    gpu_only=True,
)
