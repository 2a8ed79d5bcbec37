"""The report of idle time by step and device."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="idle_steps",
    order=484,
    title="Idle time by step",
    holds=FRAMES["idle_steps()"],
    frame=lambda profile: profile.idle_steps(),
    empty="no steps with work on a GPU in this profile (mark steps with opscope.step)",
    shown=[
        "step",
        "process",
        "device",
        "time",
        "busy_time",
        "idle_share",
        "idle_time",
        "host_wait",
        "kernel_wait",
        "other_wait",
        "unknown_wait",
        "reason",
    ],
    gpu_only=True,
)
