"""The report of the bandwidth of copies and sets over time."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="bandwidth_curve",
    order=504,
    title="Bandwidth of copies and sets over time",
    holds=FRAMES["bandwidth_curve()"],
    frame=lambda profile: profile.bandwidth_curve(),
    empty="no copies or sets with known bytes in this profile",
    shown=["process", "device", "kind", "time", "moving_bandwidth"],
    written=False,
    gpu_only=True,
)
