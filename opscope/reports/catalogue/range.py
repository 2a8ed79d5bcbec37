"""The user's own ranges, by the time of what ran in them."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="range",
    order=90,
    title="User ranges",
    holds=FRAMES["range_totals()"],
    frame=lambda profile: profile.range_totals(),
    empty="nothing ran",
    shown=["range", "device_time", "share", "calls", "kernels", "copies", "flops", "bytes"],
    by="range",
    aliases=("ranges",),
    lean=True,
)
