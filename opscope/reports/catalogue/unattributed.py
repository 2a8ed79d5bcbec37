"""Time without an op, by the reason."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="unattributed",
    order=20,
    title="Unattributed",
    holds=FRAMES["unattributed()"],
    frame=lambda profile: profile.unattributed(),
    empty="nothing: all has its op",
)
