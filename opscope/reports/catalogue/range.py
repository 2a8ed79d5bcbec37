"""The report of the user's own ranges, by the time of the work in them."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="range",
    order=90,
    title="User ranges",
    holds=FRAMES["range_totals()"],
    frame=lambda profile: profile.range_totals(),
    empty="no work in this profile",
    shown=["range", "device_time", "share", "calls", "kernels", "copies", "flops", "bytes"],
    by="range",
    aliases=("ranges",),
    lean=True,
)
