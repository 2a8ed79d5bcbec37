"""The report of how many launches wait on each stream."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="queue",
    order=496,
    title="Launch queues",
    holds=FRAMES["queue()"],
    frame=lambda profile: profile.queue(),
    empty="no kernels in this profile: no GPU was used, or kernels were not captured",
    shown=[
        "process",
        "device",
        "stream",
        "launches",
        "median_queue",
        "p90_queue",
        "longest_queue",
        "empty_share",
        "full_time",
        "stalled_launches",
        "stalled_time",
        "reason",
    ],
    aliases=("queue_length",),
    gpu_only=True,
)
