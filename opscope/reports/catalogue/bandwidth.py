"""The report of the bandwidth of copies and sets."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="bandwidth",
    order=502,
    title="Bandwidth of copies and sets",
    holds=FRAMES["bandwidth()"],
    frame=lambda profile: profile.bandwidth(),
    empty="no copies or sets in this profile: none ran, or they were not captured",
    shown=[
        "process",
        "device",
        "kind",
        "src_kind",
        "dst_kind",
        "calls",
        "bytes",
        "total",
        "mean_bandwidth",
        "median_bandwidth",
        "most_bandwidth",
        "reason",
    ],
    aliases=("memory_bandwidth",),
    gpu_only=True,
)
