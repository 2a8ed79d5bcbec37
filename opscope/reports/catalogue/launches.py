"""The report of launch calls, and of the delay of the work that they launch."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="launches",
    order=490,
    title="Launches",
    holds=FRAMES["launches()"],
    frame=lambda profile: profile.launches(),
    empty="no launch records: no GPU was used, or launches were not captured",
    shown=[
        "process",
        "device",
        "kind",
        "measure",
        "launches",
        "mean",
        "median",
        "p90",
        "p99",
        "max",
        "total",
    ],
    gpu_only=True,
)
